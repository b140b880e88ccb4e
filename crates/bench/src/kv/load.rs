//! A key-value load on RocksDB, and its outcome.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fs::wal::{IoMode, LogOptions};
use rocks::DbOptions;
use serde::{Serialize, Serializer};
use zoned::Bytes;

use super::background::Background;
use super::groups::GroupOutcome;
use super::mix::Mix;
use super::slow::SlowWrite;
use crate::counted::Counts;
use crate::wal::{bytes, io_mode, optional_bytes};
use crate::ycsb::Distribution;
use crate::{Clock, Error, KindOutcome, Latencies, Result};

/// Most threads of a key-value load.
const MAX_THREADS: u32 = 1024;
/// Bytes of the longest value that a load may have.
const MAX_VALUE_BYTES: u64 = 64 << 20;
/// Least bytes of a table.
const MIN_TABLE_BYTES: u64 = 1 << 20;
/// Most of the longest writes that are kept.
const MAX_SLOW_WRITES: usize = 10_000;
/// The shortest interval over which writes may be summed up.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

/// The database's write-ahead log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogMode {
    /// RocksDB's own log with group commit, written at the zone's pointer, and without zones opened ahead: a put that needs a
    /// zone opens one, after pending finishes and resets.
    Base,
    /// RocksDB's own log with group commit, and zones opened ahead.
    Group,
    /// The parallel log, each record an append of its own.
    Waltz,
    /// The parallel log, which joins records when the drive has no parallelism to spare.
    Auto,
}

impl LogMode {
    /// All modes of the write-ahead log.
    pub const ALL: [LogMode; 4] = [LogMode::Base, LogMode::Group, LogMode::Waltz, LogMode::Auto];

    pub(crate) fn is_parallel(self) -> bool {
        matches!(self, LogMode::Waltz | LogMode::Auto)
    }
}

impl fmt::Display for LogMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogMode::Base => "base",
            LogMode::Group => "group",
            LogMode::Waltz => "waltz",
            LogMode::Auto => "auto",
        })
    }
}

impl FromStr for LogMode {
    type Err = String;

    fn from_str(text: &str) -> Result<LogMode, String> {
        let found = LogMode::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("'{text}' is no log: base, group, waltz or auto"))
    }
}

impl Serialize for LogMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A key-value load on RocksDB.
#[derive(Clone, Debug, Serialize)]
pub struct KvLoad {
    /// The URL of the drive, which is formatted.
    pub device: String,
    /// The clock of the run: real or dilated; `None` for the one of the drive's URL.
    pub clock: Option<Clock>,
    /// Whether to format a drive that holds data.
    #[serde(skip)]
    pub force: bool,
    /// The write-ahead log to use.
    pub wal: LogMode,
    /// How entries of RocksDB's own log reach the drive. The parallel log always appends.
    #[serde(serialize_with = "io_mode")]
    pub io: IoMode,
    /// Number of threads that run the load.
    pub threads: u32,
    /// Bytes of a value; `None` for MixGraph's sizes.
    #[serde(serialize_with = "optional_bytes")]
    pub value: Option<Bytes>,
    /// The shares of puts, gets and scans.
    pub mix: Mix,
    /// How the keys of records are picked; MixGraph has a distribution of its own.
    pub distribution: Distribution,
    /// Number of records with which the database is filled.
    pub records: u64,
    /// Number of operations of the load.
    pub operations: u64,
    /// Whether each write is made durable before the next.
    pub sync: bool,
    /// Bytes of RocksDB's memtable.
    #[serde(serialize_with = "bytes")]
    pub write_buffer: Bytes,
    /// Number of memtables, the active one included, before writers wait.
    pub write_buffers: i32,
    /// Number of threads for flushes and compactions.
    pub background_jobs: i32,
    /// Bytes of RocksDB's block cache.
    #[serde(serialize_with = "bytes")]
    pub block_cache: Bytes,
    /// The seed of keys, values and operations.
    pub seed: u64,
    /// Number of the longest writes to list, with the parts of their times. Listing reads the clock more often in each write.
    pub slowest: usize,
    /// The length of intervals, in the drive's time, whose writes are summed up separately.
    #[serde(skip)]
    pub interval: Option<Duration>,
    /// Whether all tables are compacted, once alone before the load and once beside it. The load goes on until that has ended.
    pub compacts: bool,
}

/// The times of a compaction of all tables, in s of the drive's time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compaction {
    /// Before the load.
    pub alone: f64,
    /// Beside the load: the same tables, and one that the filling left.
    pub beside: f64,
}

/// The writes of a load in one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Interval {
    /// The interval's end, in s of the drive's time.
    pub seconds: f64,
    /// Number of writes that ended in the interval.
    pub count: u64,
    /// Latencies of the interval's writes.
    pub latency_us: Latencies,
}

/// The outcome of a key-value load.
#[derive(Clone, Debug, Serialize)]
pub struct KvOutcome {
    /// The load, with the clock that it ran on.
    #[serde(flatten)]
    pub load: KvLoad,
    /// The factor by which measured times were divided.
    pub dilation: u32,
    /// Seconds from the first operation to the end of the last one.
    pub seconds: f64,
    /// The rate in operations a second.
    pub ops_per_s: f64,
    /// Latencies of all operations.
    pub latency_us: Latencies,
    /// Count and latencies of each kind of operation that occurred.
    pub kinds: Vec<KindOutcome>,
    /// Number of reads whose key was not found: 0 unless data was lost.
    pub missing: u64,
    /// RocksDB's flushes, compactions and stalls during the load.
    pub background: Background,
    /// The compaction of all tables, if the load has one ([`KvLoad::compacts`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    /// The drive's operations during the load, those of background threads included.
    pub device_operations: Counts,
    /// Bytes written to the drive for each byte of keys and values put.
    pub write_amplification: f64,
    /// The longest writes, the longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<SlowWrite>,
    /// The mean write and its parts, if slow writes are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_write: Option<SlowWrite>,
    /// The writes by the size of their group, if slow writes are listed and the log is RocksDB's own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupOutcome>,
    /// The writes, interval by interval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

impl Default for KvLoad {
    fn default() -> KvLoad {
        KvLoad {
            device: String::from("emu:mem?profile=zn540"),
            clock: None,
            force: false,
            wal: LogMode::Waltz,
            io: IoMode::Append,
            threads: 4,
            value: Some(Bytes(4096)),
            mix: Mix::WRITES,
            distribution: Distribution::Uniform,
            records: 20_000,
            operations: 20_000,
            sync: true,
            write_buffer: Bytes(16 << 20),
            write_buffers: 4,
            background_jobs: 4,
            block_cache: Bytes(8 << 20),
            seed: 1,
            slowest: 0,
            interval: None,
            compacts: false,
        }
    }
}

impl KvLoad {
    /// Checks that the load's settings make sense.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`] names the setting that does not.
    pub fn validate(&self) -> Result<()> {
        let problem = if self.threads == 0 || self.threads > MAX_THREADS {
            format!("{} threads: from 1 to {MAX_THREADS}", self.threads)
        } else if self.records == 0 || self.operations == 0 {
            String::from("records and operations: one at least")
        } else if self.value.is_some_and(|value| value.0 > MAX_VALUE_BYTES) {
            format!("a value of {} bytes: up to {MAX_VALUE_BYTES}", self.value.unwrap_or_default().0)
        } else if self.distribution == Distribution::Latest {
            String::from("no record is inserted, so none is the latest: use uniform or zipfian")
        } else if self.slowest > MAX_SLOW_WRITES {
            format!("the {} longest writes: up to {MAX_SLOW_WRITES}", self.slowest)
        } else if self.interval.is_some_and(|interval| interval < SHORTEST_INTERVAL) {
            String::from("an interval is 1 ms at least")
        } else if self.wal == LogMode::Base && self.io == IoMode::Append {
            String::from("base writes at the zone's pointer: leave --io away, or say --wal group")
        } else if self.wal.is_parallel() && self.io == IoMode::Write {
            format!("{} appends: leave --io away, or say --wal group", self.wal)
        } else if self.clock == Some(Clock::Virtual) {
            String::from("RocksDB's threads cannot run on the virtual clock: use real, or dilated=N")
        } else {
            return self.database().validate().map_err(|e| Error::settings(e.to_string()));
        };
        Err(Error::settings(problem))
    }

    pub(super) fn database(&self) -> DbOptions {
        DbOptions {
            write_buffer: usize::try_from(self.write_buffer.0).unwrap_or(usize::MAX),
            write_buffers: self.write_buffers,
            background_jobs: self.background_jobs,
            block_cache: usize::try_from(self.block_cache.0).unwrap_or(usize::MAX),
            // Tables are as large as a memtable, as in RocksDB's own settings: a small memtable then has small compactions.
            table_size: Some(self.write_buffer.0.max(MIN_TABLE_BYTES)),
            ..DbOptions::default()
        }
    }

    pub(super) fn log_options(&self) -> LogOptions {
        LogOptions { mode: self.io, ..LogOptions::default() }
    }
}
