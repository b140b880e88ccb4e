//! Limits the attempts at tasks that failed for lack of room on the drive.

use std::time::Duration;

use units::Instant;

/// Pause after the first failed attempt; it doubles with each further failure, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Decides when a task that needs room on the drive is tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    failed: Option<FailedAttempt>,
}

/// The last attempt, which failed.
#[derive(Clone, Copy, Debug)]
struct FailedAttempt {
    /// Bytes that were free when the attempt began.
    free: u64,
    at: Instant,
    pause: Duration,
}

impl Retry {
    /// Whether an attempt with `free` bytes free is due: after a failure only if more bytes are free than at the failed
    /// attempt, or after a pause.
    pub(crate) fn is_due(&self, now: Instant, free: u64) -> bool {
        self.failed.is_none_or(|failed| free > failed.free || now >= failed.at.after(failed.pause))
    }

    /// Notes the end of an attempt that began with `free` bytes free.
    pub(crate) fn ended(&mut self, now: Instant, free: u64, well: bool) {
        let pause = self.failed.map_or(FIRST_PAUSE, |failed| (failed.pause * 2).min(LONGEST_PAUSE));
        self.failed = (!well).then_some(FailedAttempt { free, at: now, pause });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_is_repeated_after_doubling_pauses_or_when_more_is_free() {
        let mut now = Instant::ORIGIN;
        let mut retry = Retry::default();
        assert!(retry.is_due(now, 100));
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            retry.ended(now, 100, false);
            let due = now.after(Duration::from_secs(pause));
            assert!(!retry.is_due(Instant(due.0 - 1), 100) && retry.is_due(due, 100), "{pause}");
            now = due;
        }
        retry.ended(now, 100, false);
        assert!(
            !retry.is_due(now, 100) && !retry.is_due(now, 90) && retry.is_due(now, 101),
            "there is more room"
        );
        retry.ended(now, 101, true);
        assert!(retry.is_due(now, 1));
        retry.ended(now, 100, false);
        assert!(retry.is_due(now.after(FIRST_PAUSE), 100), "a success begins anew");
    }
}
