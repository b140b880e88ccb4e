//! The command `furrow bench share`.

use std::process::ExitCode;
use std::time::Duration;

use ::bench::share::{self, Admit, Line, LogLoad, ShareLoad};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use zoned::Goal;

use super::result::{failed, with_host};
use crate::context::Context;
use crate::exit::Failure;
use crate::{output, progress};

/// `furrow bench share`
#[derive(Debug, Args)]
pub struct ShareArgs {
    /// Profiles of the emulated drives.
    #[arg(long, default_values = ["zn540", "confzns"], value_name = "PROFILE")]
    profile: Vec<String>,
    /// unbounded: bulk goes at once. controller: at the rate that the drive's scheduler finds. floor: at fixed rates, a tenth to all of the bulk's own.
    #[arg(long, default_values = ["unbounded", "controller"], value_parser = ["unbounded", "controller", "floor"])]
    admit: Vec<String>,
    /// The log's latency beside bulk that is wanted, in percent of that alone.
    #[arg(long, default_value_t = 120, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(100..))]
    log_target: u32,
    /// Operations of the log that are due a second, beside those one after the other.
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    log_rate: u32,
    /// Instead: this many writers of the file system's parallel log (auto), synced, and bulk writes of as many files as --bulk-zones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    log_writers: Option<u32>,
    /// Zones that bulk writes side by side.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    bulk_zones: u32,
    /// The last of these zones, where the log has zone 0: on smallzone, 384 is on the log's die [default: they follow the log's zone]
    #[arg(long, value_name = "ZONE", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    last_bulk_zone: Option<u32>,
    /// Bulk writes of 256 KiB in flight.
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    bulk_in_flight: u32,
    /// Seconds of the drive's clock that are measured, after half as many of warm-up.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// Steps of the fixed rates of `--admit floor`.
const FLOOR_STEPS: u32 = 10;

/// Measures a log beside bulk writes, in virtual time.
pub fn run(context: &Context, args: &ShareArgs) -> Result<ExitCode> {
    if args.bulk_in_flight < args.bulk_zones {
        return Err(Failure::usage("--bulk-in-flight: each of the --bulk-zones has one at least"));
    }
    let bar = progress::spinner();
    let mut lines: Vec<Line> = Vec::new();
    for profile in &args.profile {
        let logs = match args.log_writers {
            Some(writers) => vec![LogLoad::Writers(writers)],
            None => vec![LogLoad::OneAfterTheOther, LogLoad::Rate(args.log_rate)],
        };
        for log in logs {
            let load = ShareLoad {
                profile: profile.clone(),
                log,
                bulk_zones: args.bulk_zones,
                last_bulk_zone: args.last_bulk_zone,
                bulk_in_flight: args.bulk_in_flight,
                time: Duration::from_secs(args.seconds),
                goal: Goal { log_target: f64::from(args.log_target) / 100.0, ..Goal::default() },
            };
            bar.set_message(format!("{profile}, {}", log_name(log)));
            let alone = share::measure_alone(&load).map_err(failed)?;
            for admit in &args.admit {
                let ways = match admit.as_str() {
                    "unbounded" => vec![Admit::Unbounded],
                    "controller" => vec![Admit::Controller],
                    _ => {
                        let step = alone.bulk_rate() / f64::from(FLOOR_STEPS);
                        (1..=FLOOR_STEPS).map(|n| Admit::Fixed(step * f64::from(n))).collect()
                    }
                };
                for way in ways {
                    lines.push(share::measure(&load, way, &alone).map_err(failed)?);
                }
            }
        }
    }
    bar.finish_and_clear();
    if context.json {
        output::json(&with_host(&json!({ "lines": lines }))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mib = |rate: f64| format!("{:.1}", rate / f64::from(1 << 20));
    let cells = |line: &Line| {
        vec![
            line.profile.clone(),
            log_name(line.log),
            match line.admit {
                Admit::Unbounded => "unbounded".to_owned(),
                Admit::Controller => "controller".to_owned(),
                Admit::Fixed(rate) => format!("{} MiB/s", mib(rate)),
            },
            format!("{:.1}", line.log_alone.log_latency.mean),
            format!("{:.2}", line.mean),
            format!("{:.2}", line.p99),
            mib(line.beside.log_rate),
            mib(line.beside.bulk_rate),
            format!("{:.2}", line.kept),
        ]
    };
    let header =
        ["drive", "log of 4 KiB", "bulk", "alone us", "mean", "p99", "log MiB/s", "bulk MiB/s", "kept"];
    let numbers = ["alone us", "mean", "p99", "log MiB/s", "bulk MiB/s", "kept"];
    output::table(&header, &numbers, lines.iter().map(cells).collect())?;
    Ok(ExitCode::SUCCESS)
}

fn log_name(log: LogLoad) -> String {
    match log {
        LogLoad::OneAfterTheOther => "one after the other".to_owned(),
        LogLoad::Rate(rate) => format!("{rate} a second"),
        LogLoad::Writers(writers) => format!("{writers} writers"),
    }
}
