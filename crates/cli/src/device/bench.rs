//! The command `furrow device bench`, which runs a load on a drive's zones.

use std::process::ExitCode;
use std::time::Duration;

use ::bench::device::{self, Kind, Load};
use ::bench::{Clock, Drive, Host};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use units::{Bytes, block_on};
use zoned::{DeviceUrl, Geometry};

use crate::args::{DeviceArg, ForceArg};
use crate::bench::result::{failed, latency_cells};
use crate::context::Context;
use crate::exit::Failure;
use crate::{consent, output, size};

/// How long a load runs without `--count`, `--total` and `--time`.
const DEFAULT_TIME: Duration = Duration::from_secs(1);

/// `furrow device bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// write, append, read, or mixed=READ%: appends, READ percent of them reads instead.
    #[arg(long, default_value = "append", value_name = "OP")]
    op: Kind,
    /// Bytes of an operation.
    #[arg(long, default_value = "4KiB", value_name = "SIZE", value_parser = size::parse)]
    block: Bytes,
    /// Operations in flight; writes: one for each zone.
    #[arg(long, default_value_t = 1, value_name = "N")]
    depth: u32,
    /// Zones written at the same time (at most --depth), or read from.
    #[arg(long, default_value_t = 1, value_name = "N")]
    zones: u32,
    /// Operations in all.
    #[arg(long, value_name = "N", group = "length")]
    count: Option<u64>,
    /// Bytes in all.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, group = "length")]
    total: Option<Bytes>,
    /// End after this time, or when the drive is full [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, group = "length")]
    time: Option<Duration>,
    /// Bytes a second to offer; latencies then count from when an operation was due [default: as many as the depth gives]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    rate: Option<Bytes>,
    /// virtual, real or dilated=N [default: virtual for an emulated drive with times, else real]
    #[arg(long)]
    clock: Option<Clock>,
    #[command(flatten)]
    force: ForceArg,
}

/// The load of the command's arguments, for a drive of this geometry.
fn load(args: &BenchArgs, geometry: &Geometry) -> Load {
    let load = Load {
        kind: args.op,
        size: args.block,
        depth: args.depth,
        zones: args.zones,
        count: args.count.unwrap_or(u64::MAX),
        rate: args.rate,
        dilation: 1,
    };
    match args.total {
        Some(total) => Load { count: total.0 / args.block.0.max(1), ..load },
        // A load without `--count` that writes ends with its time or when the drive is full.
        None if args.count.is_none() && args.op.writes() => Load { count: load.room(geometry), ..load },
        None => load,
    }
}

/// Runs a load on a drive's zones and prints its outcome.
pub fn run(context: &Context, args: &BenchArgs) -> Result<ExitCode> {
    if args.rate == Some(Bytes::ZERO) || args.time == Some(Duration::ZERO) {
        return Err(Failure::usage("a rate and a time are above 0"));
    }
    let url: DeviceUrl = args.device.device.parse()?;
    if !url.exists() {
        // The load is validated before the drive file is made.
        let geometry = url.options()?.geometry()?;
        load(args, &geometry).validate(&geometry)?;
    }
    let drive = Drive::open(&args.device.device, args.clock, args.op.writes() && !args.force.dry_run)
        .map_err(failed)?;
    let geometry = drive.device().geometry();
    let load = Load { dilation: drive.dilation(), ..load(args, geometry) };
    load.validate(geometry)?;
    let time = (args.count.is_none() && args.total.is_none()).then(|| args.time.unwrap_or(DEFAULT_TIME));
    let fills = !args.op.writes() && !geometry.read_past_pointer;
    if args.op.writes() || fills {
        if !consent::given(context, drive.device(), args.force, "overwrite it with a load")? {
            return Ok(ExitCode::SUCCESS);
        }
    } else if args.force.dry_run {
        output::line(format!("would read {} and write nothing", geometry.name))?;
        return Ok(ExitCode::SUCCESS);
    }
    let driver = drive.driver();
    if fills {
        block_on(&**driver, device::fill(drive.device(), &load))?;
    }
    let result = block_on(&**driver, device::run_for(drive.device(), &load, time))?;
    let (block, zones) = (args.block, args.zones);
    if context.json {
        output::json(&json!({
            "device": args.device.device,
            "op": args.op.to_string(),
            "block": block.0,
            "depth": args.depth,
            "zones": zones,
            "rate": args.rate.map(|rate| rate.0),
            "clock": drive.clock(),
            "dilation": result.dilation,
            "filled_first": fills,
            "operations": result.operations,
            "seconds": result.seconds,
            "ops_per_s": result.ops_per_s,
            "mib_per_s": result.mib_per_s,
            "latency_us": result.latency_us,
            "host": Host::here(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let zones = if zones == 1 { "one zone".to_owned() } else { format!("{zones} zones") };
    output::line(format!(
        "{}: {} of {}, {} in flight, {zones}, {} clock{}",
        geometry.name,
        args.op,
        size::show(block),
        args.depth,
        drive.clock(),
        if fills { ", zones filled first" } else { "" },
    ))?;
    let (mut header, mut row) = (
        vec!["ops", "seconds", "ops/s", "MiB/s"],
        vec![
            result.operations.to_string(),
            format!("{:.3}", result.seconds),
            format!("{:.0}", result.ops_per_s),
            format!("{:.1}", result.mib_per_s),
        ],
    );
    let (names, cells) = latency_cells(&result.latency_us);
    header.extend(names);
    row.extend(cells);
    output::table(&header, &header, vec![row])?;
    Ok(ExitCode::SUCCESS)
}
