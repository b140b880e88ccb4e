//! `furrow array`: drives that lose one of them and nothing else.

use std::process::ExitCode;
use std::sync::Arc;

use ::array::{CreateOptions, Health, MemberState, Status};
use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use units::Bytes;
use zoned::ZonedDevice;

use crate::args::{DeviceArg, ForceArg};
use crate::context::Context;
use crate::exit::Failure;
use crate::{erase, output, size};

/// Exit codes of `status`: part of the interface.
const DEGRADED: u8 = 1;
const FAILED: u8 = 2;

/// `furrow array`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct ArrayArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an array of three or more drives: what they hold is lost.
    Create(CreateArgs),
    /// Show an array and its drives. Exit code 0: all are there, 1: one is missing or failed, 2: more are.
    Status(StatusArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// The drives: nvme:, blk: or emu: URLs.
    #[arg(required = true, num_args = 3.., value_name = "URL")]
    drives: Vec<String>,
    /// Bytes in a stripe unit.
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = size::parse)]
    stripe_unit: Bytes,
    /// A name for people.
    #[arg(long, default_value = "")]
    label: String,
    #[command(flatten)]
    force: ForceArg,
}

#[derive(Debug, Args)]
struct StatusArgs {
    #[command(flatten)]
    device: DeviceArg,
}

/// Runs the verb.
pub fn run(context: &Context, args: ArrayArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Create(args) => create(context, args),
        Verb::Status(args) => status(context, &args),
    }
}

fn create(context: &Context, args: CreateArgs) -> Result<ExitCode> {
    let mut devices: Vec<Arc<dyn ZonedDevice>> = Vec::new();
    let mut agreed = true;
    for url in &args.drives {
        if url.contains(',') || url.starts_with("array:") {
            return Err(Failure::usage(format!("{url}: each drive is an argument of its own, and no array")));
        }
        let at = DeviceArg { device: url.clone() };
        // A dry run makes no file.
        let device = if args.force.dry_run { context.open(&at)? } else { context.open_or_create(&at)? };
        agreed &= erase::agreed(context, &device, args.force, "make it a member of an array")?;
        devices.push(device);
    }
    if !agreed {
        return Ok(ExitCode::SUCCESS);
    }
    let options = CreateOptions { stripe_unit: args.stripe_unit, label: args.label };
    let superblock = context.wait(::array::create(&devices, &options))?;
    let capacity = Bytes(
        superblock.zone_capacity.bytes(superblock.block_size).0
            * u64::from(superblock.zones)
            * (superblock.members.len() as u64 - 1),
    );
    let plain = |url: &String| url.split('?').next().unwrap_or_default().to_owned();
    let url = format!("array:{}", args.drives.iter().map(plain).collect::<Vec<_>>().join(","));
    if context.json {
        output::json(&json!({
            "array": superblock.uuid.to_string(), "url": url, "capacity": capacity.0, "zones": superblock.zones,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!("array {} of {} drives, {}", superblock.uuid, devices.len(), size::show(capacity)))?;
    output::line(format!("use it as --device '{url}'"))?;
    Ok(ExitCode::SUCCESS)
}

fn status(context: &Context, args: &StatusArgs) -> Result<ExitCode> {
    let Some(rest) = args.device.device.strip_prefix("array:") else {
        return Err(Failure::usage("an array is needed: --device array:URL,URL,URL"));
    };
    let devices = ::array::url::members(rest, context.driver())?;
    let status = context.wait(::array::status(&devices))?;
    let code = match status.health() {
        Health::Clean => ExitCode::SUCCESS,
        Health::Degraded => ExitCode::from(DEGRADED),
        Health::Failed => ExitCode::from(FAILED),
    };
    if context.json {
        output::json(&as_json(&status))?;
        return Ok(code);
    }
    let superblock = &status.superblock;
    output::pairs(&[
        ("array", superblock.uuid.to_string()),
        ("label", superblock.label.clone()),
        ("health", health(status.health()).to_owned()),
        ("zones", superblock.zones.to_string()),
        ("stripe unit", size::show(Bytes(u64::from(superblock.unit) * u64::from(superblock.block_size)))),
    ])?;
    let row = |member: &::array::MemberStatus| {
        vec![
            member.slot.0.to_string(),
            state(member.state).to_owned(),
            member.device.as_deref().unwrap_or("-").to_owned(),
            member.info.uuid.to_string(),
        ]
    };
    output::table(&["slot", "state", "drive", "uuid"], &["slot"], status.members.iter().map(row).collect())?;
    Ok(code)
}

fn as_json(status: &Status) -> serde_json::Value {
    let members = status.members.iter().map(|member| {
        json!({
            "slot": member.slot.0,
            "state": state(member.state),
            "drive": member.device.as_deref(),
            "uuid": member.info.uuid.to_string(),
        })
    });
    json!({
        "array": status.superblock.uuid.to_string(),
        "label": status.superblock.label,
        "health": health(status.health()),
        "zones": status.superblock.zones,
        "stripe_unit": u64::from(status.superblock.unit) * u64::from(status.superblock.block_size),
        "members": members.collect::<Vec<_>>(),
    })
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Clean => "clean",
        Health::Degraded => "degraded",
        Health::Failed => "failed",
    }
}

fn state(state: MemberState) -> &'static str {
    match state {
        MemberState::Good => "good",
        MemberState::Failed => "failed",
        MemberState::Missing => "missing",
        MemberState::Rebuilding => "rebuilding",
    }
}
