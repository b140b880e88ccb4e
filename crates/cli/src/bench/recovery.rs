//! The command `furrow bench recovery`.

use std::path::PathBuf;
use std::process::ExitCode;

use ::bench::recovery::{self, RecoveryLoad, RecoveryOutcome};
use anyhow::Result;
use clap::Args;
use units::Bytes;

use super::result::{failed, with_host};
use crate::args::DeviceArg;
use crate::context::Context;
use crate::{output, size};

/// `furrow bench recovery`
#[derive(Debug, Args)]
pub struct RecoveryArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// Sizes of the log.
    #[arg(long, value_delimiter = ',', default_value = "64MiB,128MiB,256MiB,512MiB,1GiB", value_name = "SIZE,...", value_parser = size::parse)]
    sizes: Vec<Bytes>,
    /// Bytes of a pair, its key included.
    #[arg(long, default_value = "4KiB", value_name = "SIZE", value_parser = size::parse)]
    pair: Bytes,
    /// The log's buffer, its longest entry.
    #[arg(long, default_value = "4KiB", value_name = "SIZE", value_parser = size::parse)]
    buffer: Bytes,
    /// Number of replays of each log; the fastest one counts.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// A directory on tmpfs for the same log in a host file.
    #[arg(long, default_value = "/dev/shm", value_name = "DIR")]
    scratch: PathBuf,
}

/// Measures the recovery of logs and prints the times.
pub fn run(context: &Context, args: &RecoveryArgs) -> Result<ExitCode> {
    let load = RecoveryLoad {
        device: args.device.device.clone(),
        sizes: args.sizes.clone(),
        pair: args.pair,
        buffer: args.buffer,
        runs: args.runs,
        scratch: args.scratch.clone(),
        ..RecoveryLoad::default()
    };
    let outcome = recovery::run(&load).map_err(failed)?;
    if context.json {
        output::json(&with_host(&outcome)?)?;
    } else {
        print_outcome(&outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_outcome(outcome: &RecoveryOutcome) -> Result<()> {
    output::line(format!("{}: reads {:.0} MiB/s", outcome.device, outcome.read_mib_per_s))?;
    let header =
        ["log", "replay s", "tmpfs s", "drive s", "ratio", "wait", "copy", "memtable", "killed", "memory"];
    let seconds = |s: f64| format!("{s:.3}");
    let rows = outcome
        .logs
        .iter()
        .map(|log| {
            vec![
                size::show(Bytes(log.bytes)),
                seconds(log.replay_s),
                seconds(log.tmpfs_replay_s),
                seconds(log.drive_s),
                seconds(log.ratio),
                seconds(log.breakdown.wait_s),
                seconds(log.breakdown.copy_s),
                seconds(log.breakdown.memtable_s),
                seconds(log.killed.ratio),
                size::show(Bytes(log.peak)),
            ]
        })
        .collect();
    output::table(&header, &header, rows)?;
    output::line(
        "ratio: replay by the slower of tmpfs and drive; killed: the same of a log that was not closed, its mount \
         included; wait, copy and memtable: parts of the replay",
    )
}
