//! `furrow array`: drives that lose one of them and nothing else.
//!
//! ```text
//!   At         where the array is: its drives, or the server that has them     at, remote
//!   create                                                                      create
//!   status, monitor                                                             status, monitor
//!   fail, replace, rebuild, scrub    orders, and their progress                 orders
//!   check, dump, destroy             the drives, while nobody has them          drives
//! ```

mod at;
mod create;
mod drives;
mod monitor;
mod orders;
mod remote;
mod status;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

pub use self::at::absolute;
pub use self::remote::Remote;
use crate::context::Context;

const AFTER: &str = "\
An array is named by its drives, by a file that lists them, or by its label:
  --device array:URL,URL,URL   --device array:PATH   --device array:NAME
While `furrow serve` holds it: --url http://127.0.0.1:9121";

/// `furrow array`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = AFTER)]
pub struct ArrayArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an array of three or more drives: what they hold is lost.
    Create(create::CreateArgs),
    /// Show an array and its drives. Exit code 0: all are there, 1: one is lacking, 2: more are, 6: it cannot be told.
    Status(status::StatusArgs),
    /// Tell what happens to an array, and run a command for each event.
    Monitor(monitor::MonitorArgs),
    /// Do without a drive from now on.
    Fail(orders::FailArgs),
    /// Put a new drive in the place of one that failed, and rebuild what it held.
    Replace(orders::ReplaceArgs),
    /// Go on with a rebuild that was cut short, or follow the one under way.
    Rebuild(orders::RebuildArgs),
    /// Read everything and compare parity with data.
    Scrub(orders::ScrubArgs),
    /// Look for damage, without writing.
    Check(drives::CheckArgs),
    /// Print the superblocks and the metadata records.
    Dump(drives::DumpArgs),
    /// End an array: its drives hold nothing then.
    Destroy(drives::DestroyArgs),
}

/// Runs the verb.
pub fn run(context: &Context, args: ArrayArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Create(args) => create::run(context, args),
        Verb::Status(args) => status::run(context, &args),
        Verb::Monitor(args) => monitor::run(context, &args),
        Verb::Fail(args) => orders::fail(context, &args),
        Verb::Replace(args) => orders::replace(context, &args),
        Verb::Rebuild(args) => orders::rebuild(context, &args),
        Verb::Scrub(args) => orders::scrub(context, &args),
        Verb::Check(args) => drives::check(context, &args),
        Verb::Dump(args) => drives::dump(context, &args),
        Verb::Destroy(args) => drives::destroy(context, &args),
    }
}
