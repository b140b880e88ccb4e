//! The tests that run in the guest: `furrow-guest NAME DEVICE`.

mod array;
mod conformance;
mod device;
mod export;
mod exported;
mod faults;
mod leveldb;
mod order;
mod pattern;
mod prio;
mod rates;
mod resets;
mod server;
mod stock;

use anyhow::{Result, bail};

use crate::checks::Checks;
use crate::control::Control;

pub use self::prio::run_program;

/// Runs the tests `name` on `device` (`-` for all devices); returns the number of tests that failed.
pub fn run(name: &str, device: &str) -> Result<u32> {
    let mut checks = Checks::new(Control::open()?)?;
    match name {
        "conformance" => conformance::run(&mut checks, device)?,
        "stock" => stock::run(&mut checks, device)?,
        "resets" => resets::run(&mut checks, device)?,
        "leveldb" => leveldb::run(&mut checks)?,
        "leveldb-resets" => leveldb::run_until_reset(&mut checks, device)?,
        "faults" => faults::run(&mut checks)?,
        "array" => array::run(&mut checks)?,
        "export" => export::run(&mut checks)?,
        "export-f2fs" => export::run_f2fs(&mut checks)?,
        "prio" => prio::run(&mut checks)?,
        "prio-rates" => prio::run_rates(&mut checks, false)?,
        "prio-rates-in-full" => prio::run_rates(&mut checks, true)?,
        "prio-resets" => prio::run_until_reset(&mut checks, device)?,
        "rates" => rates::run(&mut checks)?,
        "order" => order::run(&mut checks, device)?,
        _ => bail!("there is no test {name}"),
    }
    Ok(checks.failed())
}
