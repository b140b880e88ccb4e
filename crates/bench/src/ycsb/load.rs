//! The settings of a load of YCSB's workloads, and its outcome.

use std::time::Duration;

use fs::CacheMode;
use fs::wal::LogOptions;
use serde::Serialize;
use zoned::Bytes;

use super::engine::Engine;
use super::keys::Distribution;
use super::workload::Workload;
use crate::counted::Counts;
use crate::{Clock, Error, KindOutcome, Result};

/// Most threads of a YCSB load.
const MAX_THREADS: u32 = 1024;
/// Bytes of the longest value of a YCSB load.
const MAX_VALUE_BYTES: u64 = 64 << 20;

/// A load of YCSB's workloads.
#[derive(Clone, Debug)]
pub struct YcsbLoad {
    /// The URL of the drive, which the workload `load` formats.
    pub device: String,
    /// The database engine.
    pub engine: Engine,
    /// The clock of the run: real or dilated; `None` for the one of the drive's URL. The engines' threads cannot run on the
    /// virtual one.
    pub clock: Option<Clock>,
    /// Whether to format a drive that holds data.
    pub force: bool,
    /// The workloads to run, in this order.
    pub workloads: Vec<Workload>,
    /// Number of records that the workload `load` inserts, or has inserted.
    pub records: u64,
    /// Number of operations of each workload but `load`.
    pub operations: u64,
    /// Bytes of a value.
    pub value: Bytes,
    /// Number of threads that run a workload.
    pub threads: u32,
    /// How records are picked; `None` for each workload's default.
    pub distribution: Option<Distribution>,
    /// Operations a second to offer; `None` for as many as the threads can do one after the other. Latencies then
    /// count from when an operation was due.
    pub rate: Option<u64>,
    /// Whether each write is made durable before the next.
    pub sync: bool,
    /// Settings of the engine's log in the file system.
    pub log: LogOptions,
    /// Bytes of a memtable; `None` for 64 MiB of RocksDB, 4 MiB of LevelDB.
    pub write_buffer: Option<Bytes>,
    /// Bytes of the engine's block cache; `None` for 64 MiB of RocksDB, 8 MiB of LevelDB.
    pub block_cache: Option<Bytes>,
    /// Bytes of a table; `None` for a zone's capacity within 2 and 64 MiB of RocksDB, 2 MiB of LevelDB.
    pub table_size: Option<Bytes>,
    /// Share of the file system's capacity that is in use once all records are inserted: a file of zeros takes what the records, their
    /// keys included, do not. 0, the default: no such file. Only with the workload `load`.
    pub utilisation: f64,
    /// The file system's page cache; 0: none. Not with `memory`.
    pub cache: Bytes,
    /// Bytes of memtables, block cache and page cache together; `None` for no such bound.
    pub memory: Option<Bytes>,
    /// Which cache has the memory, and what the page cache does with pages that are written.
    pub cache_mode: Caching,
    /// Whether each workload opens the database and closes it.
    pub reopen: bool,
    /// The seed of keys and operations.
    pub seed: u64,
}

/// Which cache has the memory of a YCSB load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Caching {
    /// The file system's page cache, in which written pages stay.
    #[default]
    Buffered,
    /// The file system's page cache; writes go past it.
    Direct,
    /// No cache: there is no page cache, and the block cache has the size that the load gives.
    Off,
    /// The engine's block cache.
    Engine,
    /// The engine's block cache, into which RocksDB puts the blocks of memtables that it writes to tables.
    EnginePrepopulated,
}

impl Caching {
    /// Every value with its name in arguments.
    pub const NAMES: [(&str, Caching); 5] = [
        ("buffered", Caching::Buffered),
        ("direct", Caching::Direct),
        ("off", Caching::Off),
        ("engine", Caching::Engine),
        ("engine-prepopulated", Caching::EnginePrepopulated),
    ];

    /// The page cache's mode in the mount; `None` for a mount without a page cache.
    pub(super) fn mount_mode(self) -> Option<CacheMode> {
        match self {
            Caching::Buffered => Some(CacheMode::Buffered),
            Caching::Direct => Some(CacheMode::Direct),
            Caching::Off | Caching::Engine | Caching::EnginePrepopulated => None,
        }
    }

    fn is_of_engine(self) -> bool {
        matches!(self, Caching::Engine | Caching::EnginePrepopulated)
    }

    pub(super) fn prepopulates(self) -> bool {
        self == Caching::EnginePrepopulated
    }
}

/// The bytes that each user of memory of a YCSB load has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Bytes of all memtables that may be in memory at a time.
    #[serde(serialize_with = "bytes")]
    pub memtables: Bytes,
    /// Bytes of one memtable.
    #[serde(serialize_with = "bytes")]
    pub write_buffer: Bytes,
    /// Bytes of the engine's block cache.
    #[serde(serialize_with = "bytes")]
    pub block_cache: Bytes,
    /// Bytes of the file system's page cache.
    #[serde(serialize_with = "bytes")]
    pub page_cache: Bytes,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn bytes<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.0)
}

/// The outcome of one YCSB workload.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// The workload of this outcome.
    pub workload: Workload,
    /// How records were picked.
    pub distribution: Distribution,
    /// The time to open the database, the replay of its log included; `None` if it was open already. No other number includes it.
    pub open_seconds: Option<f64>,
    /// Seconds from the first operation to the end of the last one.
    pub seconds: f64,
    /// Number of operations done.
    pub operations: u64,
    /// The rate in operations a second.
    pub ops_per_s: f64,
    /// Number of records that were not found: 0 unless data was lost.
    pub missing: u64,
    /// Count and latencies of each kind of operation.
    pub kinds: Vec<KindOutcome>,
    /// Seconds from the end of the last operation until the compactions that the workload left had ended, the half second of quiet that shows it
    /// included.
    pub compaction_seconds: f64,
    /// The drive's operations during the workload and the compactions that it left.
    pub device_operations: Counts,
    /// Bytes that reclaim moved in the same time; a part of the written bytes.
    pub reclaimed_bytes: u64,
}

/// The outcome of a YCSB load.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbOutcome {
    /// The clock of the run.
    pub clock: Clock,
    /// The factor by which measured times were divided.
    pub dilation: u32,
    /// The bytes that each user of memory had.
    pub memory: Memory,
    /// The outcomes of the workloads, in the order in which they ran.
    pub phases: Vec<Phase>,
}

impl Default for YcsbLoad {
    fn default() -> YcsbLoad {
        YcsbLoad {
            device: String::from("emu:mem?profile=zn540"),
            engine: Engine::RocksDb,
            clock: None,
            force: false,
            workloads: vec![Workload::Load, Workload::A],
            records: 100_000,
            operations: 100_000,
            value: Bytes(1000),
            threads: 1,
            distribution: None,
            rate: None,
            sync: false,
            log: LogOptions::default(),
            write_buffer: None,
            block_cache: None,
            table_size: None,
            utilisation: 0.0,
            cache: Bytes::ZERO,
            memory: None,
            cache_mode: Caching::Buffered,
            reopen: false,
            seed: 1,
        }
    }
}

impl YcsbLoad {
    /// Checks that the load's settings make sense.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`] names the setting that does not.
    pub fn validate(&self) -> Result<()> {
        let log = &self.log;
        let problem = if self.workloads.is_empty() {
            String::from("no workload: load,a")
        } else if self.threads == 0 || self.threads > MAX_THREADS {
            format!("{} threads: from 1 to {MAX_THREADS}", self.threads)
        } else if self.records == 0 || self.operations == 0 {
            String::from("records and operations: one at least")
        } else if self.value.0 > MAX_VALUE_BYTES {
            format!("a value of {} bytes: up to {MAX_VALUE_BYTES}", self.value.0)
        } else if self.rate == Some(0) {
            String::from("a rate is above 0")
        } else if log.window == 0 || log.window > LogOptions::MAX_WINDOW {
            format!("a window of {}: from 1 to {}", log.window, LogOptions::MAX_WINDOW)
        } else if !(0.0..1.0).contains(&self.utilisation) {
            format!("a utilisation of {}: from 0 to below 1", self.utilisation)
        } else if self.utilisation > 0.0 && self.workloads.first() != Some(&Workload::Load) {
            String::from("a utilisation goes with a drive that load formats")
        } else if log.buffer == 0 {
            String::from("the log's buffer has at least one byte")
        } else if self.clock == Some(Clock::Virtual) {
            String::from("an engine's threads cannot run on the virtual clock: use real, or dilated=N")
        } else if self.memory.is_some() && self.cache > Bytes::ZERO {
            String::from("the page cache takes what is left of the memory: give one of the two")
        } else if self.cache > Bytes::ZERO && self.cache_mode.mount_mode().is_none() {
            String::from("a page cache goes with the modes buffered and direct alone")
        } else if self.memory.is_some() && self.cache_mode == Caching::Off {
            String::from("the mode off bounds no memory: leave the memory out")
        } else if self.memory.is_some() && self.block_cache.is_some() && self.cache_mode.is_of_engine() {
            String::from("the block cache takes what is left of the memory: give one of the two")
        } else if self.cache_mode.prepopulates() && self.engine == Engine::LevelDb {
            String::from("LevelDB puts no tables into its block cache: use the mode engine")
        } else {
            return Ok(());
        };
        Err(Error::settings(problem))
    }

    /// The bytes that each user of memory has.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`] where the memory does not suffice.
    pub fn shares(&self) -> Result<Memory> {
        let default = |rocksdb, leveldb| match self.engine {
            Engine::RocksDb => Bytes(rocksdb),
            Engine::LevelDb => Bytes(leveldb),
        };
        let write_buffer = self.write_buffer.unwrap_or_else(|| default(64 << 20, 4 << 20));
        let mut block_cache = self.block_cache.unwrap_or_else(|| default(64 << 20, 8 << 20));
        let memtables = Bytes(write_buffer.0.saturating_mul(self.engine.memtables()));
        let mut page_cache = if self.cache_mode.mount_mode().is_some() { self.cache } else { Bytes::ZERO };
        if let Some(memory) = self.memory {
            let without = |taken: u64| {
                let left = memory.0.checked_sub(taken).filter(|left| *left > 0).map(Bytes);
                left.ok_or_else(|| {
                    let (memory, taken) = (memory.0 >> 20, taken >> 20);
                    Error::settings(format!(
                        "a memory of {memory} MiB: memtables and block cache take {taken} MiB"
                    ))
                })
            };
            match self.cache_mode {
                Caching::Buffered | Caching::Direct => {
                    page_cache = without(memtables.0.saturating_add(block_cache.0))?;
                }
                Caching::Engine | Caching::EnginePrepopulated => block_cache = without(memtables.0)?,
                Caching::Off => {}
            }
        }
        Ok(Memory { memtables, write_buffer, block_cache, page_cache })
    }

    /// When operation `number` of a load with a rate is due, from the beginning of the workload.
    pub(super) fn due(&self, number: u64, dilation: u32) -> Option<Duration> {
        let rate = u128::from(self.rate?.max(1));
        let ns = u128::from(number) * 1_000_000_000 * u128::from(dilation.max(1)) / rate;
        Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}
