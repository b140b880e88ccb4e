//! Whether a log in a conventional zone rewrites its last block, by measurement: a disk that has just written a block must turn once before it can write
//! the block again, and writes the next one at once.

use std::time::Duration;

use units::Instant;

/// Writes of other blocks before the first rewrite. The first write of a log takes long on a disk, whose head comes from elsewhere.
const WRITES_BEFORE_FIRST: u32 = 2;
/// Writes of other blocks after which one rewrite is tried again, where rewrites were slower.
const WRITES_BEFORE_TRIAL: u32 = 4096;
/// A rewrite that takes longer by less than a write divided by this number counts as equally fast.
const SAME_TIME_DIVISOR: u32 = 4;
/// A time above the shortest one raises the shortest one by a part in this many at most.
const RISE_DIVISOR: u32 = 8;

/// The times of writes that a caller waited for, from their submission until they were durable.
#[derive(Debug)]
pub(super) struct InPlace {
    /// The last block is rewritten whatever the times.
    always: bool,
    /// The shortest time lately of a write to a block that was not written before.
    other_block: Option<Duration>,
    /// The shortest time lately of a rewrite.
    rewrite: Option<Duration>,
    /// Writes of other blocks until the next trial of a rewrite.
    until_trial: u32,
    /// The write whose time is being measured: its entry's sequence, whether it is a rewrite, and the time of its submission.
    running: Option<(u64, bool, Instant)>,
}

impl InPlace {
    pub(super) fn new(always: bool) -> InPlace {
        InPlace { always, other_block: None, rewrite: None, until_trial: WRITES_BEFORE_FIRST, running: None }
    }

    /// True if the next block is to be rewritten while it has room.
    pub(super) fn prefers_rewrites(&self) -> bool {
        let is_as_fast = match (self.other_block, self.rewrite) {
            (Some(other), Some(rewrite)) => rewrite <= other + other / SAME_TIME_DIVISOR,
            _ => false,
        };
        self.always || is_as_fast || self.until_trial == 0
    }

    /// Notes that the block that is being written will be rewritten.
    pub(super) fn will_rewrite(&mut self) {
        self.until_trial = WRITES_BEFORE_TRIAL;
    }

    /// Notes the submission of the entry `sequence`, alone in flight, for which a caller waits.
    pub(super) fn submitted(&mut self, sequence: u64, is_rewrite: bool, now: Instant) {
        self.running = Some((sequence, is_rewrite, now));
        if !is_rewrite {
            self.until_trial = self.until_trial.saturating_sub(1);
        }
    }

    /// Notes that all entries below `sequence` are durable.
    pub(super) fn durable(&mut self, sequence: u64, now: Instant) {
        let Some((_, is_rewrite, since)) = self.running.take_if(|(of, ..)| *of < sequence) else { return };
        let shortest = if is_rewrite { &mut self.rewrite } else { &mut self.other_block };
        let took = now.since(since);
        *shortest = Some(shortest.map_or(took, |shortest| took.min(shortest + shortest / RISE_DIVISOR)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_write_of_another_block_hides_no_slow_rewrites() {
        let (mut in_place, mut now) = (InPlace::new(false), Instant::ORIGIN);
        let mut took = |in_place: &mut InPlace, sequence, is_rewrite, micros| {
            in_place.submitted(sequence, is_rewrite, now);
            now = now.after(Duration::from_micros(micros));
            in_place.durable(sequence + 1, now);
        };
        for (sequence, micros) in [5300, 160].into_iter().enumerate() {
            assert!(!in_place.prefers_rewrites());
            took(&mut in_place, sequence as u64, false, micros);
        }
        assert!(in_place.prefers_rewrites(), "the first trial");
        in_place.will_rewrite();
        took(&mut in_place, 2, true, 5300);
        assert!(!in_place.prefers_rewrites());
    }

    /// A log of a caller that syncs each record, on a drive with these times; returns the number of rewrites among `writes`.
    fn rewrites(always: bool, other: Duration, rewrite: Duration, writes: u64) -> u64 {
        let (mut in_place, mut now, mut rewrites) = (InPlace::new(always), Instant::ORIGIN, 0);
        let mut keeps_block = false;
        for sequence in 0..writes {
            let is_rewrite = std::mem::take(&mut keeps_block);
            // A block takes 8 records.
            if sequence % 8 != 7 && in_place.prefers_rewrites() {
                in_place.will_rewrite();
                keeps_block = true;
            }
            in_place.submitted(sequence, is_rewrite, now);
            now = now.after(if is_rewrite { rewrite } else { other });
            in_place.durable(sequence + 1, now);
            rewrites += u64::from(is_rewrite);
        }
        rewrites
    }

    #[test]
    fn blocks_are_rewritten_where_that_takes_no_longer() {
        let [fast, slow] = [160, 5300].map(Duration::from_micros);
        // The time of the first rewrite is known when the block behind it is being written.
        assert_eq!(rewrites(false, fast, fast, 8000), 6997, "all but the first ones");
        assert_eq!(rewrites(false, fast, Duration::from_micros(180), 8000), 6997);
        assert_eq!(rewrites(false, fast, slow, 4 * u64::from(WRITES_BEFORE_TRIAL)), 4, "the trials");
        assert_eq!(rewrites(true, fast, slow, 8000), 7000);
    }

    #[test]
    fn a_drive_without_times_rewrites() {
        assert_eq!(rewrites(false, Duration::ZERO, Duration::ZERO, 80), 67);
    }
}
