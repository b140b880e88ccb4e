//! The command `furrow array status`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use server::array::ArrayView;
use units::Bytes;

use super::handle::ArrayArg;
use crate::context::Context;
use crate::exit::{self, Code, Failure};
use crate::{output, size};

// Exit codes of `furrow array status`: part of the interface.
const EXIT_DEGRADED: u8 = 1;
const EXIT_FAILED: u8 = 2;

/// `furrow array status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    array: ArrayArg,
}

/// Shows the array's status.
pub fn run(context: &Context, args: &StatusArgs) -> Result<ExitCode> {
    let view = args.array.view(context).map_err(unknown_health)?;
    show(context, &view)?;
    Ok(code(&view))
}

/// The error of an unknown health, with an exit code that no health has: 1 and 2 mean degraded and failed.
pub fn unknown_health(error: anyhow::Error) -> anyhow::Error {
    match exit::code(&error) {
        Code::Failure | Code::Usage => Failure::unknown(exit::message(&error)),
        _ => error,
    }
}

/// The exit code for the array's health.
pub fn code(view: &ArrayView) -> ExitCode {
    match view.health.as_str() {
        "clean" => ExitCode::SUCCESS,
        "degraded" => ExitCode::from(EXIT_DEGRADED),
        _ => ExitCode::from(EXIT_FAILED),
    }
}

/// Prints the array's status.
pub fn show(context: &Context, view: &ArrayView) -> Result<()> {
    if context.json {
        return output::json(&serde_json::to_value(view)?);
    }
    let mut pairs = vec![
        ("array", view.array.clone()),
        ("label", if view.label.is_empty() { "-".to_owned() } else { view.label.clone() }),
        ("health", view.health.clone()),
        ("may still fail", format!("{} of the drives", view.failures_left)),
        ("capacity", format!("{} in {} zones", size::show(Bytes(view.capacity)), view.zones)),
        ("stripe unit", size::show(Bytes(view.stripe_unit))),
    ];
    if (view.width as usize) < view.members.len() {
        pairs.push(("width", format!("{} of {} drives for each zone", view.width, view.members.len())));
    }
    if view.zone_shares > 1 {
        pairs.push(("zone size", format!("1/{} of a zone of each drive", view.zone_shares)));
    }
    if view.zone_sections > 1 {
        let how = if view.interleaved { "stripe by stripe" } else { "one behind the other" };
        pairs.push(("zone size", format!("{} zones of each drive, {how}", view.zone_sections)));
    }
    if view.spare_drives > 0 {
        pairs.push(("spare capacity", format!("that of {} of the drives", view.spare_drives)));
    }
    if let Some(space) = view.space {
        let show = |bytes| size::show(Bytes(bytes));
        pairs.push((
            "space of the drives",
            format!(
                "{} live, {} committed of {}",
                show(space.live),
                show(space.committed),
                show(space.usable)
            ),
        ));
        pairs.push((
            "empty zones",
            format!("{} of each drive or more; {} in reserve", space.empty_zones, space.reserve_zones),
        ));
    }
    for (name, progress) in [("rebuild", &view.rebuild), ("scrub", &view.scrub)] {
        pairs.extend(progress.iter().map(|progress| (name, progress.words())));
    }
    if !view.worn.is_empty() {
        pairs.push(("worn zones", view.worn.len().to_string()));
    }
    output::pairs(&pairs)?;
    let rows = view.members.iter().map(|member| {
        vec![
            member.slot.to_string(),
            member.state.clone(),
            member.drive.clone().unwrap_or_else(|| "-".to_owned()),
            member.media_errors.to_string(),
            member.uuid.clone(),
        ]
    });
    let spares = view.spares.iter().map(|spare| {
        let drive = spare.drive.clone().unwrap_or_else(|| "-".to_owned());
        vec!["spare".to_owned(), spare.state.clone(), drive, "-".to_owned(), spare.uuid.clone()]
    });
    let rows = rows.chain(spares).collect();
    output::table(&["slot", "state", "drive", "errors", "uuid"], &["slot", "errors"], rows)?;
    view.advice.iter().try_for_each(output::line)
}
