//! The commands `furrow array check`, `dump` and `destroy`, for drives that no process holds.

use std::process::ExitCode;

use ::array::{CheckOptions, Severity};
use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::handle::{self, MembersArg};
use crate::args::ForceArg;
use crate::context::Context;
use crate::exit::{Code, Failure};
use crate::output;

/// `furrow array check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    array: MembersArg,
    /// Read all data and parity too, and compare them.
    #[arg(long)]
    deep: bool,
}

/// `furrow array dump`
#[derive(Debug, Args)]
pub struct DumpArgs {
    #[command(flatten)]
    array: MembersArg,
}

/// `furrow array destroy`
#[derive(Debug, Args)]
pub struct DestroyArgs {
    #[command(flatten)]
    array: MembersArg,
    #[command(flatten)]
    force: ForceArg,
}

/// Checks an array: exit code 1 where data is lost or metadata is wrong.
pub fn check(context: &Context, args: &CheckArgs) -> Result<ExitCode> {
    let members = args.array.open(context)?;
    let report = context.wait(::array::check(&members, CheckOptions { deep: args.deep }))?;
    let word = |severity| if severity == Severity::Error { "error" } else { "warning" };
    let errors = report.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if context.json {
        let problems = report.problems.iter().map(|problem| {
            json!({
                "severity": word(problem.severity), "slot": problem.slot.map(|slot| slot.0),
                "zone": problem.zone.map(|zone| zone.0), "what": problem.what,
            })
        });
        output::json(&json!({
            "array": report.status.superblock.uuid.to_string(), "zones": report.zones, "errors": errors,
            "problems": problems.collect::<Vec<_>>(),
        }))?;
    } else {
        for problem in &report.problems {
            let slot = problem.slot.map_or(String::new(), |slot| format!("drive {}, ", slot.0));
            let zone = problem.zone.map_or(String::new(), |zone| format!("zone {}: ", zone.0));
            output::line(format!("{}: {slot}{zone}{}", word(problem.severity), problem.what))?;
        }
        output::line(format!(
            "array {}: {} of {} zones hold data, {errors} errors, {} warnings",
            report.status.superblock.uuid,
            report.zones,
            report.status.superblock.zones,
            report.problems.len() - errors,
        ))?;
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { Code::Failure.into() })
}

/// Prints the records of the metadata zones of an array's drives.
pub fn dump(context: &Context, args: &DumpArgs) -> Result<ExitCode> {
    let members = args.array.open(context)?;
    let drives = context.wait(::array::dump(&members))?;
    if context.json {
        let drives = drives.iter().map(|drive| {
            let zones = drive.zones.iter().map(|zone| {
                json!({
                    "zone": zone.zone.0,
                    "state": crate::describe::zone_state(zone.state),
                    "used_blocks": zone.used,
                    "unreadable_blocks": zone.unreadable,
                })
            });
            let records = drive.records.iter().map(|record| {
                json!({
                    "metadata_zone": record.metadata_zone.0, "block": record.block, "blocks": record.blocks,
                    "kind": record.kind, "checkpoint": record.checkpoint, "epoch": record.epoch,
                    "sequence": record.sequence, "member": record.member.0, "text": record.text,
                })
            });
            json!({
                "drive": &*drive.device,
                "slot": drive.claim.as_ref().map(|(slot, _)| slot.0),
                "array": drive.claim.as_ref().map(|(_, superblock)| superblock.uuid.to_string()),
                "zones": zones.collect::<Vec<_>>(),
                "records": records.collect::<Vec<_>>(),
            })
        });
        output::json(&drives.collect())?;
        return Ok(ExitCode::SUCCESS);
    }
    for drive in &drives {
        match &drive.claim {
            Some((slot, superblock)) => {
                let role = match slot.index() < superblock.members.len() {
                    true => format!("drive {}", slot.0),
                    false => "idle spare".to_owned(),
                };
                output::line(format!("{}: {role} of array {}", drive.device, superblock.uuid))?;
            }
            None => output::line(format!("{}: a member of no array", drive.device))?,
        }
        for record in &drive.records {
            let checkpoint = if record.checkpoint { "*" } else { " " };
            output::line(format!(
                "  zone {} block {:6} epoch {} record {:5}{checkpoint} {:15} {}",
                record.metadata_zone.0, record.block, record.epoch, record.sequence, record.kind, record.text
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Destroys an array: makes its drives blank.
pub fn destroy(context: &Context, args: &DestroyArgs) -> Result<ExitCode> {
    let members = args.array.open(context)?;
    let view = handle::view(context, &members)?;
    let label = if view.label.is_empty() { String::new() } else { format!(" ({})", view.label) };
    let what = format!("array {}{label} of {} drives", view.array, view.members.len());
    if args.force.dry_run {
        output::line(format!("would destroy {what}: its data would be lost"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.force.force {
        return Err(Failure::refused(format!("{what}: its data would be lost; --force destroys it")));
    }
    let wiped = context.wait(::array::destroy(&members))?;
    if context.json {
        output::json(
            &json!({ "array": view.array, "wiped": wiped.iter().map(|name| &**name).collect::<Vec<_>>() }),
        )?;
    } else {
        output::line(format!("{what}: destroyed on {}", wiped.join(", ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
