//! The commands `furrow array`, which make and manage arrays.
//!
//! ```text
//!   create                           makes an array
//!   status, monitor                  its health, and its events
//!   jobs                             fail, replace, rebuild, scrub, reclaim: orders, and the progress of what they start
//!   spare                            drives that take the place of a failed one by themselves
//!   offline                          check, dump, destroy: of drives that no process holds
//!   handle                           --device, or --url of the server that holds the array
//!   remote                           the HTTP client of that server's pages
//! ```

mod create;
mod handle;
mod jobs;
mod monitor;
mod offline;
mod remote;
mod spare;
mod status;
mod zone_size;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::context::Context;

const HELP_FOOTER: &str = "\
An array is named by its drives, by a file that lists them, or by its label:
  --device array:URL,URL,URL   --device array:PATH   --device array:NAME
While `furrow serve` holds it: --url http://127.0.0.1:9121";

/// `furrow array`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = HELP_FOOTER)]
pub struct ArrayArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an array of three or more drives: the data that they hold is lost.
    Create(create::CreateArgs),
    /// Show an array and its drives. Exit code 0: clean, 1: degraded, 2: failed or not mountable, 6: unknown.
    Status(status::StatusArgs),
    /// Print an array's events as they happen, and run a command for each.
    Monitor(monitor::MonitorArgs),
    /// Fail a drive: the array stops using it.
    Fail(jobs::FailArgs),
    /// Put a new drive in the place of a failed one, and rebuild its data.
    Replace(jobs::ReplaceArgs),
    /// Resume a rebuild that was interrupted, or follow the one under way.
    Rebuild(jobs::RebuildArgs),
    /// Add or remove a drive that takes the place of a failed one by itself.
    Spare(spare::SpareArgs),
    /// Read everything and compare parity with data.
    Scrub(jobs::ScrubArgs),
    /// Free the drives' zones that hold the parts of reset zones beside others: what the array does by itself when it runs short.
    Reclaim(jobs::ReclaimArgs),
    /// Check the array for damage, without writing.
    Check(offline::CheckArgs),
    /// Print the superblocks and the metadata records.
    Dump(offline::DumpArgs),
    /// Destroy an array: its data is lost, and its drives are blank.
    Destroy(offline::DestroyArgs),
}

/// Runs a verb of `furrow array`.
pub fn run(context: &Context, args: ArrayArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Create(args) => create::run(context, args),
        Verb::Status(args) => status::run(context, &args),
        Verb::Monitor(args) => monitor::run(context, &args),
        Verb::Fail(args) => jobs::fail(context, &args),
        Verb::Replace(args) => jobs::replace(context, &args),
        Verb::Rebuild(args) => jobs::rebuild(context, &args),
        Verb::Spare(args) => spare::run(context, &args),
        Verb::Scrub(args) => jobs::scrub(context, &args),
        Verb::Reclaim(args) => jobs::reclaim(context, &args),
        Verb::Check(args) => offline::check(context, &args),
        Verb::Dump(args) => offline::dump(context, &args),
        Verb::Destroy(args) => offline::destroy(context, &args),
    }
}
