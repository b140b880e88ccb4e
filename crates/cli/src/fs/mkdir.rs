//! The command `furrow fs mkdir`.

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

/// Makes directories on the drive.
pub fn run(context: &Context, args: &MkdirArgs) -> Result<ExitCode> {
    let fs = context.mount(&args.device, false)?;
    let made = args.paths.iter().try_for_each(|path| {
        let path = absolute(path);
        if args.parents {
            return ancestors(&path).into_iter().try_for_each(|path| make(context, &fs, &path));
        }
        Ok(context.wait(fs.mkdir(&path))?)
    });
    // An error of the unmount is reported only if every directory was made; directories made before an error stay.
    let unmounted = context.wait(fs.sync()).and_then(|()| context.wait(fs.unmount()));
    made?;
    unmounted?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a directory on the drive; one that exists is no error.
pub fn make(context: &Context, fs: &Fs, path: &str) -> Result<()> {
    match context.wait(fs.mkdir(path)) {
        Err(error) if error.kind() == ErrorKind::Exists && is_directory(fs, path) => Ok(()),
        made => Ok(made?),
    }
}

/// Whether a path on the drive is a directory.
pub fn is_directory(fs: &Fs, path: &str) -> bool {
    fs.stat(path).is_ok_and(|stat| stat.kind == ::fs::FileKind::Directory)
}
