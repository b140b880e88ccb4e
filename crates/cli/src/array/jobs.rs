//! The commands `furrow array fail`, `replace`, `rebuild`, `scrub` and `reclaim`: orders to an array, and the jobs that they start.

use std::process::ExitCode;
use std::time::Duration;

use ::array::Slot;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use server::array::{
    ArrayView, EndView, FailOrder, Job, MemberView, ProgressView, ReclaimOrder, ReplaceOrder, ScrubOrder,
    ScrubView,
};
use units::Bytes;
use zoned::ErrorKind;

use super::handle::{ArrayArg, ArrayHandle, absolute};
use super::status;
use crate::args::ForceArg;
use crate::context::Context;
use crate::exit::{self, Code, Failure};
use crate::{output, progress, size};

/// Time between two polls of a job.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// `furrow array fail`
#[derive(Debug, Args)]
pub struct FailArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// The drive's slot, as `status` shows it
    slot: u32,
    /// Say what would be done and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// `furrow array replace`
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// The drive's slot, as `status` shows it
    slot: u32,
    /// The new drive: the data that it holds is lost. A drive file is made
    #[arg(value_name = "NEW")]
    new: String,
    /// The rebuild's highest rate, in bytes a second
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_rate: Option<Bytes>,
    #[command(flatten)]
    force: ForceArg,
    /// Do not wait for the end of the job; only where a server holds the array.
    #[arg(long, requires = "url")]
    no_wait: bool,
}

/// `furrow array rebuild`
#[derive(Debug, Args)]
pub struct RebuildArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// Cancel the rebuild instead: the array stays degraded; only where a server holds the array.
    #[arg(long, requires = "url")]
    cancel: bool,
}

/// `furrow array scrub`
#[derive(Debug, Args)]
pub struct ScrubArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// Rewrite parity that does not fit its data. A mismatch does not show which of the two is wrong: the data is trusted.
    /// Without this flag a scrub counts such stripes and changes nothing.
    #[arg(long)]
    repair_parity: bool,
    /// Cancel the scrub under way instead; only where a server holds the array.
    #[arg(long, requires = "url", conflicts_with = "repair_parity")]
    cancel: bool,
    /// Do not wait for the end of the job; only where a server holds the array.
    #[arg(long, requires = "url")]
    no_wait: bool,
}

/// `furrow array reclaim`
#[derive(Debug, Args)]
pub struct ReclaimArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// Stop when each drive has this number of empty zones [default: as many as there can be].
    #[arg(long, value_name = "N")]
    empty: Option<u32>,
    /// Do not wait for the end; only where a server holds the array.
    #[arg(long, requires = "url")]
    no_wait: bool,
}

/// The exit code of a dry run, which the order itself would end with.
pub(super) fn exit_code_of_dry_run(refused: bool) -> ExitCode {
    if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Orders an array to fail a drive.
pub fn fail(context: &Context, args: &FailArgs) -> Result<ExitCode> {
    if args.dry_run {
        let view = args.array.view(context)?;
        let member = member_in_slot(&view, args.slot)?;
        let would = match (member.state.as_str(), view.health.as_str()) {
            ("good", "clean") => "would fail",
            ("good", _) => "would refuse to fail, as the array is degraded,",
            _ => "would refuse to fail, as it failed before or is missing,",
        };
        output::line(format!("{would} drive {}: {}", args.slot, drive_description(member)))?;
        return Ok(exit_code_of_dry_run(would != "would fail"));
    }
    let handle = args.array.open(context)?;
    let view = match &handle {
        ArrayHandle::Local(array) => {
            array.fail(Slot(args.slot))?;
            follow_rebuild_onto_spare(context, &handle)?
        }
        ArrayHandle::Remote(server) => server.order("fail", &FailOrder { slot: args.slot })?,
    };
    status::show(context, &view)?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces a failed drive of an array, and waits for the end of the rebuild.
pub fn replace(context: &Context, args: &ReplaceArgs) -> Result<ExitCode> {
    if args.new.starts_with("array:") {
        return Err(Failure::usage(format!(
            "{} is an array, and a drive is needed: nvme:, blk: or emu:",
            args.new
        )));
    }
    let (slot, force) = (args.slot, args.force);
    // The array's status is checked before a drive file is made.
    let seen = args.array.view(context)?;
    let old = member_in_slot(&seen, slot)?;
    if old.state == "good" {
        return Err(Failure::usage(format!(
            "drive {slot} ({}) is good: furrow array fail {slot} first",
            drive_description(old)
        )));
    }
    let order = ReplaceOrder {
        slot,
        device: absolute(&args.new)?,
        force: force.force,
        dry_run: false,
        max_rate: args.max_rate.map(|rate| rate.0),
    };
    if force.dry_run {
        let (what, refused) = match args.array.server()? {
            Some(server) => {
                let order = ReplaceOrder { dry_run: true, ..order };
                let answer: Value = server.order("replace", &order)?;
                (answer.get("drive").and_then(Value::as_str).unwrap_or_default().to_owned(), false)
            }
            None => dry_run(context, &args.new, force.force)?,
        };
        let would = if refused { "would refuse" } else { "would replace" };
        output::line(format!("{would} drive {slot} ({}): {what}", drive_description(old)))?;
        return Ok(exit_code_of_dry_run(refused));
    }
    let handle = args.array.open(context)?;
    match &handle {
        ArrayHandle::Local(array) => {
            array.replace(&order).map_err(advise_force)?;
        }
        ArrayHandle::Remote(server) => {
            let _answer: Value = server.order("replace", &order)?;
        }
    }
    if args.no_wait {
        status::show(context, &handle.view()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (view, end) = follow_job(context, &handle, REBUILD)?;
    report_rebuild_end(context, &view, &end)
}

/// Follows the rebuild onto an idle spare that an order started in this process, if it started one: the rebuild would end with
/// the process.
pub(super) fn follow_rebuild_onto_spare(context: &Context, handle: &ArrayHandle) -> Result<ArrayView> {
    let view = handle.view()?;
    if view.rebuild.is_none() { Ok(view) } else { Ok(follow_job(context, handle, REBUILD)?.0) }
}

/// The effects of a replacement on the new drive, and whether the array would refuse it.
pub(super) fn dry_run(context: &Context, new: &str, force: bool) -> Result<(String, bool)> {
    let url: zoned::DeviceUrl = new.parse()?;
    if !url.exists() {
        return Ok((format!("{new}: the drive file would be made"), false));
    }
    let device = url.open(std::sync::Arc::clone(context.driver()))?;
    let contents = context.wait(zoned::contents::guard(&*device, true))?;
    let refused = !contents.is_blank() && !force;
    let advice = if refused { "; --force erases it" } else { "" };
    Ok((format!("{}: {contents}{advice}", device.geometry().name), refused))
}

/// Adds `--force` to the refusal of a drive that holds data.
pub(super) fn advise_force(error: zoned::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::HoldsData => Failure::refused(format!("{} (--force)", exit::message(&error.into()))),
        _ => error.into(),
    }
}

/// Follows an array's rebuild. Opening the array resumes a rebuild that was interrupted.
pub fn rebuild(context: &Context, args: &RebuildArgs) -> Result<ExitCode> {
    let handle = args.array.open(context)?;
    if args.cancel {
        return cancel_job(context, &handle, Job::Rebuild);
    }
    let view = handle.view()?;
    if view.rebuild.is_none() && view.last_rebuild.is_none() {
        return match view.health.as_str() {
            "clean" => {
                if context.json {
                    status::show(context, &view)?;
                } else {
                    output::line(format!(
                        "array {}: all its drives are good, nothing is rebuilt",
                        view.array
                    ))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            _ => Err(Failure::refused(format!(
                "array {}: no rebuild is under way; {}",
                view.array,
                view.advice.first().map_or("furrow array replace SLOT NEW starts one", String::as_str)
            ))),
        };
    }
    let (view, end) = follow_job(context, &handle, REBUILD)?;
    report_rebuild_end(context, &view, &end)
}

fn report_rebuild_end(context: &Context, view: &ArrayView, end: &EndView) -> Result<ExitCode> {
    if let Some(error) = &end.error {
        return Err(Failure::refused(format!("the rebuild ended: {error}")));
    }
    if context.json {
        status::show(context, view)?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = &end.progress;
    let slot = progress.slot.unwrap_or_default();
    let new = member_in_slot(view, slot).map(drive_description).unwrap_or_default();
    output::line(format!(
        "drive {slot} is {new} now: {} of {} zones rebuilt in {:.1} s; the array is {}",
        size::show(Bytes(progress.bytes)),
        progress.zones,
        progress.seconds,
        view.health
    ))?;
    view.advice.iter().try_for_each(output::line)?;
    Ok(ExitCode::SUCCESS)
}

/// Scrubs an array: exit code 1 where parity does not fit its data, or a unit cannot be read or reconstructed.
pub fn scrub(context: &Context, args: &ScrubArgs) -> Result<ExitCode> {
    let handle = args.array.open(context)?;
    if args.cancel {
        return cancel_job(context, &handle, Job::Scrub);
    }
    match &handle {
        ArrayHandle::Local(array) => array.scrub(args.repair_parity)?,
        ArrayHandle::Remote(server) => {
            let _view: ArrayView =
                server.order("scrub", &ScrubOrder { repair_parity: args.repair_parity })?;
        }
    }
    if args.no_wait {
        status::show(context, &handle.view()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (_, end) = follow_job(context, &handle, SCRUB)?;
    let found = match (&end.error, end.found) {
        (None, Some(found)) => found,
        (error, _) => {
            let why = error.as_deref().unwrap_or("the server does not say why");
            return Err(Failure::refused(format!("the scrub ended: {why}")));
        }
    };
    if context.json {
        output::json(&serde_json::to_value(found)?)?;
    } else {
        output::line(format!(
            "{} stripes in {} zones compared, {} read in {:.1} s: {} units unreadable ({} lost), {} stripes whose \
             parity does not fit ({} rewritten)",
            found.stripes,
            found.zones,
            size::show(Bytes(found.bytes)),
            end.progress.seconds,
            found.read_errors,
            found.lost,
            found.mismatches,
            found.parity_rewritten,
        ))?;
    }
    Ok(if scrub_found_no_problem(&found) { ExitCode::SUCCESS } else { Code::Failure.into() })
}

fn scrub_found_no_problem(found: &ScrubView) -> bool {
    found.lost == 0 && found.mismatches == found.parity_rewritten
}

/// Frees physical zones that hold garbage.
pub fn reclaim(context: &Context, args: &ReclaimArgs) -> Result<ExitCode> {
    let handle = args.array.open(context)?;
    match &handle {
        ArrayHandle::Local(array) => array.reclaim(args.empty)?,
        ArrayHandle::Remote(server) => {
            let _view: ArrayView = server.order("reclaim", &ReclaimOrder { empty: args.empty })?;
        }
    }
    let mut view = handle.view()?;
    while !args.no_wait && view.space.is_some_and(|space| space.moving) {
        context.sleep(POLL_INTERVAL);
        view = handle.view()?;
    }
    status::show(context, &view)?;
    Ok(ExitCode::SUCCESS)
}

/// Cancels an array's job, and waits until it has ended.
fn cancel_job(context: &Context, handle: &ArrayHandle, what: Job) -> Result<ExitCode> {
    let (order, (name, running, _)) = match what {
        Job::Rebuild => ("cancel-rebuild", REBUILD),
        Job::Scrub => ("cancel-scrub", SCRUB),
    };
    let cancelled = match handle {
        ArrayHandle::Local(array) => array.cancel(what),
        ArrayHandle::Remote(server) => {
            let answer: Value = server.order(order, &json!({}))?;
            answer.get("cancelled").and_then(Value::as_bool).unwrap_or_default()
        }
    };
    while cancelled && running(&handle.view()?).is_some() {
        context.sleep(POLL_INTERVAL);
    }
    if context.json {
        output::json(&json!({ "cancelled": cancelled }))?;
    } else {
        output::line(match cancelled {
            true => format!("the {name} is cancelled"),
            false => format!("no {name} is under way"),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A job of an array: its name, its progress, and its end.
type JobView = (&'static str, fn(&ArrayView) -> &Option<ProgressView>, fn(&ArrayView) -> &Option<EndView>);

const REBUILD: JobView = ("rebuild", |view| &view.rebuild, |view| &view.last_rebuild);
const SCRUB: JobView = ("scrub", |view| &view.scrub, |view| &view.last_scrub);

/// Waits for the end of an array's job; draws a progress bar where stderr is a terminal.
fn follow_job(context: &Context, handle: &ArrayHandle, job: JobView) -> Result<(ArrayView, EndView)> {
    let (what, running, last) = job;
    let bar = progress::bytes(0, what);
    loop {
        let view = handle.view()?;
        match (running(&view), last(&view)) {
            (Some(now), _) => {
                bar.set_length(now.total);
                bar.set_position(now.bytes);
            }
            (None, Some(end)) => {
                bar.finish_and_clear();
                let end = end.clone();
                return Ok((view, end));
            }
            (None, None) => {
                return Err(Failure::refused(format!(
                    "no {what} is under way: the array was reopened meanwhile"
                )));
            }
        }
        context.sleep(POLL_INTERVAL);
    }
}

fn member_in_slot(view: &ArrayView, slot: u32) -> Result<&MemberView> {
    view.members.iter().find(|member| member.slot == slot).ok_or_else(|| {
        let last = view.members.len().saturating_sub(1);
        Failure::usage(format!("the array has no drive {slot}: its slots are 0 to {last}"))
    })
}

fn drive_description(member: &MemberView) -> String {
    member.drive.clone().unwrap_or_else(|| member.state.clone())
}
