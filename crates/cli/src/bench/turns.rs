//! The command `furrow bench turns`.

use std::process::ExitCode;
use std::time::Duration;

use ::bench::turns::{self, Due, Policy, TurnsLine, TurnsLoad};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;
use units::Bytes;

use super::result::{failed, with_host};
use crate::context::Context;
use crate::{output, progress, size};

/// `furrow bench turns`
#[derive(Debug, Args)]
pub struct TurnsArgs {
    /// Bytes of a snapshot. The writes at each size are compared with those at the first one.
    #[arg(long, default_values = ["100MiB", "3GiB"], value_name = "SIZE", value_parser = size::parse)]
    snapshot: Vec<Bytes>,
    /// Who decides when a server writes its snapshot.
    #[arg(long, value_enum, default_values_t = [Who::None, Who::Random, Who::Patch, Who::Turns])]
    policy: Vec<Who>,
    /// Whether each drive has a scheduler before it.
    #[arg(long, value_enum, default_values_t = [Switch::Off, Switch::On])]
    scheduler: Vec<Switch>,
    /// The length of a server's log at which its snapshot is due.
    #[arg(long, value_enum, default_value_t = When::Entries)]
    due: When,
    /// The entries of --due entries, as ZooKeeper's snapCount.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    snap_count: u64,
    /// Servers.
    #[arg(long, default_value_t = 5, value_name = "N")]
    servers: u32,
    /// Clients, each of which writes its next entry when the one before was acknowledged.
    #[arg(long, default_value_t = 64, value_name = "N")]
    clients: u32,
    /// Bytes of an entry.
    #[arg(long, default_value = "1KiB", value_name = "SIZE", value_parser = size::parse)]
    entry: Bytes,
    /// Microseconds that the leader computes for each entry, one after the other. With 0 only the drives limit the writes.
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    leader_us: u64,
    /// Seconds of the drives' clocks that are measured.
    #[arg(long, default_value_t = 60, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Seed of the lengths of the servers' logs at the beginning, and of the random lengths at which `random` begins snapshots.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// The profile of the emulated drives.
    #[arg(long, default_value = "zn540", value_name = "PROFILE")]
    profile: String,
}

/// [`Policy`] as a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Who {
    /// Nobody writes snapshots.
    None,
    /// Each server by itself, at a random length of its log, as ZooKeeper's servers do.
    Random,
    /// The leader lets one more server write, once a second, as the patch ZOOKEEPER-3657 does.
    Patch,
    /// The leader grants turns (docs/adr/0033-turns-for-snapshots.md).
    Turns,
}

impl Who {
    fn policy(self) -> Policy {
        match self {
            Who::None => Policy::None,
            Who::Random => Policy::Random,
            Who::Patch => Policy::Patch,
            Who::Turns => Policy::Turns,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    /// Snapshots go to the drive at once.
    Off,
    /// At the rate that the drive's scheduler finds beside the log.
    On,
}

/// [`Due`] as a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum When {
    /// After --snap-count entries.
    Entries,
    /// When the log is as long as the snapshot.
    Snapshot,
}

/// A line, and its writes by those at the first size of snapshots.
#[derive(Serialize)]
struct Compared {
    #[serde(flatten)]
    line: TurnsLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_first_size: Option<f64>,
}

/// Measures a replicated group with snapshots, in virtual time.
pub fn run(context: &Context, args: &TurnsArgs) -> Result<ExitCode> {
    let loads = loads(args);
    for load in &loads {
        load.check().map_err(failed)?;
    }
    let bar = progress::spinner();
    let mut lines: Vec<Compared> = Vec::new();
    for load in &loads {
        bar.set_message(format!("{}, {}", name(load.policy), size::show(load.snapshot)));
        let line = turns::measure(load).map_err(failed)?;
        let is_same_but_size =
            |other: &&Compared| other.line.policy == line.policy && other.line.scheduler == line.scheduler;
        let first = lines.iter().find(is_same_but_size).map(|first| first.line.writes_per_s);
        let by_first_size = first.map(|first| line.writes_per_s / first);
        lines.push(Compared { line, by_first_size });
    }
    bar.finish_and_clear();
    if context.json {
        output::json(&with_host(&json!({ "lines": lines }))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let header = [
        "snapshots by",
        "scheduler",
        "snapshot",
        "writes/s",
        "by first",
        "mean us",
        "p99",
        "p99.9",
        "max",
        "bulk MiB/s",
        "snapshots",
        "at once",
        "forced",
        "longest log",
    ];
    let numbers = header.get(2..).unwrap_or_default();
    output::table(&header, numbers, lines.iter().map(cells).collect())?;
    Ok(ExitCode::SUCCESS)
}

/// The loads to measure. Without snapshots, neither their size nor the scheduler matters: one line has it.
fn loads(args: &TurnsArgs) -> Vec<TurnsLoad> {
    let mut loads = Vec::new();
    for policy in args.policy.iter().map(|who| who.policy()) {
        let many = if policy == Policy::None { 1 } else { usize::MAX };
        for scheduler in args.scheduler.iter().take(many) {
            for snapshot in args.snapshot.iter().take(many) {
                loads.push(TurnsLoad {
                    profile: args.profile.clone(),
                    servers: args.servers,
                    clients: args.clients,
                    entry: args.entry,
                    leader_time: Duration::from_micros(args.leader_us),
                    snapshot: *snapshot,
                    due: match args.due {
                        When::Entries => Due::Entries(args.snap_count),
                        When::Snapshot => Due::Snapshot,
                    },
                    policy,
                    scheduler: matches!(scheduler, Switch::On),
                    time: Duration::from_secs(args.seconds),
                    seed: args.seed,
                    ..TurnsLoad::default()
                });
            }
        }
    }
    loads
}

fn name(policy: Policy) -> &'static str {
    match policy {
        Policy::None => "none",
        Policy::Random => "random",
        Policy::Patch => "patch",
        Policy::Turns => "turns",
    }
}

fn cells(compared: &Compared) -> Vec<String> {
    let (line, latency) = (&compared.line, &compared.line.write_latency);
    let has_snapshots = line.policy != Policy::None;
    let of_snapshots = |text: String| if has_snapshots { text } else { "-".to_owned() };
    let us = |us: f64| format!("{us:.0}");
    vec![
        name(line.policy).to_owned(),
        of_snapshots(if line.scheduler { "on" } else { "off" }.to_owned()),
        of_snapshots(size::show(Bytes(line.snapshot_bytes))),
        format!("{:.0}", line.writes_per_s),
        compared.by_first_size.map_or_else(|| "-".to_owned(), |by| format!("{by:.2}")),
        us(latency.mean),
        us(latency.p99),
        us(latency.p99_9),
        us(latency.max),
        format!("{:.0}", line.bulk_bytes_per_s / f64::from(1 << 20)),
        line.snapshots.to_string(),
        line.most_at_once.to_string(),
        line.forced.to_string(),
        size::show(Bytes(line.longest_log_bytes)),
    ]
}
