//! `furrow fs mkdir`

use std::process::ExitCode;

use ::fs::{ErrorKind, Fs};
use anyhow::Result;
use clap::Args;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::fs::path::{absolute, ancestors};

/// `furrow fs mkdir`
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// The directories to make.
    #[arg(required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    device: DeviceArg,
    /// Make missing parents too, and accept directories that exist.
    #[arg(short, long)]
    parents: bool,
}

/// Makes the directories.
pub fn run(context: &Context, args: &MkdirArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, false)?;
    let made = args.paths.iter().try_for_each(|path| {
        let path = absolute(path);
        if args.parents {
            return ancestors(&path).into_iter().try_for_each(|path| make(context, &fs, &path));
        }
        Ok(context.wait(fs.mkdir(&path))?)
    });
    // The directories made before an error stay; the error comes first.
    let unmounted = context.wait(fs.sync()).and_then(|()| context.wait(fs.unmount()));
    made?;
    unmounted?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a directory that may exist.
pub fn make(context: &Context, fs: &Fs, path: &str) -> Result<()> {
    match context.wait(fs.mkdir(path)) {
        Err(error) if error.kind() == ErrorKind::Exists && is_directory(fs, path) => Ok(()),
        made => Ok(made?),
    }
}

/// Whether the path is a directory.
pub fn is_directory(fs: &Fs, path: &str) -> bool {
    fs.stat(path).is_ok_and(|stat| stat.kind == ::fs::FileKind::Directory)
}
