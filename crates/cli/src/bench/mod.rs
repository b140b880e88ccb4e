//! `furrow bench`: measurements of logs and of the engine.

mod array;
mod kv;
mod recovery;
mod wal;
mod ycsb;

use std::process::ExitCode;

use ::bench::{Error, Host, Latencies};
use ::fs::wal::IoMode;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};

use crate::context::Context;
use crate::exit::Failure;

/// `furrow bench`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure an array beside its drives, in virtual time: whole stripes, one write at a time against what is possible,
    /// reads, tails, a rebuild.
    Array(array::ArrayArgs),
    /// Measure puts, gets and scans on RocksDB, with its own log or under the parallel log. Formats the drive.
    Kv(kv::KvArgs),
    /// Measure how long a database takes to come back: its log read and replayed, beside the same in memory.
    Recovery(recovery::RecoveryArgs),
    /// Measure a log, beside raw appends of the same size. Formats the drive.
    Wal(wal::WalArgs),
    /// Measure RocksDB on the drive with the workloads of the Yahoo! Cloud Serving Benchmark.
    Ycsb(ycsb::YcsbArgs),
}

/// Runs the verb.
pub fn run(context: &Context, args: BenchArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Array(args) => array::run(context, &args),
        Verb::Kv(args) => kv::run(context, &args),
        Verb::Recovery(args) => recovery::run(context, &args),
        Verb::Wal(args) => wal::run(context, &args),
        Verb::Ycsb(args) => ycsb::run(context, &args),
    }
}

/// Settings that make no sense are a wrong command line, a drive that holds data takes consent; the rest has codes
/// of its own.
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
enum Io {
    Write,
    Append,
}

impl Io {
    fn mode(self) -> IoMode {
        match self {
            Io::Write => IoMode::Write,
            Io::Append => IoMode::Append,
        }
    }
}

/// A result with the machine that it is of.
fn with_host(result: &impl Serialize) -> Result<Value> {
    let mut value = serde_json::to_value(result)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("host".to_owned(), json!(Host::here()));
    }
    Ok(value)
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
