//! What the measurements have in common.

use ::bench::{Error, Latencies};

use crate::exit::Failure;

/// Settings that make no sense are a wrong command line; what the drive says has its own code.
pub fn failed(error: Error) -> anyhow::Error {
    match error {
        Error::Settings(why) => Failure::usage(why),
        error => error.into(),
    }
}

/// Latencies as columns of a table.
pub fn latency_cells(latencies: &Latencies) -> (Vec<&'static str>, Vec<String>) {
    let columns = [
        ("mean us", latencies.mean),
        ("p50", latencies.p50),
        ("p99", latencies.p99),
        ("p99.9", latencies.p99_9),
        ("max", latencies.max),
    ];
    columns.into_iter().map(|(name, us)| (name, format!("{us:.1}"))).unzip()
}
