//! Paces attempts at tasks that fail for want of room.

use std::time::Duration;

use units::Instant;

/// The pause after a first failure, and at most: twice as long after each further one.
const FIRST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(64);

/// Paces attempts at something that needs room.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    failed: Option<Failed>,
}

/// The last attempt.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// Bytes that were free.
    free: u64,
    at: Instant,
    pause: Duration,
}

impl Retry {
    /// Whether to try with `free` bytes free: after a failure only if more is free than at the failure, or after a pause.
    pub(crate) fn is_due(&self, now: Instant, free: u64) -> bool {
        self.failed.is_none_or(|failed| free > failed.free || now >= failed.at.after(failed.pause))
    }

    /// Notes the end of an attempt that began with `free` bytes free.
    pub(crate) fn ended(&mut self, now: Instant, free: u64, well: bool) {
        let pause = self.failed.map_or(FIRST, |failed| (failed.pause * 2).min(MOST));
        self.failed = (!well).then_some(Failed { free, at: now, pause });
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
        assert!(retry.is_due(now.after(FIRST), 100), "a success begins anew");
    }
}
