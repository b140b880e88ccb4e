//! The loss of a log to bulk: whether bulk has its bytes at the log's expense. Pure.
//!
//! Writers that wait for each append of their log, many at once, may fill a drive: then each byte of bulk costs the log one, while the latency grows only with the log's share, slowly.
//! Other logs get nearly as much done beside the whole rate of bulk as beside half of it.

use std::ops::AddAssign;
use std::time::Duration;

use crate::share::sample::{Kind, Sample};

/// The part of its work beside half the rate that a log may lose beside the whole rate.
const LOSS: f64 = 0.08;
/// The bytes that a log may lose for each byte that bulk has more.
const LOSS_BY_BULK: f64 = 0.25;
/// The least numbers of operations of the log, and of bulk, whose rates and latencies are compared.
const FEWEST_OPERATIONS: u32 = 8;
const FEWEST_BULK_OPERATIONS: u32 = 3;
/// The least time beside the whole rate that shows whether bulk takes the log's bytes: one bulk operation more or less is much of 5 ms.
const TIME_BESIDE: Duration = Duration::from_millis(25);

/// A log and bulk beside each other, for some time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogAndBulk {
    time: Duration,
    /// The log's operations, and the sum of their latencies as multiples of the mean alone.
    operations: u32,
    ratios: f64,
    /// The sum of the means alone of the log's operations, in seconds: what the log got done, whatever the kinds and sizes of its operations.
    work: f64,
    /// Bytes of the log, without flushes, whose bytes a write had.
    log: u64,
    /// Bytes and operations of bulk.
    pub(super) bulk: u64,
    pub(super) bulk_operations: u32,
}

impl LogAndBulk {
    /// Adds an operation of the log, with its latency as a multiple of the mean alone.
    pub(super) fn add(&mut self, sample: &Sample, ratio: f64) {
        self.operations += 1;
        self.ratios += ratio;
        self.work += sample.latency.as_secs_f64() / ratio.max(1e-9);
        if sample.kind != Kind::Flush {
            self.log = self.log.saturating_add(sample.bytes);
        }
    }

    /// Adds an operation of bulk.
    pub(super) fn add_bulk(&mut self, bytes: u64) {
        self.bulk = self.bulk.saturating_add(bytes);
        self.bulk_operations += 1;
    }

    /// These operations and bytes, as those of a time of length `time`.
    pub(super) fn lasting(self, time: Duration) -> LogAndBulk {
        LogAndBulk { time, ..self }
    }

    /// The mean latency of the log, as a multiple of that alone.
    pub(super) fn mean(&self) -> f64 {
        self.ratios / f64::from(self.operations.max(1))
    }

    fn a_second(&self, amount: f64) -> f64 {
        amount / self.time.as_secs_f64().max(1e-9)
    }

    fn is_enough(&self) -> bool {
        self.operations >= FEWEST_OPERATIONS && self.bulk_operations >= FEWEST_BULK_OPERATIONS
    }
}

impl AddAssign for LogAndBulk {
    fn add_assign(&mut self, more: LogAndBulk) {
        *self = LogAndBulk {
            time: self.time + more.time,
            operations: self.operations + more.operations,
            ratios: self.ratios + more.ratios,
            work: self.work + more.work,
            log: self.log.saturating_add(more.log),
            bulk: self.bulk.saturating_add(more.bulk),
            bulk_operations: self.bulk_operations + more.bulk_operations,
        };
    }
}

/// The log beside bulk at half its rate, and since then beside bulk at its whole rate.
#[derive(Debug, Default)]
pub(super) struct LogLoss {
    beside_half: Option<LogAndBulk>,
    beside_whole: LogAndBulk,
    /// True if the last measurement beside the whole rate showed a loss. A single one may be a stall of the drive.
    is_suspected: bool,
}

impl LogLoss {
    /// Bulk went at half its rate.
    pub(super) fn end_half(&mut self, both: LogAndBulk) {
        *self = LogLoss { beside_half: Some(both).filter(LogAndBulk::is_enough), ..LogLoss::default() };
    }

    /// Forgets the measurement beside the whole rate: the rate has changed.
    pub(super) fn restart(&mut self) {
        *self = LogLoss { beside_half: self.beside_half, ..LogLoss::default() };
    }

    /// Bulk went at its whole rate. Returns the bytes a second that bulk takes from the log, beyond those that the log may lose.
    pub(super) fn taken(&mut self, both: LogAndBulk) -> Option<f64> {
        let half = self.beside_half?;
        self.beside_whole += both;
        if self.beside_whole.time < TIME_BESIDE {
            return None;
        }
        let whole = std::mem::take(&mut self.beside_whole);
        let taken = if whole.is_enough() { taken_beside(&half, &whole) } else { None };
        let was_suspected = std::mem::replace(&mut self.is_suspected, taken.is_some());
        taken.filter(|_| was_suspected)
    }
}

fn taken_beside(half: &LogAndBulk, whole: &LogAndBulk) -> Option<f64> {
    // A log that pauses gets less done without bulk, and one that does not wait for its operations gets as much done with longer latencies.
    let less_work = 1.0 - whole.a_second(whole.work) / half.a_second(half.work).max(1e-9);
    let longer = 1.0 - half.mean() / whole.mean().max(1e-9);
    let part = less_work.min(longer);
    let more = whole.a_second(whole.bulk as f64) - half.a_second(half.bulk as f64);
    let log = half.a_second(half.log as f64);
    // Bulk takes no more than it has.
    let lost = (log * part).min(more);
    let is_taken = part > LOSS && more > 0.0 && lost > more * LOSS_BY_BULK;
    Some(lost - log * LOSS).filter(|taken| is_taken && *taken > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::sample::Beside;
    use units::Instant;

    const MIB: u64 = 1 << 20;

    /// A log and bulk with these MiB in 100 ms, and the mean of the log's latencies by that alone.
    fn both(log: u64, mean: f64, bulk: u64) -> LogAndBulk {
        LogAndBulk {
            time: Duration::from_millis(100),
            operations: 100,
            ratios: 100.0 * mean,
            work: log as f64 / 1000.0,
            log: log * MIB,
            bulk: bulk * MIB,
            bulk_operations: 4,
        }
    }

    /// Bytes taken if the log and bulk had `whole` twice, after they had 1,000 and 200 MiB/s at half the rate.
    fn taken_twice(whole: LogAndBulk) -> Option<f64> {
        let mut rate = LogLoss::default();
        rate.end_half(both(100, 1.0, 20));
        assert_eq!(rate.taken(whole), None, "once may be a stall");
        rate.taken(whole)
    }

    #[test]
    fn bulk_that_the_log_makes_way_for_takes_its_bytes() {
        let taken = taken_twice(both(80, 1.25, 40)).expect("taken") / MIB as f64;
        assert!((119.0..121.0).contains(&taken), "{taken}");
        let whole = both(80, 1.25, 40);
        assert_eq!(taken_twice(LogAndBulk { time: Duration::from_millis(10), ..whole }), None, "too short");
    }

    #[test]
    fn a_log_that_loses_little_or_by_itself_or_beside_much_more_bulk_loses_nothing_to_it() {
        assert_eq!(taken_twice(both(93, 1.25, 40)), None);
        assert_eq!(taken_twice(both(80, 1.25, 101)), None);
        assert_eq!(taken_twice(both(80, 1.25, 19)), None, "bulk had no more");
        assert_eq!(taken_twice(both(80, 1.05, 40)), None, "the log paused");
        assert!(taken_twice(both(80, 1.25, 99)).is_some());
    }

    #[test]
    fn a_log_whose_operations_became_small_gets_as_much_done() {
        let small = LogAndBulk { log: 10 * MIB, ..both(100, 1.25, 40) };
        assert_eq!(taken_twice(small), None);
    }

    #[test]
    fn bulk_takes_no_more_than_it_has_more() {
        let taken = taken_twice(both(50, 2.0, 30)).expect("taken") / MIB as f64;
        assert!((19.0..21.0).contains(&taken), "{taken}");
    }

    #[test]
    fn a_stall_or_a_time_before_the_rate_changed_is_not_taken_for_a_loss() {
        let mut rate = LogLoss::default();
        rate.end_half(both(100, 1.0, 20));
        for whole in [both(50, 2.0, 40), both(100, 1.0, 40), both(50, 2.0, 40)] {
            assert_eq!(rate.taken(whole), None);
        }
        rate.restart();
        assert_eq!(rate.taken(both(50, 2.0, 40)), None);
    }

    #[test]
    fn few_operations_say_nothing_and_flushes_have_no_bytes() {
        for half in [
            LogAndBulk { operations: 7, ..both(100, 1.0, 20) },
            LogAndBulk { bulk_operations: 2, ..both(100, 1.0, 20) },
        ] {
            let mut rate = LogLoss::default();
            rate.end_half(half);
            assert!(rate.beside_half.is_none());
        }
        let mut flushes = LogAndBulk::default();
        let (submitted, latency, bulk) = (Instant::ORIGIN, Duration::from_micros(30), Beside::InFlight);
        flushes.add(&Sample { kind: Kind::Flush, bytes: MIB, submitted, latency, bulk }, 1.0);
        assert_eq!((flushes.operations, flushes.log), (1, 0));
    }
}
