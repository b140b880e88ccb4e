//! The rate at which a node must write its snapshot so that no log reaches its limit.

use std::time::Duration;

use units::{Bytes, Instant};

/// Time over which the growth of the log is averaged.
const AVERAGED: Duration = Duration::from_secs(10);

/// A turn is to end in this part of the time that is left, so that a drive or a log that is slower or faster than before leaves room.
const SAFETY: f64 = 0.5;

/// How fast the group's log grows: all nodes append the same entries.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct LogGrowth {
    last: Option<(Instant, Bytes)>,
    bytes_per_second: f64,
}

impl LogGrowth {
    /// Notes the length of one node's log since its snapshot.
    pub(crate) fn note(&mut self, now: Instant, log: Bytes) {
        if let Some((then, before)) = self.last {
            let seconds = now.since(then).as_secs_f64();
            if seconds <= 0.0 {
                return;
            }
            // A shorter log has a new snapshot below it.
            if let Some(more) = log.0.checked_sub(before.0) {
                let weight = (seconds / AVERAGED.as_secs_f64()).min(1.0);
                self.bytes_per_second += weight * (more as f64 / seconds - self.bytes_per_second);
            }
        }
        self.last = Some((now, log));
    }

    /// The rate in bytes a second at which `bytes` are written in half of the time until the log has grown by `room`, where `waves` nodes write one after the other.
    /// Without room: as fast as the drive is.
    pub(crate) fn rate(&self, bytes: Bytes, room: Bytes, waves: usize) -> Bytes {
        if room == Bytes::ZERO {
            return Bytes(u64::MAX);
        }
        let seconds = SAFETY * room.0 as f64 / self.bytes_per_second;
        Bytes((bytes.0 as f64 * waves as f64 / seconds) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_as_low_as_the_room_allows() {
        let mut growth = LogGrowth::default();
        assert_eq!(growth.rate(Bytes(1_000), Bytes(1_000), 1), Bytes::ZERO, "nothing is known to grow");
        for second in 0..=20 {
            growth.note(Instant(second * 10_000_000_000), Bytes(1_000 * second));
        }
        assert_eq!(growth.rate(Bytes(1_000), Bytes(2_000), 1), Bytes(100), "100 bytes a second leave 20 s");
        assert_eq!(growth.rate(Bytes(1_000), Bytes(2_000), 3), Bytes(300));
        growth.note(Instant(210_000_000_000), Bytes(5));
        assert_eq!(
            growth.rate(Bytes(1_000), Bytes(2_000), 1),
            Bytes(100),
            "a snapshot does not count as growth"
        );
        assert_eq!(growth.rate(Bytes(1_000), Bytes::ZERO, 1), Bytes(u64::MAX));
    }
}
