//! The commands `furrow prio`: I/O priorities for files of unmodified programs.

mod check;
mod pages;
mod run;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::context::Context;

/// The arguments of `furrow prio`.
#[derive(Debug, Args)]
pub struct PrioArgs {
    #[command(subcommand)]
    command: PrioCommand,
}

#[derive(Debug, Subcommand)]
enum PrioCommand {
    /// Run a program whose logs come before its bulk files on the drive.
    Run(run::RunArgs),
    /// Show what I/O priorities do for files in a directory, and try.
    Check(check::CheckArgs),
    /// The load of `check`.
    #[command(hide = true)]
    Load(check::LoadArgs),
}

impl PrioArgs {
    /// Whether stdout belongs to this program also with `--json`.
    pub fn prints_json(&self) -> bool {
        !matches!(self.command, PrioCommand::Run(_))
    }
}

/// Runs a command.
pub fn run(context: &Context, args: PrioArgs) -> Result<ExitCode> {
    match args.command {
        PrioCommand::Run(args) => run::run(&args),
        PrioCommand::Check(args) => check::run(context, &args),
        PrioCommand::Load(args) => check::load(context, &args),
    }
}
