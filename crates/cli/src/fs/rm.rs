//! `furrow fs rm`

use std::process::ExitCode;

use ::fs::{Fs, Kind};
use anyhow::Result;
use clap::Args;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::fs::path::{absolute, join};
use crate::output;

/// `furrow fs rm`
#[derive(Debug, Args)]
pub struct RmArgs {
    /// What to remove.
    #[arg(required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    device: DeviceArg,
    /// Remove directories with what is in them; needs --yes.
    #[arg(short, long)]
    recursive: bool,
    /// Yes, remove whole directories.
    #[arg(long)]
    yes: bool,
    /// Say what would be removed and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Removes.
pub fn run(context: &Context, args: &RmArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, args.dry_run)?;
    // Everything is looked at before anything is removed.
    let mut doomed = Vec::new();
    for path in &args.paths {
        let path = absolute(path);
        collect(&fs, &path, args, &mut doomed)?;
    }
    for (path, kind) in &doomed {
        if args.dry_run {
            output::line(format!("would remove {path}"))?;
        } else if *kind == Kind::Directory {
            context.wait(fs.rmdir(path))?;
        } else {
            context.wait(fs.unlink(path))?;
        }
    }
    if !args.dry_run {
        context.wait(fs.sync())?;
        context.wait(fs.unmount())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn collect(fs: &Fs, path: &str, args: &RmArgs, doomed: &mut Vec<(String, Kind)>) -> Result<()> {
    let kind = fs.stat(path)?.kind;
    if kind == Kind::Directory {
        if !args.recursive {
            return Err(Failure::usage(format!(
                "{path} is a directory: -r --yes removes it and what is in it"
            )));
        }
        if !args.yes && !args.dry_run {
            return Err(Failure::usage(format!("removing {path} and what is in it takes --yes")));
        }
        for entry in fs.read_dir(path)? {
            collect(fs, &join(path, &entry.name), args, doomed)?;
        }
    }
    if path != "/" {
        doomed.push((path.to_owned(), kind));
    }
    Ok(())
}
