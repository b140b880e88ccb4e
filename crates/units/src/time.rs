//! A point in time as a driver counts it.

use std::fmt;
use std::time::Duration;

/// Nanoseconds since the driver's own origin. Instants of two drivers do not compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The driver's origin.
    pub const ORIGIN: Instant = Instant(0);

    /// The instant `d` later, saturating.
    pub fn after(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero if `earlier` is not earlier.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}
