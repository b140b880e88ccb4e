//! Latency statistics of a log's operations. They decide whether a lone operation is a write at the pointer or an append,
//! and whether operations queue in the drive.
//!
//! On some drives an append takes longer than a write (ZN540: 14.8 and 11.4 us for 4 KiB). But while a write is in
//! flight no other operation may go to the zone, so an operation is an append unless a write is clearly faster.
//!
//! An operation that takes much longer than the shortest one of its size waited behind other operations: one more in flight
//! would only wait too.

use std::time::Duration;

/// The first of two kinds is chosen if its mean latency is below this fraction of the second's.
const FIRST_TIME_FRACTION: f64 = 0.97;
/// Weights of a new latency in the running mean: the first if it is above the mean, the second if it is
/// below. The weight above is greater, so that the log soon stops using a kind of operation that begins to
/// queue because the drive's buffer is full. A latency counts as at most `MAX_TIMES_MEAN` times the mean.
const WEIGHT_ABOVE_MEAN: f64 = 0.3;
const WEIGHT_BELOW_MEAN: f64 = 0.1;
const MAX_TIMES_MEAN: f64 = 1.5;
/// Number of operations of each kind that are measured before the first choice between two.
const MEASUREMENTS_BEFORE_CHOICE: u32 = 2;
/// The least and the most operations between two trials of the slower kind.
const MIN_OPERATIONS_BETWEEN_TRIALS: u32 = 64;
const MAX_OPERATIONS_BETWEEN_TRIALS: u32 = 1 << 14;
/// Number of size classes of operations: one for each power of two of blocks.
const SIZE_CLASSES: usize = 24;

/// An operation that takes this many times the shortest latency of its size waited in the drive's queue.
const QUEUED_TIMES_SHORTEST: f64 = 2.0;

/// Latencies of a log's writes and appends by size class.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    sizes: [SizeLatencies; SIZE_CLASSES],
    queueing: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct SizeLatencies {
    /// A write, or an append.
    write_or_append: FasterKind,
    /// The shortest latency of an operation of this size, in seconds.
    least: Option<f64>,
}

/// Which of two kinds of operations is faster, by their latencies. The slower one is tried again, each time after a longer pause.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FasterKind {
    kinds: [KindLatency; 2],
    /// Number of operations until the slower kind is tried again; and the length of this pause.
    left: u32,
    pause: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct KindLatency {
    count: u32,
    mean: f64,
}

impl Latencies {
    /// True if the next lone operation of `blocks` blocks is to be a write instead of an append.
    pub(crate) fn writes(&mut self, blocks: usize) -> bool {
        self.sizes.get_mut(size_class(blocks)).is_some_and(|size| size.write_or_append.is_first())
    }

    /// True if the log's last operation waited behind others in the drive.
    pub(super) fn queueing(&self) -> bool {
        self.queueing
    }

    /// Records the latency of an operation of `blocks` blocks. `lone`: no other operation of the log was in
    /// flight or due.
    pub(crate) fn took(&mut self, blocks: usize, write: bool, lone: bool, time: Duration) {
        let Some(size) = self.sizes.get_mut(size_class(blocks)) else { return };
        let least = size.least.map_or(time.as_secs_f64(), |least| least.min(time.as_secs_f64()));
        size.least = Some(least);
        self.queueing = time.as_secs_f64() > least * QUEUED_TIMES_SHORTEST;
        if !lone {
            return;
        }
        size.write_or_append.took(write, time);
    }
}

impl FasterKind {
    /// True if the next operation is to be of the first kind.
    pub(crate) fn is_first(&mut self) -> bool {
        let [first, second] = self.kinds;
        if first.count < MEASUREMENTS_BEFORE_CHOICE || second.count < MEASUREMENTS_BEFORE_CHOICE {
            return first.count <= second.count;
        }
        let better = self.first_is_faster();
        if self.left == 0 {
            self.pause = (self.pause * 2).clamp(MIN_OPERATIONS_BETWEEN_TRIALS, MAX_OPERATIONS_BETWEEN_TRIALS);
            self.left = self.pause;
            return !better;
        }
        self.left -= 1;
        better
    }

    /// True if the first kind is faster by what was measured, or the second was not measured.
    pub(crate) fn first_is_faster(&self) -> bool {
        let [first, second] = self.kinds;
        second.count == 0 || first.mean < second.mean * FIRST_TIME_FRACTION
    }

    /// Records the latency of an operation of the first kind, or of the second.
    pub(crate) fn took(&mut self, is_first: bool, time: Duration) {
        let [first, second] = &mut self.kinds;
        let kind = if is_first { first } else { second };
        kind.count = kind.count.saturating_add(1);
        let seconds = time.as_secs_f64();
        if kind.count <= MEASUREMENTS_BEFORE_CHOICE {
            kind.mean += (seconds - kind.mean) / f64::from(kind.count);
            return;
        }
        let weight = if seconds > kind.mean { WEIGHT_ABOVE_MEAN } else { WEIGHT_BELOW_MEAN };
        kind.mean += (seconds.min(kind.mean * MAX_TIMES_MEAN) - kind.mean) * weight;
    }
}

fn size_class(blocks: usize) -> usize {
    (usize::BITS - blocks.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes_chosen_in_100(write_us: u64, append_us: u64) -> usize {
        let mut lone = Latencies::default();
        let mut writes = 0;
        for _ in 0..100 {
            let write = lone.writes(1);
            writes += usize::from(write);
            lone.took(1, write, true, Duration::from_micros(if write { write_us } else { append_us }));
        }
        writes
    }

    #[test]
    fn operations_that_take_twice_as_long_as_they_can_queue() {
        let mut latencies = Latencies::default();
        for (us, queueing) in
            [(100, false), (150, false), (250, true), (120, false), (50, false), (120, true)]
        {
            latencies.took(4, false, false, Duration::from_micros(us));
            assert_eq!(latencies.queueing(), queueing, "{us}");
        }
        latencies.took(64, false, false, Duration::from_micros(900));
        assert!(!latencies.queueing(), "another size");
    }

    #[test]
    fn writes_that_begin_to_wait_are_left_at_once_and_one_slow_operation_does_not_count_for_many() {
        let mut latencies = Latencies::default();
        for op in 0..40 {
            let write = latencies.writes(9);
            latencies.took(9, write, true, Duration::from_micros(if write { 29 } else { 32 }));
            assert!(op < 5 || write, "{op}");
        }
        latencies.took(9, true, true, Duration::from_micros(43));
        assert!(!latencies.writes(9));
        // One latency of any length is an outlier: after some short writes the choice is a write again.
        let mut spared = Latencies::default();
        (0..2).for_each(|_| spared.took(9, true, true, Duration::from_micros(29)));
        (0..2).for_each(|_| spared.took(9, false, true, Duration::from_micros(32)));
        spared.took(9, true, true, Duration::from_secs(1));
        (0..12).for_each(|_| spared.took(9, true, true, Duration::from_micros(29)));
        assert!((0..3).filter(|_| spared.writes(9)).count() >= 2);
    }

    #[test]
    fn a_write_is_taken_where_it_is_faster_and_an_append_where_it_is_not() {
        assert!(writes_chosen_in_100(11, 15) > 90);
        assert!(writes_chosen_in_100(484, 484) < 10);
        assert!(writes_chosen_in_100(15, 11) < 10);
    }
}
