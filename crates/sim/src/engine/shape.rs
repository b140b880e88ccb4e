//! The database, WAL and threads of an engine's workload.

use std::time::Duration;

use crate::trace::{Drive, Trace};
use crate::{Rng, Target};

/// Number of concurrent writers of the database.
pub(super) const WRITERS: usize = 4;

/// Period of workloads: of this many in a row, those with an odd number run on modelled tables.
const WORKLOAD_PERIOD: u64 = 5;

/// The WAL of a workload's database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// RocksDB's own WAL: a leader writes the batches of a group.
    Group,
    /// A parallel WAL, with an append for each batch.
    Waltz,
    /// A parallel WAL that batches records.
    Auto,
    /// LevelDB with its own WAL, in place of RocksDB.
    LevelDb,
}

impl Mode {
    /// Whether a parallel WAL stands above the tables.
    pub(super) fn is_parallel(self) -> bool {
        matches!(self, Mode::Waltz | Mode::Auto)
    }
}

/// A workload of an engine: with the same four properties, the steps are the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineWorkload {
    /// [`Target::Engine`] or [`Target::LevelDb`].
    pub target: Target,
    pub seed: u64,
    pub workload: u64,
    pub volatile_cache: bool,
}

/// The database, WAL and threads of one workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub mode: Mode,
    /// Whether the tables are [modelled](super::model_tables), instead of RocksDB's.
    pub modelled: bool,
    /// The writer keeps the order of its batches and has several in flight from one thread, as the server does. Set only under
    /// a parallel WAL, and only without merges and single deletes, which the server does not write.
    pub ordered: bool,
    /// Number of threads that run the writers.
    pub threads: usize,
    pub drive: Drive,
    /// Whether merges and single deletes are among the writes.
    pub merges: bool,
    /// Counters are put before the writers begin, after the marks are turned on: a log replay that repeats a put undoes merges.
    pub put_counters: bool,
    /// Whether few writes are synced and flushes are many.
    pub lazy: bool,
    /// Whether some steps turn the marks of the parallel WAL on: unlogged writes and ingestion, on modelled tables.
    pub exact: bool,
    /// Bytes in the parallel log above which memtables are flushed.
    pub log_limit: u64,
    /// The workload ends with a close of the database; else the last cuts find the database open.
    pub closes: bool,
    /// Number of zones that the log writes at a time, where the drive's cache allows more than one.
    pub zones: usize,
    /// How long appended bytes of data files stay in memory, in a mount with a page cache; `None` without one.
    pub buffered: Option<Duration>,
}

impl Shape {
    pub(super) fn of(of: EngineWorkload) -> Shape {
        let drawn = Rng::at(of.seed, &[of.workload, 0x04de]).chance(50);
        let modelled = of.target == Target::Engine && of.workload % WORKLOAD_PERIOD % 2 == 1;
        Shape::with(of, drawn, modelled)
    }

    /// The shape of a recorded workload. Traces of older builds are neither ordered nor modelled.
    pub(super) fn of_trace(trace: &Trace) -> Shape {
        let Trace { target, seed, workload, .. } = *trace;
        let of = EngineWorkload { target, seed, workload, volatile_cache: trace.drive.volatile_cache };
        Shape::with(of, trace.ordered, trace.modelled)
    }

    /// The shape of the `n`th opening of a crash state: in any mode of the same engine, whatever the mode before the cut.
    pub(super) fn reopened(&self, seed: u64, n: u64) -> Shape {
        if self.mode == Mode::LevelDb {
            return *self;
        }
        let mut rng = Rng::at(seed, &[n, 0x09e4]);
        let mode = match rng.below(3) {
            0 if !self.modelled => Mode::Group,
            0 | 1 => Mode::Waltz,
            _ => Mode::Auto,
        };
        Shape { mode, ordered: mode.is_parallel() && rng.chance(50), ..*self }
    }

    fn with(of: EngineWorkload, ordered: bool, modelled: bool) -> Shape {
        let EngineWorkload { target, seed, workload, volatile_cache } = of;
        let mut rng = Rng::at(seed, &[workload, 0x5a9e]);
        let mode = match workload % 3 {
            _ if target == Target::LevelDb => Mode::LevelDb,
            0 => Mode::Waltz,
            1 if !modelled => Mode::Group,
            _ => Mode::Auto,
        };
        let tiny = Drive::tiny(volatile_cache);
        // A zone of this drive holds a few dozen records: each workload leaves several zones.
        let drive = match rng.below(3) {
            0 => Drive { zones: 160, zone_size: 16, zone_capacity: 14, ..tiny },
            _ => Drive { zones: 96, zone_size: 32, zone_capacity: 28, max_append: 16, ..tiny },
        };
        let drive = drive.with_conventional_zones(seed, workload);
        let lazy = rng.chance(40);
        let merges = rng.chance(if lazy { 25 } else { 60 }) && mode != Mode::LevelDb;
        let log_limit = if rng.chance(40) { 40 * 4096 } else { 1 << 30 };
        let put_counters = merges && rng.chance(50);
        let closes = rng.chance(50);
        // The number of zones is drawn from a generator of its own, so that older seeds keep their workloads.
        let zones = 1 + Rng::at(seed, &[workload, 0x20e5]).below(3) as usize;
        let mut cache = Rng::at(seed, &[workload, 0xcac4]);
        let is_buffered = cache.chance(50);
        let time = Duration::from_micros([100, 3000, 5_000_000].get(cache.index(3)).copied().unwrap_or(0));
        let buffered = is_buffered.then_some(time);
        let ordered = ordered && mode.is_parallel() && !merges;
        let threads = if ordered { 1 << Rng::at(seed, &[workload, 0x74ed]).below(3) } else { WRITERS };
        let exact = modelled && (merges || Rng::at(seed, &[workload, 0xe8ac]).chance(50));
        Shape {
            mode,
            modelled,
            ordered,
            threads,
            drive,
            merges,
            exact,
            put_counters,
            lazy,
            log_limit,
            closes,
            zones,
            buffered,
        }
    }

    /// Whether range deletes are among the writes.
    pub(super) fn deletes_ranges(&self) -> bool {
        self.mode != Mode::LevelDb
    }

    /// Whether half of the flushes are of one family. Where batches have marks, such a flush would leave the marks in memory.
    pub(super) fn flushes_past(&self) -> bool {
        !self.modelled && self.mode.is_parallel() && !self.merges
    }
}
