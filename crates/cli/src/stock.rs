//! The commands `furrow db-bench`, `furrow ldb` and `furrow sst-dump`, which run the machine's own RocksDB programs on a drive.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
pub use rocks::stock::Program;
use rocks::stock::{self, StockOptions};

use crate::args::DeviceArg;
use crate::context::Context;

/// The arguments of all three.
#[derive(Debug, Args)]
#[command(
    after_help = "An emulated drive that holds nothing gets a file system first. Unless you name another, the database is /db."
)]
pub struct StockArgs {
    #[command(flatten)]
    device: DeviceArg,
    /// Write RocksDB's LOG to this directory of the host instead of the database's directory.
    #[arg(long, env = stock::LOG_DIR_VARIABLE, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// The plug-in [default: beside this program, or in its ../lib]
    #[arg(long, env = stock::PLUGIN_VARIABLE, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Make a new file system first, on an emulated drive: its data is lost.
    #[arg(long)]
    format: bool,
    /// The program's own arguments, after --
    #[arg(last = true)]
    args: Vec<OsString>,
}

/// Replaces this process by a RocksDB program.
pub fn run(context: &Context, program: Program, args: &StockArgs) -> Result<ExitCode> {
    let options = StockOptions {
        plugin: args.plugin.clone(),
        program: None,
        log_dir: args.log_dir.clone(),
        format: args.format,
    };
    // The drive is opened once before: a wrong URL, a held device and an array's member have exit codes of their own, and
    // better messages than the RocksDB program's.
    context.try_open(&args.device)?;
    Ok(stock::run(program, &args.device.device, &args.args, &options)?)
}
