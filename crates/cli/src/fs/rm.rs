//! The command `furrow fs rm`.

use std::process::ExitCode;

use ::fs::{FileKind, Fs};
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
    /// The files and directories to remove.
    #[arg(required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    device: DeviceArg,
    /// Remove directories with all their files; needs --yes.
    #[arg(short, long)]
    recursive: bool,
    /// Yes, remove whole directories.
    #[arg(long)]
    yes: bool,
    /// Say what would be removed and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Removes files and directories from the drive.
pub fn run(context: &Context, args: &RmArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, args.dry_run)?;
    // All paths are checked before the first one is removed.
    let mut targets = Vec::new();
    for path in &args.paths {
        let path = absolute(path);
        collect_targets(&fs, &path, args, &mut targets)?;
    }
    for (path, kind) in &targets {
        if args.dry_run {
            output::line(format!("would remove {path}"))?;
        } else if *kind == FileKind::Directory {
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

fn collect_targets(fs: &Fs, path: &str, args: &RmArgs, targets: &mut Vec<(String, FileKind)>) -> Result<()> {
    let kind = fs.stat(path)?.kind;
    if kind == FileKind::Directory {
        if !args.recursive {
            return Err(Failure::usage(format!(
                "{path} is a directory: -r --yes removes it with all its files"
            )));
        }
        if !args.yes && !args.dry_run {
            return Err(Failure::usage(format!("removing {path} with all its files takes --yes")));
        }
        for entry in fs.read_dir(path)? {
            collect_targets(fs, &join(path, &entry.name), args, targets)?;
        }
    }
    if path != "/" {
        targets.push((path.to_owned(), kind));
    }
    Ok(())
}
