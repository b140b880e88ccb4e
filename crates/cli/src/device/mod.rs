//! The commands `furrow device`, which show a drive's properties and zones, without a file system.

mod bench;
mod list;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use zoned::{Blocks, ZoneInfo, conformance};

use crate::args::{DeviceArg, ForceArg};
use crate::context::Context;
use crate::exit::Code;
use crate::{consent, describe, output, size};

/// `furrow device`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct DeviceArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the zoned drives of this machine, and how to name them.
    List,
    /// Show the drive's properties.
    Info(InfoArgs),
    /// Show the state of its zones.
    Zones(ListArgs),
    /// Test the drive against the device contract. Overwrites it.
    Check(CheckArgs),
    /// Measure writes, appends and reads of its zones. Overwrites it.
    Bench(bench::BenchArgs),
}

#[derive(Debug, Args)]
struct InfoArgs {
    #[command(flatten)]
    device: DeviceArg,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// One line for each zone, equal neighbours too.
    #[arg(short, long)]
    all: bool,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    device: DeviceArg,
    #[command(flatten)]
    force: ForceArg,
}

/// Runs a verb of `furrow device`.
pub fn run(context: &Context, args: DeviceArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::List => list::run(context),
        Verb::Info(args) => info(context, &args),
        Verb::Zones(args) => zones(context, &args),
        Verb::Check(args) => check(context, &args),
        Verb::Bench(args) => bench::run(context, &args),
    }
}

fn info(context: &Context, args: &InfoArgs) -> Result<ExitCode> {
    let device = context.open(&args.device)?;
    let geometry = device.geometry();
    let bytes = |blocks: Blocks| blocks.bytes(geometry.block_size);
    let sequential = u64::from(geometry.zones.saturating_sub(geometry.conventional));
    let capacity = units::Bytes(
        bytes(geometry.zone_capacity)
            .0
            .saturating_mul(sequential)
            .saturating_add(bytes(geometry.zone_size).0.saturating_mul(u64::from(geometry.conventional))),
    );
    if context.json {
        output::json(&json!({
            "device": &*geometry.name,
            "capacity": capacity.0,
            "block_size": geometry.block_size,
            "zones": geometry.zones,
            "conventional": geometry.conventional,
            "zone_size": bytes(geometry.zone_size).0,
            "zone_capacity": bytes(geometry.zone_capacity).0,
            "max_open": geometry.max_open,
            "max_active": geometry.max_active,
            "max_append": bytes(geometry.max_append).0,
            "atomic_write": bytes(geometry.atomic_write).0,
            "optimal_write": bytes(geometry.optimal_write).0,
            "volatile_cache": geometry.volatile_cache,
            "read_past_pointer": geometry.read_past_pointer,
            "details": describe::details_json(&*device),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let limit = |limit: Option<u32>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let yes = |yes| if yes { "yes" } else { "no" }.to_owned();
    let mut pairs = vec![
        ("device", geometry.name.to_string()),
        ("capacity", size::show(capacity)),
        ("block size", size::show(units::Bytes(geometry.block_size.into()))),
        ("zones", format!("{}, {} of them conventional", geometry.zones, geometry.conventional)),
        ("zone size", size::show(bytes(geometry.zone_size))),
        ("zone capacity", size::show(bytes(geometry.zone_capacity))),
        ("open zones", limit(geometry.max_open)),
        ("active zones", limit(geometry.max_active)),
        ("append limit", size::show(bytes(geometry.max_append))),
        ("atomic write", size::show(bytes(geometry.atomic_write))),
        ("optimal write", size::show(bytes(geometry.optimal_write))),
        ("volatile cache", yes(geometry.volatile_cache)),
        ("reads past pointer", yes(geometry.read_past_pointer)),
    ];
    pairs.extend(device.details());
    output::pairs(&pairs)?;
    Ok(ExitCode::SUCCESS)
}

fn zones(context: &Context, args: &ListArgs) -> Result<ExitCode> {
    let device = context.open(&args.device)?;
    let zones = device.report_all()?;
    let bytes = |blocks: Blocks| blocks.bytes(device.geometry().block_size);
    if context.json {
        let zones = zones.iter().map(|zone| {
            json!({
                "zone": zone.zone.0, "state": describe::zone_state(zone.state), "pointer": bytes(zone.pointer).0,
                "capacity": bytes(zone.capacity).0,
            })
        });
        output::json(&zones.collect())?;
        return Ok(ExitCode::SUCCESS);
    }
    let same = |a: &ZoneInfo, b: &ZoneInfo| {
        !args.all && (a.state, a.pointer, a.capacity) == (b.state, b.pointer, b.capacity)
    };
    let rows = zones.chunk_by(same).filter_map(|run| {
        let (first, last) = (run.first()?, run.last()?);
        let which = match (first.zone.0, last.zone.0) {
            (a, b) if a == b => a.to_string(),
            (a, b) => format!("{a}-{b}"),
        };
        let (pointer, capacity) = (size::show(bytes(first.pointer)), size::show(bytes(first.capacity)));
        Some(vec![which, describe::zone_state(first.state).to_owned(), pointer, capacity])
    });
    output::table(&["zone", "state", "written", "capacity"], &["written", "capacity"], rows.collect())?;
    Ok(ExitCode::SUCCESS)
}

fn check(context: &Context, args: &CheckArgs) -> Result<ExitCode> {
    let device = if args.force.dry_run {
        context.open(&args.device)?
    } else {
        context.open_or_create(&args.device)?
    };
    let name = &device.geometry().name;
    if !consent::given(context, &device, args.force, "overwrite it with tests")? {
        return Ok(ExitCode::SUCCESS);
    }
    let width = conformance::names().iter().map(|name| name.len()).max().unwrap_or(0);
    let mut results = Vec::new();
    let mut printed = Ok(());
    conformance::run(&device, &mut |test, outcome| {
        if !context.json && printed.is_ok() {
            let verdict = outcome.as_ref().map_or_else(|why| format!("FAILED: {why}"), |()| "ok".to_owned());
            printed = output::line(format!("{test:width$}  {verdict}"));
        }
        results.push((test.to_owned(), outcome.err()));
    });
    printed?;
    let failed = results.iter().filter(|(_, failure)| failure.is_some()).count();
    if context.json {
        let tests = results.iter().map(|(test, failure)| json!({ "test": test, "failure": failure }));
        output::json(
            &json!({ "passed": results.len() - failed, "failed": failed, "tests": tests.collect::<Vec<_>>() }),
        )?;
    } else {
        output::line(format!("{name}: {} passed, {failed} failed", results.len() - failed))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { Code::Failure.into() })
}
