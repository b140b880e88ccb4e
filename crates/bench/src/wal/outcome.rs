//! The outcome of a load on a log.

use serde::Serialize;

use super::limit::Limit;
use super::load::WalLoad;
use crate::Latencies;
use crate::counted::Counts;

/// The outcome of a load on a log.
#[derive(Clone, Debug, Serialize)]
pub struct WalOutcome {
    /// The load, with the clock that it ran on.
    #[serde(flatten)]
    pub load: WalLoad,
    /// The factor by which measured times were divided.
    pub dilation: u32,
    /// Number of records appended.
    pub records: u64,
    /// Seconds that the whole run took.
    pub seconds: f64,
    /// The rate in records a second.
    pub ops_per_s: f64,
    /// The throughput in MiB of records a second.
    pub payload_mib_per_s: f64,
    /// The time until a record is appended and, if it is synced, durable.
    pub latency_us: Latencies,
    /// The largest ratio of a record's latency to the median of the records that began around it: the effect of a zone
    /// replacement, or of any other rare event, on a record. `None` for more than 4 Mi records.
    pub worst_over_neighbours: Option<f64>,
    /// Number of the log's appends and writes.
    pub appends: u64,
    /// Bytes written to the drive, metadata included, for each byte of a record.
    pub write_amplification: f64,
    /// Bytes of the drive that the closed log takes, for each byte of a record. `None` where several logs were written.
    pub space_amplification: Option<f64>,
    /// The counts of all operations of the drive.
    pub device_operations: Counts,
    /// Number of logs that were written.
    pub logs: u64,
    /// The rate of raw appends to the drive.
    pub device_limit: Limit,
    /// The share of the raw appends' rate that was reached: in operations if each record is synced, else in bytes without the
    /// headers of entries.
    pub of_limit: f64,
    /// The records' bytes a second over those of raw appends, headers included.
    pub of_raw: f64,
    /// If each writer syncs each of its records: the share of the rate that as many writers reach with the latency of an
    /// append alone, or of the limit if that is less. `None` if a record does not fit into one entry.
    pub of_writers: Option<f64>,
}
