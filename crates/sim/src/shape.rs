//! Drive, log settings and number of tasks of a workload of the targets `fs` and `log`, as a function of the seed.

use std::time::Duration;

use fs::wal::{IoMode, LogOptions};

use crate::trace::Drive;
use crate::{Rng, Target};

/// Drive, log settings and number of tasks of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub drive: Drive,
    pub log: LogOptions,
    pub style: Style,
    /// How long appended bytes stay in memory, in a mount with a page cache; `None` without one.
    pub buffered: Option<Duration>,
}

/// Number of tasks and style of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Style {
    /// Number of concurrent tasks.
    pub tasks: usize,
    /// Logs overlap: the task writes a new log while it still writes the log before.
    pub overlap: bool,
}

impl Default for Style {
    fn default() -> Style {
        Style { tasks: 3, overlap: false }
    }
}

impl Shape {
    /// The shape of one workload of `seed`.
    pub(crate) fn of(target: Target, seed: u64, workload: u64, volatile_cache: bool) -> Shape {
        let mut rng = Rng::at(seed, &[workload, 0x5a9e]);
        let shape = match target {
            Target::Log => Shape::of_logs(&mut rng, workload, volatile_cache),
            Target::Fs
            | Target::Engine
            | Target::LevelDb
            | Target::Array
            | Target::Waltz
            | Target::Stage
            | Target::Prio
            | Target::Groups
            | Target::Tables => {
                let drive = Drive::of_workload(volatile_cache, workload);
                let barrier = pick(&mut rng, &[0, 8 << 10, 32 << 10]);
                let log = LogOptions { buffer: 8 << 10, barrier, ..LogOptions::default() };
                let buffered = Shape::draw_buffered(target, seed, workload);
                Shape { drive, log, style: Style::default(), buffered }
            }
        };
        // From a generator of its own, so that older seeds keep their workloads.
        let durable_writes = Rng::at(seed, &[workload, 0xf0a]).chance(50);
        let log = LogOptions { durable_writes, ..shape.log };
        Shape { drive: shape.drive.with_conventional_zones(seed, workload), log, ..shape }
    }

    fn of_logs(rng: &mut Rng, workload: u64, volatile_cache: bool) -> Shape {
        let tiny = Drive::of_workload(volatile_cache, workload);
        let small = Drive { block_size: 512, max_open: 14, max_active: 14, ..tiny };
        let (drive, style) = match rng.below(10) {
            // This drive's zones hold a whole window of log entries.
            0..5 => {
                let drive = Drive { zones: 48, zone_size: 64, zone_capacity: 60, max_append: 4, ..small };
                (drive, Style { tasks: 3, overlap: rng.chance(50) })
            }
            // Log entries have several parts, and many logs are longer than a zone.
            5..7 => {
                let drive = Drive { zones: 64, zone_size: 32, zone_capacity: 28, max_append: 2, ..small };
                (drive, Style { tasks: 3, overlap: rng.chance(50) })
            }
            // The drive has the fewest open zones that a file system accepts.
            7 => {
                let drive = Drive { max_open: 4, max_active: 4, ..tiny };
                (drive, Style { tasks: 1, overlap: true })
            }
            8 => (Drive { max_open: 12, max_active: 12, ..tiny }, Style { tasks: 3, overlap: true }),
            _ => (tiny, Style::default()),
        };
        let block = drive.block_size as usize;
        let log = LogOptions {
            mode: if rng.chance(15) { IoMode::Write } else { IoMode::Append },
            window: pick(rng, &[1, 4, 32, 32, 32]),
            buffer: pick(rng, &[1, 1, 2, 2, 3, 8]) * block,
            barrier: pick(rng, &[0, 0, 2, 3, 5, 8, 16]) * block,
            ..LogOptions::default()
        };
        Shape { drive, log, style, buffered: None }
    }

    /// From a generator of its own, so that older seeds keep their workloads.
    fn draw_buffered(target: Target, seed: u64, workload: u64) -> Option<Duration> {
        let mut rng = Rng::at(seed, &[workload, 0xcac4]);
        let is_buffered = target == Target::Fs && rng.chance(60);
        let micros = pick(&mut rng, &[50, 300, 2000, 5_000_000]) as u64;
        is_buffered.then_some(Duration::from_micros(micros))
    }
}

fn pick(rng: &mut Rng, from: &[usize]) -> usize {
    from.get(rng.index(from.len())).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_buffered_and_not_and_for_long_and_not() {
        let shapes: Vec<Shape> = (0..100).map(|workload| Shape::of(Target::Fs, 1, workload, true)).collect();
        let long = Duration::from_secs(1);
        assert!(shapes.iter().filter(|shape| shape.buffered.is_none()).count() > 20);
        assert!(shapes.iter().filter(|shape| shape.buffered.is_some_and(|time| time < long)).count() > 20);
        assert!(shapes.iter().filter(|shape| shape.buffered.is_some_and(|time| time > long)).count() > 8);
    }

    #[test]
    fn logs_are_written_in_every_shape() {
        let shapes: Vec<Shape> =
            (0..200).map(|workload| Shape::of(Target::Log, 1, workload, workload % 4 != 3)).collect();
        let some = |test: &dyn Fn(&Shape) -> bool| shapes.iter().filter(|s| test(s)).count() > 4;
        assert!(some(&|s| s.log.mode == IoMode::Write) && some(&|s| s.log.mode == IoMode::Append));
        for window in [1, 4, 32] {
            assert!(some(&|s| s.log.window == window));
        }
        assert!(some(&|s| s.drive.max_open == 4) && some(&|s| !s.drive.volatile_cache));
        assert!(some(&|s| s.log.barrier == 0) && some(&|s| s.log.barrier == 2 * s.drive.block_size as usize));
        assert!(some(&|s| s.style.overlap && s.style.tasks == 3));
        let parts = |s: &Shape| s.log.buffer / s.drive.block_size as usize > s.drive.max_append as usize;
        assert!(some(&parts), "entries of several parts");
        assert!(some(&|s| s.drive.conventional == 3) && some(&|s| s.drive.conventional == 0));
        assert!(shapes.iter().all(|s| s.drive.reorders));
    }
}
