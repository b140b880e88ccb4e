//! The latencies of one log's syncs: now, and alone on the drive.

use std::collections::VecDeque;
use std::time::Duration;

use units::Instant;

/// Syncs of this time count as those of now.
const NOW: Duration = Duration::from_millis(500);
/// The last syncs alone that count.
const ALONE_OF: usize = 2000;
/// A sync counts as alone so long after the last bulk write: the drive's buffer may hold the write's data.
const SETTLES_AFTER: Duration = Duration::from_millis(10);

/// The latencies of one log's syncs.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    recent: VecDeque<(Instant, Duration)>,
    alone: VecDeque<Duration>,
    bulk_at: Option<Instant>,
}

impl Syncs {
    /// A bulk write was submitted or has ended.
    pub(super) fn note_bulk(&mut self, now: Instant) {
        self.bulk_at = Some(now);
    }

    /// A sync that began at `begun` has ended.
    pub(super) fn note(&mut self, now: Instant, begun: Instant) {
        let latency = now.since(begun);
        self.recent.push_back((now, latency));
        self.forget(now);
        if self.bulk_at.is_none_or(|bulk| begun > bulk.after(SETTLES_AFTER)) {
            self.alone.push_back(latency);
            if self.alone.len() > ALONE_OF {
                self.alone.pop_front();
            }
        }
    }

    /// The 99th percentile now, and alone. A log without syncs is not disturbed.
    pub(super) fn p99(&mut self, now: Instant) -> (Duration, Duration) {
        self.forget(now);
        let recent = percentile_99(self.recent.iter().map(|(_, latency)| *latency).collect());
        let alone = percentile_99(self.alone.iter().copied().collect());
        (recent.unwrap_or_default(), alone.or(recent).unwrap_or_default())
    }

    fn forget(&mut self, now: Instant) {
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > NOW) {
            self.recent.pop_front();
        }
    }
}

fn percentile_99(mut latencies: Vec<Duration>) -> Option<Duration> {
    let at = (latencies.len() * 99 / 100).min(latencies.len().checked_sub(1)?);
    Some(*latencies.select_nth_unstable(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_beside_and_just_after_bulk_do_not_count_as_alone() {
        let at = |micros: u64| Instant(micros * 1000);
        let mut syncs = Syncs::default();
        (0..200).for_each(|n| syncs.note(at(1000 * n + 20), at(1000 * n)));
        syncs.note_bulk(at(250_000));
        (250..262).for_each(|n| syncs.note(at(1000 * n + 900), at(1000 * n)));
        let us = Duration::from_micros;
        assert_eq!(syncs.p99(at(270_000)), (us(900), us(20)));
        assert_eq!(syncs.alone.len(), 201, "a sync long after the bulk counts");
        assert_eq!(syncs.p99(at(900_000)).0, Duration::ZERO, "no sync within the last half second");
    }
}
