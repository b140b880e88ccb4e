//! The commands `furrow array spare add` and `remove`: drives that take the place of a failed one by themselves.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::Value;
use server::array::{AddSpareOrder, ArrayView, RemoveSpareOrder};

use super::handle::{ArrayArg, ArrayHandle, absolute};
use super::jobs::{advise_force, dry_run, exit_code_of_dry_run, follow_rebuild_onto_spare};
use super::status;
use crate::args::ForceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::output;

/// `furrow array spare`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct SpareArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a drive an idle spare: the data that it holds is lost. Name it among the members from then on.
    Add(AddArgs),
    /// Give up an idle spare.
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// The drive. A drive file is made
    #[arg(value_name = "NEW")]
    new: String,
    #[command(flatten)]
    force: ForceArg,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    #[command(flatten)]
    array: ArrayArg,
    /// The drive's name or the spare's UUID, as `status` shows them
    #[arg(value_name = "DRIVE|UUID")]
    spare: String,
}

/// Runs a verb of `furrow array spare`.
pub fn run(context: &Context, args: &SpareArgs) -> Result<ExitCode> {
    match &args.verb {
        Verb::Add(args) => add(context, args),
        Verb::Remove(args) => remove(context, args),
    }
}

fn add(context: &Context, args: &AddArgs) -> Result<ExitCode> {
    if args.new.starts_with("array:") {
        return Err(Failure::usage(format!(
            "{} is an array, and a drive is needed: nvme:, blk: or emu:",
            args.new
        )));
    }
    let force = args.force;
    let order = AddSpareOrder { device: absolute(&args.new)?, force: force.force, dry_run: force.dry_run };
    if force.dry_run {
        let (what, refused) = match args.array.server()? {
            Some(server) => {
                let answer: Value = server.order("add-spare", &order)?;
                (answer.get("drive").and_then(Value::as_str).unwrap_or_default().to_owned(), false)
            }
            None => dry_run(context, &args.new, force.force)?,
        };
        let would = if refused { "would refuse" } else { "would add the spare" };
        output::line(format!("{would} {what}"))?;
        return Ok(exit_code_of_dry_run(refused));
    }
    let handle = args.array.open(context)?;
    let view = match &handle {
        ArrayHandle::Local(array) => {
            array.add_spare(&order).map_err(advise_force)?;
            follow_rebuild_onto_spare(context, &handle)?
        }
        ArrayHandle::Remote(server) => {
            let answer: Value = server.order("add-spare", &order)?;
            serde_json::from_value(answer.get("array").cloned().unwrap_or_default())?
        }
    };
    status::show(context, &view)?;
    Ok(ExitCode::SUCCESS)
}

fn remove(context: &Context, args: &RemoveArgs) -> Result<ExitCode> {
    let order = RemoveSpareOrder { spare: args.spare.clone() };
    let view: ArrayView = match &args.array.open(context)? {
        ArrayHandle::Local(array) => {
            array.remove_spare(&order)?;
            array.view()
        }
        ArrayHandle::Remote(server) => server.order("remove-spare", &order)?,
    };
    status::show(context, &view)?;
    Ok(ExitCode::SUCCESS)
}
