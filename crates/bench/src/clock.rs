//! The clock that a measurement runs on.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use units::{Driver, RealDriver, VirtualDriver};

/// The seed of the virtual clock's random numbers: a measurement in virtual time repeats exactly.
const SEED: u64 = 1;

/// The clock that a measurement runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The virtual clock: only the drive takes time, and a run repeats exactly. Threads are tasks.
    Virtual,
    /// The machine's own clock.
    Real,
    /// The machine's own clock; the drive's times are stretched by this factor, and results divided by it.
    Dilated(NonZeroU32),
}

impl Clock {
    /// A driver on this clock. A driver on the virtual clock is for the calling thread alone.
    pub fn driver(self) -> Arc<dyn Driver> {
        match self {
            Clock::Virtual => VirtualDriver::new(SEED),
            Clock::Real | Clock::Dilated(_) => RealDriver::new(),
        }
    }
}

impl FromStr for Clock {
    type Err = String;

    fn from_str(text: &str) -> Result<Clock, String> {
        let unknown = || format!("'{text}' is no clock: virtual, real or dilated=N");
        match text.split_once('=') {
            None if text == "virtual" => Ok(Clock::Virtual),
            None if text == "real" => Ok(Clock::Real),
            Some(("dilated", n)) => n.parse().map(Clock::Dilated).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clock::Virtual => f.write_str("virtual"),
            Clock::Real => f.write_str("real"),
            Clock::Dilated(n) => write!(f, "dilated={n}"),
        }
    }
}

impl Serialize for Clock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_reads_back_as_it_is_shown() {
        for text in ["virtual", "real", "dilated=10"] {
            assert_eq!(text.parse::<Clock>().expect("valid").to_string(), text);
        }
        for text in ["dilated", "dilated=0", "dilated=-1", "fast", "virtual=2"] {
            assert!(text.parse::<Clock>().expect_err(text).contains("dilated=N"));
        }
    }
}
