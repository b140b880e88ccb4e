//! Predicts whether reads find all data in memory, from the drive's recent reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use units::Instant;

/// Time without a read of the drive after which reads are expected to find all data in memory. The time is longer than
/// a read of a busy drive takes.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// The number of the drive's reads so far, as the connections saw it.
#[derive(Debug, Default)]
pub(crate) struct RecentReads {
    submitted: AtomicU64,
    /// Time at which `submitted` changed last, in nanoseconds of the driver's clock.
    changed: AtomicU64,
}

impl RecentReads {
    /// True if the drive was not read for a while. `submitted`: number of the drive's reads until `now`.
    pub fn are_quiet(&self, submitted: u64, now: Instant) -> bool {
        if self.submitted.load(Ordering::Relaxed) != submitted {
            self.submitted.store(submitted, Ordering::Relaxed);
            self.changed.store(now.0, Ordering::Relaxed);
            return false;
        }
        now.since(Instant(self.changed.load(Ordering::Relaxed))) >= QUIET_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_quiet_a_while_after_the_drives_last_read() {
        let reads = RecentReads::default();
        let at = |millis| Instant::ORIGIN.after(Duration::from_millis(millis));
        assert!(!reads.are_quiet(0, at(10)), "the server has just started");
        assert!(reads.are_quiet(0, at(1000)));
        assert!(!reads.are_quiet(1, at(2000)));
        assert!(!reads.are_quiet(1, at(2999)));
        assert!(reads.are_quiet(1, at(3000)));
        assert!(!reads.are_quiet(2, at(3001)));
    }
}
