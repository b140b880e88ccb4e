//! The commands `furrow fs check` and `furrow fs dump`.

use std::process::ExitCode;

use ::fs::Fs;
use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Code;
use crate::{output, size};

/// `furrow fs check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    device: DeviceArg,
}

/// `furrow fs dump`
#[derive(Debug, Args)]
pub struct DumpArgs {
    #[command(flatten)]
    device: DeviceArg,
}

/// Checks a file system: exit code 1 if it has problems.
pub fn run(context: &Context, args: &CheckArgs) -> Result<ExitCode> {
    let device = context.open(&args.device)?;
    let report = context.wait(Fs::check(&device)).map_err(|error| context.on(&device, error))?;
    let live = report.live.bytes(device.geometry().block_size);
    if context.json {
        output::json(&json!({
            "problems": report.problems, "files": report.files, "directories": report.directories,
            "extents": report.extents, "segments": report.segments, "records": report.records, "live": live.0,
        }))?;
    } else {
        for problem in &report.problems {
            output::line(problem)?;
        }
        output::line(format!(
            "{}: {} files, {} directories, {} extents, {} log segments, {} metadata records, {} live: {}",
            device.geometry().name,
            report.files,
            report.directories,
            report.extents,
            report.segments,
            report.records,
            size::show(live),
            match report.problems.len() {
                0 => "clean".to_owned(),
                1 => "1 problem".to_owned(),
                n => format!("{n} problems"),
            },
        ))?;
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { Code::Failure.into() })
}

/// Prints the superblock and the metadata records of a file system.
pub fn dump(context: &Context, args: &DumpArgs) -> Result<ExitCode> {
    let device = context.open(&args.device)?;
    let lines = context.wait(Fs::dump(&device)).map_err(|error| context.on(&device, error))?;
    if context.json {
        output::json(&json!(lines))?;
    } else {
        for line in lines {
            output::line(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
