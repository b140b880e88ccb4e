//! The settings of a load of YCSB's workloads, and its outcome.

use std::time::Duration;

use fs::CacheMode;
use fs::wal::LogOptions;
use serde::Serialize;
use zoned::Bytes;

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
    /// The clock of the run: real or dilated; `None` for the one of the drive's URL. RocksDB's threads cannot run on the
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
    /// Settings of RocksDB's log in the file system.
    pub log: LogOptions,
    /// Bytes of RocksDB's memtable.
    pub write_buffer: Bytes,
    /// Bytes of RocksDB's block cache.
    pub block_cache: Bytes,
    /// The file system's page cache; 0: none.
    pub cache: Bytes,
    /// What the page cache does with pages that are written.
    pub cache_mode: CacheMode,
    /// The seed of keys and operations.
    pub seed: u64,
}

/// The outcome of one YCSB workload.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// The workload of this outcome.
    pub workload: Workload,
    /// How records were picked.
    pub distribution: Distribution,
    /// The time to open the database, the replay of its log included. No other number includes it.
    pub open_seconds: f64,
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
    /// The drive's operations during the workload, those of background threads included.
    pub device_operations: Counts,
}

/// The outcome of a YCSB load.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbOutcome {
    /// The clock of the run.
    pub clock: Clock,
    /// The factor by which measured times were divided.
    pub dilation: u32,
    /// The outcomes of the workloads, in the order in which they ran.
    pub phases: Vec<Phase>,
}

impl Default for YcsbLoad {
    fn default() -> YcsbLoad {
        YcsbLoad {
            device: String::from("emu:mem?profile=zn540"),
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
            write_buffer: Bytes(64 << 20),
            block_cache: Bytes(64 << 20),
            cache: Bytes::ZERO,
            cache_mode: CacheMode::Buffered,
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
        } else if log.buffer == 0 {
            String::from("the log's buffer has at least one byte")
        } else if self.clock == Some(Clock::Virtual) {
            String::from("RocksDB's threads cannot run on the virtual clock: use real, or dilated=N")
        } else {
            return Ok(());
        };
        Err(Error::settings(problem))
    }

    /// When operation `number` of a load with a rate is due, from the beginning of the workload.
    pub(super) fn due(&self, number: u64, dilation: u32) -> Option<Duration> {
        let rate = u128::from(self.rate?.max(1));
        let ns = u128::from(number) * 1_000_000_000 * u128::from(dilation.max(1)) / rate;
        Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}
