//! The command `furrow fs cat`.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use ::fs::{Bytes, Fs};
use anyhow::{Context as _, Result};
use clap::Args;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::{self, Code};
use crate::fs::path::absolute;

/// Bytes of a file that are read at once.
const BYTES_PER_READ: usize = 1 << 20;

/// Time between two reads of a followed file.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// `furrow fs cat`
#[derive(Debug, Args)]
pub struct CatArgs {
    /// The files.
    #[arg(required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    device: DeviceArg,
    /// Keep printing data that is appended, until interrupted. Waits while another process holds the drive.
    #[arg(short, long)]
    follow: bool,
}

/// Prints files of the drive.
pub fn run(context: &Context, args: &CatArgs) -> Result<ExitCode> {
    let mut out = io::stdout().lock();
    if !args.follow {
        let fs = context.mount(&args.device, true)?;
        for path in &args.paths {
            print_file(context, &fs, &absolute(path), Bytes::ZERO, &mut out)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let [path] = args.paths.as_slice() else {
        return Err(exit::Failure::usage("--follow takes one file"));
    };
    let path = absolute(path);
    let mut printed = Bytes::ZERO;
    let mut waiting = false;
    loop {
        match context.mount(&args.device, true) {
            Ok(fs) => {
                waiting = false;
                printed = print_file(context, &fs, &path, printed, &mut out)?;
                // The file system is unmounted between two reads: the writer of the file needs the drive.
                context.wait(fs.unmount())?;
            }
            Err(error) if exit::code(&error) == Code::Busy => {
                if !waiting {
                    eprintln!("furrow: waiting: {}", exit::message(&error));
                }
                waiting = true;
            }
            Err(error) => return Err(error),
        }
        context.sleep(FOLLOW_INTERVAL);
    }
}

/// Prints the file at `path` from offset `from`; returns the offset of its end. A file that has become shorter is printed from
/// the start.
fn print_file(context: &Context, fs: &Fs, path: &str, from: Bytes, out: &mut impl Write) -> Result<Bytes> {
    let reader = fs.open(path)?;
    let mut at = if reader.size() < from { Bytes::ZERO } else { from };
    let mut buffer = vec![0; BYTES_PER_READ];
    loop {
        let n = context.wait(reader.read_at(at, &mut buffer))?;
        let Some(read) = buffer.get(..n).filter(|read| !read.is_empty()) else {
            out.flush().context("writing to stdout")?;
            return Ok(at);
        };
        out.write_all(read).context("writing to stdout")?;
        at = at.plus(Bytes(n as u64));
    }
}
