//! The loads of a run of `bench share`, and the rates and latencies that the run measured.

use serde::Serialize;

use crate::Latencies;

/// The loads of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) log: bool,
    pub(super) bulk: bool,
}

/// The rates and latencies of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Latencies of the log's operations.
    pub log_latency: Latencies,
    /// The log's bytes a second.
    pub log_rate: f64,
    /// The bulk's bytes a second.
    pub bulk_rate: f64,
}
