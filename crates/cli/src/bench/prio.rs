//! The command `furrow bench prio`.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use ::bench::file_log::{self, FileLogLine, FileLogLoad, Way};
use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::result::{failed, with_host};
use crate::context::Context;
use crate::{output, progress};

/// `furrow bench prio`
#[derive(Debug, Args)]
pub struct PrioArgs {
    /// A folder on the file system to measure. Everything that is made there is removed.
    #[arg(long, value_name = "DIR")]
    path: PathBuf,
    /// Bytes of a record.
    #[arg(long, default_value_t = 512, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    record: u32,
    /// Records, each synced before the next.
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    records: u64,
    /// Writers of 1 MiB at a time, direct, beside the log; 0 for none.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    bulk: u32,
    /// The program furrow-prio-writer [default: the one beside this program]
    #[arg(long, value_name = "PROGRAM")]
    writer: Option<PathBuf>,
    /// Serve as the writer behind a pipe, whose log is --path: the measurement starts itself so.
    #[arg(long, hide = true)]
    pipe_writer: bool,
}

/// Measures logs in ordinary files.
pub fn run(context: &Context, args: &PrioArgs) -> Result<ExitCode> {
    if args.pipe_writer {
        let pipe = |end: BorrowedFd<'_>| end.try_clone_to_owned().map(File::from);
        let (from, to) = (pipe(std::io::stdin().as_fd())?, pipe(std::io::stdout().as_fd())?);
        file_log::serve_pipe(&args.path, from, to)?;
        return Ok(ExitCode::SUCCESS);
    }
    let bar = progress::spinner();
    bar.set_message("logs in files");
    let load = FileLogLoad {
        folder: args.path.clone(),
        record: usize::try_from(args.record)?,
        records: args.records,
        bulk: args.bulk,
        writer: args.writer.clone().or_else(writer_beside),
        pipe_writer: Some(pipe_writer()?),
    };
    if load.writer.is_none() {
        eprintln!("SKIPPED: a writer process: no furrow-prio-writer beside this program (--writer PROGRAM)");
    }
    let lines = file_log::measure(&load).map_err(failed)?;
    bar.finish_and_clear();
    if context.json {
        output::json(&with_host(&json!({ "lines": lines }))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cells = |line: &FileLogLine| {
        let us = |us: f64| format!("{us:.1}");
        vec![
            match line.way {
                Way::Plain => "write, fdatasync".to_owned(),
                Way::Request => "log, io_uring".to_owned(),
                Way::Thread => "log, threads".to_owned(),
                Way::Process => "log, process".to_owned(),
                Way::Pipe => "pipe to a process".to_owned(),
            },
            if line.beside_bulk { format!("{} writers", args.bulk) } else { "none".to_owned() },
            us(line.latencies.mean),
            us(line.latencies.p50),
            us(line.latencies.p99),
            us(line.latencies.max),
            format!("{:.1}", line.bulk_bytes_per_s / f64::from(1 << 20)),
            if line.real_time { "real-time" } else { "best effort" }.to_owned(),
        ]
    };
    let header = ["way", "bulk", "mean us", "p50", "p99", "max", "bulk MiB/s", "class"];
    let numbers = ["mean us", "p50", "p99", "max", "bulk MiB/s"];
    output::table(&header, &numbers, lines.iter().map(cells).collect())?;
    Ok(ExitCode::SUCCESS)
}

/// This program, as the writer behind a pipe of the log whose path follows.
fn pipe_writer() -> Result<Vec<OsString>> {
    let arguments = ["bench", "prio", "--pipe-writer", "--path"].map(OsString::from);
    Ok(std::iter::once(std::env::current_exe()?.into_os_string()).chain(arguments).collect())
}

/// The program `furrow-prio-writer` in the folder of this one.
fn writer_beside() -> Option<PathBuf> {
    let writer = std::env::current_exe().ok()?.parent()?.join("furrow-prio-writer");
    writer.is_file().then_some(writer)
}
