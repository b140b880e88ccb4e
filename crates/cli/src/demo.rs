//! The commands `furrow demo` and `furrow demo-array`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use ::demo::{ArrayDemo, PowerCutDemo, Report};
use anyhow::{Context as _, Result};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use server::WalMode;

use crate::args::DeviceArg;
use crate::context::Context;
use crate::exit::Code;
use crate::{output, progress, zones};

/// Most lost records that the command lists.
const MAX_LISTED_RECORDS: usize = 10;

/// `furrow demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The demo keeps its drive in DIR/demo, and replaces the one of an earlier demo there.
    #[arg(long, default_value = "furrow-data", value_name = "DIR")]
    directory: PathBuf,
    /// The drive's parameters.
    #[arg(long, default_value = "zones=128&zone-size=16MiB", value_name = "PARAMETERS")]
    drive: String,
    /// The server's log: see `furrow serve --help`.
    #[arg(long, default_value_t = WalMode::Auto, value_name = "group|waltz|auto")]
    wal: WalMode,
}

/// `furrow demo-array`
#[derive(Debug, Args)]
pub struct DemoArrayArgs {
    /// The demo keeps its drives in DIR/demo-array, and replaces those of an earlier demo there.
    #[arg(long, default_value = "furrow-data", value_name = "DIR")]
    directory: PathBuf,
    /// The parameters of each drive.
    #[arg(long, default_value = "zones=96&zone-size=8MiB", value_name = "PARAMETERS")]
    drive: String,
}

/// Runs the demonstration on one drive: exit code 1 where acknowledged data was lost.
pub fn run(context: &Context, args: &DemoArgs) -> Result<ExitCode> {
    let demo = PowerCutDemo {
        program: this_program()?,
        directory: args.directory.join("demo"),
        drive: args.drive.clone(),
        wal: args.wal.name().to_owned(),
    };
    let outcome = demo.run(&ScreenReport::new(context))?;
    list_lost_records(&outcome.lost);
    let (lost, seconds) = (outcome.lost.len(), outcome.time.as_secs_f64());
    if context.json {
        output::json(&json!({
            "records": outcome.records, "second_load_acknowledged": outcome.second_load_acknowledged,
            "checked": outcome.checked, "lost": lost, "seconds": seconds,
        }))?;
    } else {
        zones::print(context, &DeviceArg { device: outcome.device })?;
        let acknowledged = outcome.records + outcome.second_load_acknowledged;
        output::line(format!("{acknowledged} acknowledged writes, {lost} lost; {seconds:.1} s in all"))?;
    }
    Ok(exit_code(lost))
}

/// Runs the demonstration on an array: exit code 1 where acknowledged data was lost.
pub fn run_array(context: &Context, args: &DemoArrayArgs) -> Result<ExitCode> {
    let demo = ArrayDemo {
        program: this_program()?,
        directory: args.directory.join("demo-array"),
        drive: args.drive.clone(),
    };
    let outcome = demo.run(&ScreenReport::new(context))?;
    list_lost_records(&outcome.lost);
    let (acknowledged, lost, seconds) =
        (outcome.acknowledged, outcome.lost.len(), outcome.time.as_secs_f64());
    if context.json {
        output::json(&json!({
            "records": outcome.records, "acknowledged": acknowledged, "lost": lost,
            "counters": outcome.counters, "seconds": seconds,
        }))?;
    } else {
        output::line(format!(
            "{acknowledged} acknowledged writes, two drives failed and a server killed, {lost} records lost; \
             {seconds:.1} s in all"
        ))?;
    }
    Ok(exit_code(lost))
}

fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("finding this program")
}

fn list_lost_records(lost: &[String]) {
    for problem in lost.iter().take(MAX_LISTED_RECORDS) {
        eprintln!("furrow: lost: {problem}");
    }
}

fn exit_code(lost: usize) -> ExitCode {
    if lost == 0 { ExitCode::SUCCESS } else { Code::Failure.into() }
}

/// Prints a demonstration's sentences to stdout, unless JSON is asked for, and draws progress on stderr.
struct ScreenReport {
    json: bool,
    bar: Mutex<ProgressBar>,
}

impl ScreenReport {
    fn new(context: &Context) -> ScreenReport {
        ScreenReport { json: context.json, bar: Mutex::new(ProgressBar::hidden()) }
    }

    fn with_bar<T>(&self, change: impl FnOnce(&mut ProgressBar) -> T) -> T {
        change(&mut self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Report for ScreenReport {
    fn say(&self, sentence: &str) {
        if !self.json {
            // A closed stdout, as `head` leaves it, does not stop the demonstration.
            let _gone = self.with_bar(|bar| bar.suspend(|| output::line(sentence)));
        }
    }

    fn begin(&self, load: &'static str, length: u64) {
        self.with_bar(|bar| *bar = progress::bar(length, load));
    }

    fn advance(&self) {
        self.with_bar(|bar| bar.inc(1));
    }

    fn end(&self) {
        self.with_bar(|bar| bar.finish_and_clear());
    }
}
