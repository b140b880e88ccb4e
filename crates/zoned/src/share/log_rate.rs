//! Whether bulk takes its bytes from the log. Pure.
//!
//! Writers that wait for each append of their log, many at once, may fill a drive: then each byte of bulk costs the log one, while the latency grows only with the log's share, slowly.
//! Other logs have nearly as many bytes beside the whole rate of bulk as beside half of it.

use std::ops::AddAssign;
use std::time::Duration;

use crate::share::sample::{Kind, Sample};

/// The part of its bytes beside half the rate that a log may lose beside the whole rate.
const LOSS: f64 = 0.08;
/// The bytes that a log may lose for each byte that bulk has more.
const LOSS_BY_BULK: f64 = 0.25;
/// The least number of operations that give the log's rate beside half the rate of bulk.
const FEWEST_OPERATIONS: u32 = 8;
/// The least time beside the whole rate that shows whether bulk takes the log's bytes: one bulk operation more or less is much of 5 ms.
const TIME_BESIDE: Duration = Duration::from_millis(25);

/// A log and bulk beside each other, for some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Both {
    pub(super) time: Duration,
    /// The log's operations, and the sum of their latencies as multiples of the mean alone.
    pub(super) operations: u32,
    pub(super) latencies: f64,
    /// Bytes of the log, and of bulk.
    pub(super) log: u64,
    pub(super) bulk: u64,
}

impl Both {
    /// Adds an operation of the log, with its latency as a multiple of the mean alone.
    pub(super) fn add(&mut self, sample: &Sample, ratio: f64) {
        self.operations += 1;
        self.latencies += ratio;
        // A flush writes no bytes of its own.
        self.log += if sample.kind == Kind::Flush { 0 } else { sample.bytes };
    }

    fn mean(&self) -> f64 {
        self.latencies / f64::from(self.operations.max(1))
    }

    fn a_second(&self, bytes: u64) -> f64 {
        bytes as f64 / self.time.as_secs_f64().max(1e-9)
    }
}

impl AddAssign for Both {
    fn add_assign(&mut self, more: Both) {
        *self = Both {
            time: self.time + more.time,
            operations: self.operations + more.operations,
            latencies: self.latencies + more.latencies,
            log: self.log + more.log,
            bulk: self.bulk + more.bulk,
        };
    }
}

/// The log beside bulk at half its rate, and since then beside bulk at its whole rate.
#[derive(Debug, Default)]
pub(super) struct LogRate {
    beside_half: Option<Both>,
    beside_whole: Both,
}

impl LogRate {
    /// Bulk went at half its rate.
    pub(super) fn end_half(&mut self, both: Both) {
        let beside_half = Some(both).filter(|both| both.operations >= FEWEST_OPERATIONS);
        *self = LogRate { beside_half, beside_whole: Both::default() };
    }

    /// Bulk went at its whole rate. Returns the bytes a second that bulk takes from the log, beyond those that the log may lose.
    pub(super) fn taken(&mut self, both: Both) -> Option<f64> {
        let half = self.beside_half?;
        self.beside_whole += both;
        if self.beside_whole.time < TIME_BESIDE {
            return None;
        }
        let whole = std::mem::take(&mut self.beside_whole);
        let before = half.a_second(half.log);
        // A log that pauses loses bytes without bulk, and one that does not wait for its operations has longer latencies without a loss.
        let by_latency = before * (1.0 - half.mean() / whole.mean().max(1e-9));
        let lost = (before - whole.a_second(whole.log)).min(by_latency);
        let more = whole.a_second(whole.bulk) - half.a_second(half.bulk);
        let taken = lost - before * LOSS;
        (more > 0.0 && lost > more * LOSS_BY_BULK && taken > 0.0).then_some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::sample::Beside;
    use units::Instant;

    const MIB: u64 = 1 << 20;

    /// A log and bulk with these MiB in 100 ms, and the mean of the log's latencies by that alone.
    fn both(log: u64, mean: f64, bulk: u64) -> Both {
        Both {
            time: Duration::from_millis(100),
            operations: 100,
            latencies: 100.0 * mean,
            log: log * MIB,
            bulk: bulk * MIB,
        }
    }

    fn after_half() -> LogRate {
        let mut rate = LogRate::default();
        rate.end_half(both(100, 1.0, 20));
        rate
    }

    #[test]
    fn bulk_that_the_log_makes_way_for_takes_its_bytes() {
        let mut rate = after_half();
        let whole = both(80, 1.25, 40);
        assert_eq!(rate.taken(Both { time: Duration::from_millis(10), ..whole }), None, "too short");
        let taken = after_half().taken(whole).expect("taken") / MIB as f64;
        assert!((119.0..121.0).contains(&taken), "{taken}");
    }

    #[test]
    fn a_log_that_loses_little_or_by_itself_or_beside_much_more_bulk_loses_nothing_to_it() {
        assert_eq!(after_half().taken(both(93, 1.25, 21)), None);
        assert_eq!(after_half().taken(both(80, 1.25, 101)), None);
        assert_eq!(after_half().taken(both(80, 1.25, 19)), None, "bulk had no more");
        assert_eq!(after_half().taken(both(80, 1.05, 40)), None, "the log paused");
        assert!(after_half().taken(both(80, 1.25, 99)).is_some());
    }

    #[test]
    fn few_operations_give_no_rate_and_flushes_no_bytes() {
        let mut rate = LogRate::default();
        rate.end_half(Both { operations: 7, ..both(100, 1.0, 20) });
        assert_eq!(rate.taken(both(80, 1.25, 40)), None);
        let mut flushes = Both::default();
        let (submitted, latency, bulk) = (Instant::ORIGIN, Duration::from_micros(30), Beside::InFlight);
        flushes.add(&Sample { kind: Kind::Flush, bytes: MIB, submitted, latency, bulk }, 1.0);
        assert_eq!((flushes.operations, flushes.log), (1, 0));
    }
}
