//! Tests of I/O priorities, by the kernel's trace of what it hands to drives: the priority of every write of logs and of bulk.

mod classes;
mod content;
mod drives;
mod extents;
mod load;
mod rates;
mod resets;
mod trace;
mod write_log;

use anyhow::Result;

use crate::checks::Checks;

/// Tests the priorities of writes.
pub fn run(checks: &mut Checks) -> Result<()> {
    classes::run(checks)
}

/// Measures what logs and bulk get; `in_full`: in more runs, and with more logs.
pub fn run_rates(checks: &mut Checks, in_full: bool) -> Result<()> {
    rates::run(checks, if in_full { rates::Extent::FULL } else { rates::Extent::SHORT })
}

/// Writes logs in files until the machine is reset.
pub fn run_until_reset(checks: &mut Checks, device: &str) -> Result<()> {
    resets::run(checks, device)
}

/// Runs one of the programs that the tests start. `None` if there is none of that name.
pub fn run_program(words: &[String]) -> Option<Result<()>> {
    let (name, arguments) = words.split_first()?;
    match name.as_str() {
        write_log::PROGRAM => Some(write_log::run(arguments)),
        load::PROGRAM => Some(load::run(arguments)),
        _ => None,
    }
}
