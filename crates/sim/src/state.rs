//! The name of a crash state, as replay commands have it.

use std::fmt;
use std::str::FromStr;

/// The name of a crash state: the place of the power cut and the outcome.
///
/// As text: `3.120.e5` is workload 3, cut after event 120, enumerated outcome 5; `3.120.s5` the same with sampled outcome 5; a
/// trailing `x` adds the second cut during or after the recovery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateId {
    /// The number of the seed's workload.
    pub workload: u64,
    /// The event after which the power was cut.
    pub event: u64,
    /// The outcome of the power cut.
    pub outcome: Outcome,
    /// Whether the power was cut a second time.
    pub twice: bool,
}

/// Selects an outcome of a power cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// The outcome with this place in the enumeration.
    Enumerated(u64),
    /// The random outcome with this sample number.
    Sampled(u64),
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.", self.workload, self.event)?;
        match self.outcome {
            Outcome::Enumerated(n) => write!(f, "e{n}")?,
            Outcome::Sampled(n) => write!(f, "s{n}")?,
        }
        f.write_str(if self.twice { "x" } else { "" })
    }
}

impl FromStr for StateId {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<StateId, crate::Error> {
        let parse = || {
            let (rest, twice) = text.strip_suffix('x').map_or((text, false), |rest| (rest, true));
            let mut parts = rest.split('.');
            let workload = parts.next()?.parse().ok()?;
            let event = parts.next()?.parse().ok()?;
            let outcome = parts.next()?;
            let outcome = match outcome.strip_prefix('e') {
                Some(n) => Outcome::Enumerated(n.parse().ok()?),
                None => Outcome::Sampled(outcome.strip_prefix('s')?.parse().ok()?),
            };
            parts.next().is_none().then_some(StateId { workload, event, outcome, twice })
        };
        parse().ok_or_else(|| crate::Error::StateId(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back_as_it_is_written() {
        for text in ["0.0.e0", "3.120.s5x", "1.7.e9x", "12.3.s0"] {
            assert_eq!(text.parse::<StateId>().expect("valid").to_string(), text);
        }
        for text in ["", "1", "1.2", "1.2.3", "1.2.q3", "1.2.e", "1.2.e3.4", "x", "1.2.s-1"] {
            assert!(text.parse::<StateId>().is_err(), "{text}");
        }
    }
}
