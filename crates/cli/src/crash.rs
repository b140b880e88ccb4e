//! The command `furrow crash`: the crash explorer.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use sim::{CrashOptions, During, Report, StateId, Target};

use crate::context::Context;
use crate::exit::Code;
use crate::output;

/// The images of each target, where `--states` is not given.
const DEFAULT_STATES: u64 = 2000;
/// The simulated groups, where `--runs` is not given.
const DEFAULT_RUNS: u64 = 1000;

/// `furrow crash`
#[derive(Debug, Args)]
pub struct CrashArgs {
    /// The layer to explore: fs, log, engine, array, waltz, leveldb, stage, prio, groups or tables [default: one after the other], or turns, or cluster: simulated groups of nodes
    #[arg(long)]
    target: Option<Explored>,
    /// Run fs, log, engine and leveldb on one drive, or on an array of which one drive may fail.
    #[arg(long, value_enum, default_value_t = On::Drive)]
    on: On,
    /// The seed of workloads and samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Distinct images to check of each target: at least 1 [default: 2000]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    states: Option<u64>,
    /// Explore this recorded trace; record to the file if it does not exist.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Check this state alone, named as in a failure's message.
    #[arg(long, value_name = "ID")]
    state: Option<StateId>,
    /// Give every drive a volatile cache, or none [default: three of four have one]
    #[arg(long, value_name = "BOOL")]
    volatile_cache: Option<bool>,
    /// Cut an array's power only during a rebuild, restore (to spare room), move, reclaim, appends or reset.
    #[arg(long, value_name = "WHAT")]
    during: Option<During>,
    /// End at the first failure.
    #[arg(long)]
    first_failure: bool,
    /// Threads that check states [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Targets turns and cluster: the number of simulated groups [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// Targets turns and cluster: the number of the first simulated group [default: 0]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
}

/// The argument of `--target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Explored {
    /// Crash states of a layer.
    States(Target),
    /// Groups of nodes whose snapshots take turns.
    Turns,
    /// Groups of whole nodes: replicas, logs on drives, tables.
    Cluster,
}

impl FromStr for Explored {
    type Err = String;

    fn from_str(text: &str) -> Result<Explored, String> {
        match text {
            "turns" => Ok(Explored::Turns),
            "cluster" => Ok(Explored::Cluster),
            _ => {
                let names = |error: sim::Error| format!("{error}; or turns, cluster");
                text.parse().map(Explored::States).map_err(names)
            }
        }
    }
}

/// The device below a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    Drive,
    Array,
}

/// Explores crash states: exit code 1 where a state failed.
pub fn run(context: &Context, args: CrashArgs) -> Result<ExitCode> {
    match args.target {
        Some(Explored::Turns) => return run_turns(context, &args),
        Some(Explored::Cluster) => return run_cluster(context, &args),
        Some(Explored::States(_)) | None => {}
    }
    if args.runs.is_some() || args.from.is_some() {
        bail!("--runs and --from go with the targets turns and cluster: the other targets explore --states");
    }
    let states = args.states.unwrap_or(DEFAULT_STATES);
    let all = match args.on {
        On::Drive => Target::ALL.to_vec(),
        On::Array => vec![Target::Fs, Target::Log, Target::Engine, Target::LevelDb],
    };
    let targets = match args.target {
        Some(Explored::States(target)) => vec![target],
        _ => all,
    };
    let mut total = Report::default();
    for target in targets {
        let start = context.now();
        let report = sim::crash(&CrashOptions {
            on_array: args.on == On::Array,
            volatile_cache: args.volatile_cache,
            trace: args.trace.clone(),
            only: args.state,
            during: args.during,
            first_failure: args.first_failure,
            threads: args.threads,
            ..CrashOptions::new(target, args.seed, states)
        })?;
        if !context.json {
            print_report(target, &report, context.now().since(start).as_secs_f64())?;
        }
        total.add(report);
    }
    if context.json {
        output::line(serde_json::to_string(&total)?)?;
    }
    Ok(if total.is_clean() { ExitCode::SUCCESS } else { Code::Failure.into() })
}

/// Refuses options that go with states and not with simulated groups.
fn check_runs(args: &CrashArgs, target: &str) -> Result<()> {
    let of_states = [
        ("--states", args.states.is_some()),
        ("--on", args.on != On::Drive),
        ("--trace", args.trace.is_some()),
        ("--state", args.state.is_some()),
        ("--volatile-cache", args.volatile_cache.is_some()),
        ("--during", args.during.is_some()),
        ("--threads", args.threads.is_some()),
    ];
    if let Some((option, _)) = of_states.iter().find(|(_, is_given)| *is_given) {
        bail!(
            "{option} does not go with --target {target}, which simulates --runs groups --from a number on"
        );
    }
    Ok(())
}

/// Simulates groups of whole nodes: exit code 1 where a run failed.
fn run_cluster(context: &Context, args: &CrashArgs) -> Result<ExitCode> {
    check_runs(args, "cluster")?;
    let start = context.now();
    let (from, runs) = (args.from.unwrap_or(0), args.runs.unwrap_or(DEFAULT_RUNS));
    let rules = sim::ClusterRules::default();
    let report = sim::explore_cluster(args.seed, from, runs, rules, args.first_failure);
    if context.json {
        output::line(serde_json::to_string(&report)?)?;
    } else {
        let seconds = context.now().since(start).as_secs_f64();
        let counts = &report.counts;
        output::line(format!(
            "cluster: {} runs, {} groups: {} lost, {} invented, {} not linearizable, {} stuck, {} diverged; {:.0} s of virtual time in {seconds:.1} s",
            report.runs,
            counts.groups,
            report.lost,
            report.invented,
            report.not_linearizable,
            report.stuck,
            report.diverged,
            Duration::from_millis(counts.milliseconds).as_secs_f64(),
        ))?;
        output::line(format!(
            "  {} operations answered, {} a run at least: {} of pairs, {} additions; {} refused by full logs, {} entries retired, {} parts of tables sent, tables behind in {} moments",
            counts.operations,
            report.least_operations,
            counts.pairs,
            counts.counts,
            counts.full,
            counts.retired,
            counts.table_parts,
            counts.tables_behind,
        ))?;
        output::line(format!(
            "  {} faults, {} a run at least: {} power cuts, {} drives lost, {} processes ended by errors of their drives, {} slow drives; {} terms",
            counts.faults,
            report.least_faults,
            counts.power_cuts,
            counts.drives_lost,
            counts.drive_errors,
            counts.slow_drives,
            counts.terms,
        ))?;
        output::line(format!(
            "  {} plans changed members, {} replicas joined, {} that were left out deleted, {} of both cut short, {} nodes drained; etcd gone {} times, restored {} times, {} of these from before a replacement; {} groups raised to a newer version, {} programs refused as too old",
            counts.plans,
            counts.joined,
            counts.deleted,
            counts.cut_short,
            counts.drains,
            counts.etcd_outages,
            counts.etcd_restores,
            counts.replacements_forgotten,
            counts.raised,
            counts.too_old,
        ))?;
        for failure in &report.failures {
            output::line(format!("  run {}, {:?}, {}", failure.run, failure.kind, failure.what))?;
            output::line(format!("    again: {}", failure.replay_command))?;
        }
    }
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { Code::Failure.into() })
}

/// Simulates groups whose snapshots take turns: exit code 1 where a run failed.
fn run_turns(context: &Context, args: &CrashArgs) -> Result<ExitCode> {
    check_runs(args, "turns")?;
    let start = context.now();
    let (from, runs) = (args.from.unwrap_or(0), args.runs.unwrap_or(DEFAULT_RUNS));
    let report = sim::explore_turns(args.seed, from, runs, sim::TurnsRules::default(), args.first_failure);
    if context.json {
        output::line(serde_json::to_string(&report)?)?;
    } else {
        output::line(format!(
            "turns: {} runs, {} snapshots, {} times one at a hard limit without a turn, {} runs failed, {:.1} s",
            report.runs,
            report.snapshots,
            report.forced,
            report.failed,
            context.now().since(start).as_secs_f64()
        ))?;
        for failure in &report.failures {
            output::line(format!("  run {}, {}", failure.run, failure.what))?;
            output::line(format!("    again: {}", failure.replay_command))?;
        }
    }
    Ok(if report.failed == 0 { ExitCode::SUCCESS } else { Code::Failure.into() })
}

fn print_report(target: Target, report: &Report, seconds: f64) -> Result<()> {
    output::line(format!(
        "{target}: {} states, {} lost, {} invented, {} mount failures, {} check failures, {seconds:.1} s",
        report.states, report.lost, report.invented, report.mount_failures, report.check_failures
    ))?;
    for failure in &report.failures {
        output::line(format!("  {:?} in state {}: {}", failure.kind, failure.state, failure.what))?;
        output::line(format!("    again: {}", failure.replay_command))?;
    }
    Ok(())
}
