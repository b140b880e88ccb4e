//! The outcome of a load on a log.

use serde::Serialize;

use super::limit::Limit;
use super::load::WalLoad;
use crate::Latencies;
use crate::counted::Counts;

/// The outcome of a load.
#[derive(Clone, Debug, Serialize)]
pub struct WalOutcome {
    /// The load, with the clock that it ran on.
    #[serde(flatten)]
    pub load: WalLoad,
    /// The factor that times were divided by.
    pub dilation: u32,
    /// Records appended.
    pub records: u64,
    /// The whole run.
    pub seconds: f64,
    /// Records a second.
    pub ops_per_s: f64,
    /// MiB of records a second.
    pub payload_mib_per_s: f64,
    /// The time until a record is appended and, if it is synced, durable.
    pub latency_us: Latencies,
    /// The largest ratio of a record's latency to the median of the records that began around it: the effect of a zone
    /// replacement, or of any other rare event, on a record. `None` for more than 4 Mi records.
    pub worst_over_neighbours: Option<f64>,
    /// Appends and writes of the log.
    pub appends: u64,
    /// Bytes written to the drive, metadata included, for each byte of a record.
    pub write_amplification: f64,
    /// All operations of the drive.
    pub device_operations: Counts,
    /// Logs that were written.
    pub logs: u64,
    /// The rate of raw appends.
    pub device_limit: Limit,
    /// The share of the limit that was reached: of its operations if each record is synced, else of its bytes without
    /// the headers of entries.
    pub of_limit: f64,
    /// Bytes of records over the limit's plain bytes.
    pub of_raw: f64,
    /// If each writer syncs each of its records: the share of the rate that as many writers reach with the latency of an
    /// append alone, or of the limit if that is less. `None` if a record does not fit into one entry.
    pub of_writers: Option<f64>,
}
