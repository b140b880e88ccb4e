//! The commands `furrow fs`, which make, read, write and check a file system.

mod cat;
mod check;
mod cp;
mod df;
mod ls;
mod mkdir;
mod mkfs;
mod path;
mod rm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::context::Context;

/// `furrow fs`
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct FsArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make a file system.
    Mkfs(mkfs::MkfsArgs),
    /// List a directory.
    Ls(ls::LsArgs),
    /// Print files.
    Cat(cat::CatArgs),
    /// Make directories.
    Mkdir(mkdir::MkdirArgs),
    /// Copy files between this machine and a drive: paths on the drive begin with fs:
    Cp(cp::CpArgs),
    /// Show the space that is used and free.
    Df(df::DfArgs),
    /// Check the file system for damage, without writing.
    Check(check::CheckArgs),
    /// Print the superblock and the metadata records.
    Dump(check::DumpArgs),
    /// Remove files.
    Rm(rm::RmArgs),
}

/// Runs a verb of `furrow fs`.
pub fn run(context: &Context, args: FsArgs) -> Result<ExitCode> {
    match args.verb {
        Verb::Mkfs(args) => mkfs::run(context, &args),
        Verb::Ls(args) => ls::run(context, &args),
        Verb::Cat(args) => cat::run(context, &args),
        Verb::Mkdir(args) => mkdir::run(context, &args),
        Verb::Cp(args) => cp::run(context, &args),
        Verb::Df(args) => df::run(context, &args),
        Verb::Check(args) => check::run(context, &args),
        Verb::Dump(args) => check::dump(context, &args),
        Verb::Rm(args) => rm::run(context, &args),
    }
}
