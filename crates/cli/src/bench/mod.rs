//! The commands `furrow bench`, which measure logs, arrays and the engine.

mod array;
mod cluster;
mod kv;
mod prio;
mod recovery;
pub mod result;
mod share;
mod turns;
mod wal;
mod ycsb;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::context::Context;

/// `furrow bench`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measure an array beside its drives, in virtual time: whole stripes, one write at a time, reads, tails, a rebuild.
    Array(array::ArrayArgs),
    /// Measure a group of five replicas on emulated drives with a modelled network, in virtual time: writes, reads, a lost primary.
    Cluster(cluster::ClusterArgs),
    /// Measure puts, gets and scans on RocksDB, with its own log or under the parallel log. Formats the drive.
    Kv(kv::KvArgs),
    /// Measure logs in ordinary files beside plain files with fdatasync, alone and beside bulk writers.
    Prio(prio::PrioArgs),
    /// Measure a database's recovery: the replay of its log, beside the same log on tmpfs.
    Recovery(recovery::RecoveryArgs),
    /// Measure a log beside bulk writes on one drive, in virtual time: without and with the drive's scheduler.
    Share(share::ShareArgs),
    /// Measure a replicated group whose servers write snapshots beside their logs, in virtual time: who decides when, with and without the drives' schedulers.
    Turns(turns::TurnsArgs),
    /// Measure a log, beside raw appends of the same size. Formats the drive.
    Wal(wal::WalArgs),
    /// Measure RocksDB on the drive with the workloads of the Yahoo! Cloud Serving Benchmark.
    Ycsb(ycsb::YcsbArgs),
}

/// Runs a verb of `furrow bench`.
pub fn run(context: &Context, args: BenchArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Array(args) => array::run(context, &args),
        Verb::Cluster(args) => cluster::run(context, &args),
        Verb::Kv(args) => kv::run(context, &args),
        Verb::Prio(args) => prio::run(context, &args),
        Verb::Recovery(args) => recovery::run(context, &args),
        Verb::Share(args) => share::run(context, &args),
        Verb::Turns(args) => turns::run(context, &args),
        Verb::Wal(args) => wal::run(context, &args),
        Verb::Ycsb(args) => ycsb::run(context, &args),
    }
}
