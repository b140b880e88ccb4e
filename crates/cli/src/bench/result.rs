//! Parts that the benchmark commands share: the `--io` flag, errors, the host in JSON, columns of latencies.

use ::bench::{Error, Host, Latencies};
use ::fs::wal::{IoMode, LogZones};
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::Failure;

/// A benchmark's error with its exit code: wrong settings are a usage error, and a drive that holds data takes `--force`.
pub fn failed(error: Error) -> anyhow::Error {
    match error {
        Error::Settings(why) => Failure::usage(why),
        Error::Fs(error) if error.kind() == ::fs::ErrorKind::Exists => {
            Failure::refused(format!("{error} (--force)"))
        }
        error => error.into(),
    }
}

/// [`IoMode`] as a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Io {
    /// One write at a time, at the zone's pointer.
    Write,
    /// Zone appends, many in flight.
    Append,
}

impl Io {
    /// The file system's type for the flag's value.
    pub fn mode(self) -> IoMode {
        match self {
            Io::Write => IoMode::Write,
            Io::Append => IoMode::Append,
        }
    }
}

/// [`LogZones`] as a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Zones {
    /// In conventional zones where the drive has such zones for logs.
    Auto,
    /// In conventional zones while these have space; a drive without is refused.
    Conventional,
    /// In sequential zones.
    Sequential,
}

impl Zones {
    /// The file system's type for the flag's value.
    pub fn of_logs(self) -> LogZones {
        match self {
            Zones::Auto => LogZones::Auto,
            Zones::Conventional => LogZones::Conventional,
            Zones::Sequential => LogZones::Sequential,
        }
    }
}

/// A benchmark's result as JSON, with the machine that measured it.
pub fn with_host(result: &impl Serialize) -> Result<Value> {
    let mut value = serde_json::to_value(result)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("host".to_owned(), json!(Host::here()));
    }
    Ok(value)
}

/// Latencies as columns of a table: names and cells.
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
