//! The command `furrow bench array`.

use std::process::ExitCode;

use ::bench::array::{self, ArrayLoad, Setup};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use units::Bytes;

use super::result::with_host;
use crate::context::Context;
use crate::{output, progress, size};

/// `furrow bench array`
#[derive(Debug, Args)]
pub struct ArrayArgs {
    /// Drives of the array, each a zn540 in memory.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=16))]
    drives: u32,
    /// Bytes in a stripe unit.
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = size::parse)]
    stripe_unit: Bytes,
    /// Bytes that each measurement moves.
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = size::parse)]
    total: Bytes,
}

/// Measures an array, and prints each number beside its reference. The exit code does not depend on the numbers.
pub fn run(context: &Context, args: &ArrayArgs) -> Result<ExitCode> {
    let setup = Setup { drives: args.drives, stripe_unit: args.stripe_unit, ..Setup::default() };
    let bar = progress::spinner();
    let lines =
        array::run(&ArrayLoad { setup, total: args.total }, &|what| bar.set_message(what.to_owned()))?;
    bar.finish_and_clear();
    if context.json {
        output::json(&with_host(&json!({ "lines": lines }))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cells = |line: &array::Line| {
        vec![
            line.what.clone(),
            format!("{:.1}", line.ours),
            line.unit.to_owned(),
            format!("{:.1}", line.against),
            line.which.clone(),
            format!("{:.3}", line.ratio),
            format!("{}{:.2}", if line.unit == "us" { "<= " } else { ">= " }, line.wanted),
            if line.holds() { "yes" } else { "no" }.to_owned(),
        ]
    };
    let header = ["what", "ours", "unit", "against", "which is", "ratio", "wanted", "holds"];
    output::table(&header, &["ours", "against", "ratio", "wanted"], lines.iter().map(cells).collect())?;
    Ok(ExitCode::SUCCESS)
}
