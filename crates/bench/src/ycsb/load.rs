//! A load of YCSB's workloads, and its outcome.

use std::time::Duration;

use fs::wal::LogOptions;
use serde::Serialize;
use zoned::Bytes;

use super::keys::Distribution;
use super::workload::Workload;
use crate::counted::Counts;
use crate::{Clock, Error, OfKind, Result};

/// The most threads.
const MOST_THREADS: u32 = 1024;
/// The longest value.
const LONGEST_VALUE: u64 = 64 << 20;

/// A load.
#[derive(Clone, Debug)]
pub struct YcsbLoad {
    /// The URL of the drive, which the workload `load` formats.
    pub device: String,
    /// The clock: real or dilated; `None` for the URL's. RocksDB's threads cannot run on the virtual one.
    pub clock: Option<Clock>,
    /// Format a drive that holds data.
    pub force: bool,
    /// The workloads, in the order of their runs.
    pub workloads: Vec<Workload>,
    /// Records that `load` inserts, or has inserted.
    pub records: u64,
    /// Operations of each other workload.
    pub operations: u64,
    /// Bytes of a value.
    pub value: Bytes,
    /// Threads.
    pub threads: u32,
    /// How records are picked; `None` for each workload's default.
    pub distribution: Option<Distribution>,
    /// Operations a second to offer; `None` for as many as the threads can do one after the other. Latencies then
    /// count from when an operation was due.
    pub rate: Option<u64>,
    /// Make each write durable before the next.
    pub sync: bool,
    /// How RocksDB's log is written.
    pub log: LogOptions,
    /// RocksDB's memtable.
    pub write_buffer: Bytes,
    /// RocksDB's block cache.
    pub block_cache: Bytes,
    /// The seed of keys and operations.
    pub seed: u64,
}

/// The outcome of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// The workload.
    pub workload: Workload,
    /// How records were picked.
    pub distribution: Distribution,
    /// The time to open the database, the replay of its log included. No other number includes it.
    pub open_seconds: f64,
    /// From the first operation to the end of the last one.
    pub seconds: f64,
    /// Operations done.
    pub operations: u64,
    /// Operations a second.
    pub ops_per_s: f64,
    /// Records that were not found: 0 unless data was lost.
    pub missing: u64,
    /// The latencies of each kind of operation.
    pub kinds: Vec<OfKind>,
    /// The drive's operations meanwhile, those of background threads included.
    pub device_operations: Counts,
}

/// The outcome of a load.
#[derive(Clone, Debug, Serialize)]
pub struct YcsbOutcome {
    /// The clock of the run.
    pub clock: Clock,
    /// The factor that times were divided by.
    pub dilation: u32,
    /// The workloads, in the order in which they ran.
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
            seed: 1,
        }
    }
}

impl YcsbLoad {
    /// Whether the settings make sense.
    ///
    /// # Errors
    /// [`Error::Settings`] names the one that does not.
    pub fn validate(&self) -> Result<()> {
        let log = &self.log;
        let problem = if self.workloads.is_empty() {
            String::from("no workload: load,a")
        } else if self.threads == 0 || self.threads > MOST_THREADS {
            format!("{} threads: from 1 to {MOST_THREADS}", self.threads)
        } else if self.records == 0 || self.operations == 0 {
            String::from("records and operations: one at least")
        } else if self.value.0 > LONGEST_VALUE {
            format!("a value of {} bytes: up to {LONGEST_VALUE}", self.value.0)
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

    /// When operation `number` is due, from the beginning.
    pub(super) fn due(&self, number: u64, dilation: u32) -> Option<Duration> {
        let rate = u128::from(self.rate?.max(1));
        let ns = u128::from(number) * 1_000_000_000 * u128::from(dilation.max(1)) / rate;
        Some(Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }
}
