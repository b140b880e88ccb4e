//! `furrow array fail`, `replace`, `rebuild`, `scrub`: on drives that nobody has, or through the server that has them.

use std::process::ExitCode;
use std::time::Duration;

use ::array::Slot;
use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use server::array::{
    ArrayView, EndView, FailOrder, Job, MemberView, ProgressView, ReplaceOrder, ScrubOrder, ScrubView,
};

use units::Bytes;
use zoned::ErrorKind;

use super::at::{At, Place, absolute};
use super::status;
use crate::args::ForceArg;
use crate::context::Context;
use crate::exit::{self, Code, Failure};
use crate::{output, progress, size};

/// Between two looks at what runs.
const STEP: Duration = Duration::from_millis(200);

/// `furrow array fail`
#[derive(Debug, Args)]
pub struct FailArgs {
    #[command(flatten)]
    at: At,
    /// Which drive: its slot, as `status` shows it
    slot: u32,
    /// Say what would be done and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// `furrow array replace`
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    #[command(flatten)]
    at: At,
    /// Which drive: its slot, as `status` shows it
    slot: u32,
    /// The new drive: what it holds is lost. A drive file is made
    #[arg(value_name = "NEW")]
    new: String,
    /// Bytes a second that the rebuild never exceeds: clients have the rest
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_rate: Option<Bytes>,
    #[command(flatten)]
    force: ForceArg,
    /// Do not wait for the end; only where a server has the array.
    #[arg(long, requires = "url")]
    no_wait: bool,
}

/// `furrow array rebuild`
#[derive(Debug, Args)]
pub struct RebuildArgs {
    #[command(flatten)]
    at: At,
    /// End it instead: the array does without the drive as before; only where a server has the array.
    #[arg(long, requires = "url")]
    cancel: bool,
}

/// `furrow array scrub`
#[derive(Debug, Args)]
pub struct ScrubArgs {
    #[command(flatten)]
    at: At,
    /// Make parity fit its data where it does not: which of the two is wrong nobody can tell, and this believes the data.
    /// Without this a scrub says how many stripes that would be, and changes no parity.
    #[arg(long)]
    repair_parity: bool,
    /// End the one under way instead; only where a server has the array.
    #[arg(long, requires = "url", conflicts_with = "repair_parity")]
    cancel: bool,
    /// Do not wait for the end; only where a server has the array.
    #[arg(long, requires = "url")]
    no_wait: bool,
}

/// A dry run ends as the order would.
fn of_dry_run(refused: bool) -> ExitCode {
    if refused { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Fails a drive.
pub fn fail(context: &Context, args: &FailArgs) -> Result<ExitCode> {
    if args.dry_run {
        let view = args.at.look(context)?;
        let member = member(&view, args.slot)?;
        let would = match (member.state.as_str(), view.health.as_str()) {
            ("good", "clean") => "would fail",
            ("good", _) => "would refuse to fail, as the array lacks one already,",
            _ => "would refuse to fail, as it is no good member,",
        };
        output::line(format!("{would} drive {}: {}", args.slot, drive(member)))?;
        return Ok(of_dry_run(would != "would fail"));
    }
    let place = args.at.open(context)?;
    let view = match &place {
        Place::Here(array) => {
            array.fail(Slot(args.slot))?;
            array.view()
        }
        Place::There(server) => server.order("fail", &FailOrder { slot: args.slot })?,
    };
    status::show(context, &view)?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces a drive, and waits for the end of the rebuild.
pub fn replace(context: &Context, args: &ReplaceArgs) -> Result<ExitCode> {
    if args.new.starts_with("array:") {
        return Err(Failure::usage(format!("{}: a drive is needed, and no array", args.new)));
    }
    let (slot, force) = (args.slot, args.force);
    // What makes no sense makes no drive file.
    let seen = args.at.look(context)?;
    let old = member(&seen, slot)?;
    if old.state == "good" {
        return Err(Failure::usage(format!(
            "drive {slot} ({}) is good: furrow array fail {slot} first",
            drive(old)
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
        let (what, refused) = match args.at.server()? {
            Some(server) => {
                let order = ReplaceOrder { dry_run: true, ..order };
                let said: Value = server.order("replace", &order)?;
                (said.get("drive").and_then(Value::as_str).unwrap_or_default().to_owned(), false)
            }
            None => would_be(context, &args.new, force.force)?,
        };
        let would = if refused { "would refuse" } else { "would replace" };
        output::line(format!("{would} drive {slot} ({}): {what}", drive(old)))?;
        return Ok(of_dry_run(refused));
    }
    let place = args.at.open(context)?;
    match &place {
        Place::Here(array) => {
            array.replace(&order).map_err(forced)?;
        }
        Place::There(server) => {
            let _said: Value = server.order("replace", &order)?;
        }
    }
    if args.no_wait {
        status::show(context, &place.view()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (view, end) = follow(context, &place, REBUILD)?;
    rebuilt(context, &view, &end)
}

/// What would happen to a new drive, and whether it would be refused.
fn would_be(context: &Context, new: &str, force: bool) -> Result<(String, bool)> {
    let url: zoned::DeviceUrl = new.parse()?;
    if !url.exists() {
        return Ok((format!("{new}: it would be made"), false));
    }
    let device = url.open(std::sync::Arc::clone(context.driver()))?;
    let contents = context.wait(zoned::contents::guard(&*device, true))?;
    let refused = !contents.is_blank() && !force;
    let advice = if refused { "; --force erases it" } else { "" };
    Ok((format!("{}: {contents}{advice}", device.geometry().name), refused))
}

/// What is refused for what a drive holds takes `--force`.
fn forced(error: zoned::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::HoldsData => Failure::refused(format!("{} (--force)", exit::message(&error.into()))),
        _ => error.into(),
    }
}

/// Follows a rebuild: one that was cut short goes on when the array is opened.
pub fn rebuild(context: &Context, args: &RebuildArgs) -> Result<ExitCode> {
    let place = args.at.open(context)?;
    if args.cancel {
        return cancel(context, &place, Job::Rebuild);
    }
    let view = place.view()?;
    if view.rebuild.is_none() && view.last_rebuild.is_none() {
        return match view.health.as_str() {
            "clean" => {
                if context.json {
                    status::show(context, &view)?;
                } else {
                    output::line(format!(
                        "array {}: all its drives are there, nothing is rebuilt",
                        view.array
                    ))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            _ => Err(Failure::refused(format!(
                "array {}: no rebuild is under way; {}",
                view.array,
                view.advice.first().map_or("furrow array replace SLOT NEW begins one", String::as_str)
            ))),
        };
    }
    let (view, end) = follow(context, &place, REBUILD)?;
    rebuilt(context, &view, &end)
}

fn rebuilt(context: &Context, view: &ArrayView, end: &EndView) -> Result<ExitCode> {
    if let Some(error) = &end.error {
        return Err(Failure::refused(format!("the rebuild ended: {error}")));
    }
    if context.json {
        status::show(context, view)?;
        return Ok(ExitCode::SUCCESS);
    }
    let progress = &end.progress;
    let slot = progress.slot.unwrap_or_default();
    let new = member(view, slot).map(drive).unwrap_or_default();
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

/// Scrubs: exit code 1 where parity does not fit its data, or a read failed that nothing mends.
pub fn scrub(context: &Context, args: &ScrubArgs) -> Result<ExitCode> {
    let place = args.at.open(context)?;
    if args.cancel {
        return cancel(context, &place, Job::Scrub);
    }
    match &place {
        Place::Here(array) => array.scrub(args.repair_parity)?,
        Place::There(server) => {
            let _view: ArrayView =
                server.order("scrub", &ScrubOrder { repair_parity: args.repair_parity })?;
        }
    }
    if args.no_wait {
        status::show(context, &place.view()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (_, end) = follow(context, &place, SCRUB)?;
    let found = match (&end.error, end.found) {
        (None, Some(found)) => found,
        (error, _) => {
            let why = error.as_deref().unwrap_or("nobody knows why");
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
    Ok(if is_sound(&found) { ExitCode::SUCCESS } else { Code::Failure.into() })
}

fn is_sound(found: &ScrubView) -> bool {
    found.lost == 0 && found.mismatches == found.parity_rewritten
}

fn cancel(context: &Context, place: &Place, what: Job) -> Result<ExitCode> {
    let order = if what == Job::Rebuild { "cancel-rebuild" } else { "cancel-scrub" };
    let cancelled = match place {
        Place::Here(array) => array.cancel(what),
        Place::There(server) => {
            let said: Value = server.order(order, &json!({}))?;
            said.get("cancelled").and_then(Value::as_bool).unwrap_or_default()
        }
    };
    if context.json {
        output::json(&json!({ "cancelled": cancelled }))?;
    } else {
        output::line(if cancelled { "it is ended" } else { "there is none" })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What runs for a while: its name, how far it is, how it ended.
type Kind = (&'static str, fn(&ArrayView) -> &Option<ProgressView>, fn(&ArrayView) -> &Option<EndView>);

const REBUILD: Kind = ("rebuild", |view| &view.rebuild, |view| &view.last_rebuild);
const SCRUB: Kind = ("scrub", |view| &view.scrub, |view| &view.last_scrub);

/// Waits for the end, with a bar and an estimate where a person is watching.
fn follow(context: &Context, place: &Place, kind: Kind) -> Result<(ArrayView, EndView)> {
    let (what, running, last) = kind;
    let bar = progress::bytes(0, what);
    loop {
        let view = place.view()?;
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
                return Err(Failure::refused(format!("the {what} is gone: the array was opened anew")));
            }
        }
        context.sleep(STEP);
    }
}

fn member(view: &ArrayView, slot: u32) -> Result<&MemberView> {
    view.members.iter().find(|member| member.slot == slot).ok_or_else(|| {
        let last = view.members.len().saturating_sub(1);
        Failure::usage(format!("the array has no drive {slot}: its slots are 0 to {last}"))
    })
}

fn drive(member: &MemberView) -> String {
    member.drive.clone().unwrap_or_else(|| member.state.clone())
}
