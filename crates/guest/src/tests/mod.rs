//! The tests that run in the guest: `furrow-guest NAME DEVICE`.

mod conformance;
mod faults;
mod order;
mod rates;
mod resets;
mod stock;

use std::sync::Arc;

use anyhow::{Result, bail};
use units::{Driver, RealDriver};
use zoned::ZonedDevice;

use crate::checks::Checks;
use crate::control::Control;

/// Runs the tests of this name on a device, or on all where it is `-`; how many failed.
pub fn run(name: &str, device: &str) -> Result<u32> {
    let mut checks = Checks::new(Control::open()?)?;
    match name {
        "conformance" => conformance::run(&mut checks, device)?,
        "stock" => stock::run(&mut checks, device)?,
        "resets" => resets::run(&mut checks, device)?,
        "faults" => faults::run(&mut checks)?,
        "rates" => rates::run(&mut checks)?,
        "order" => order::run(&mut checks, device)?,
        _ => bail!("there is no test {name}"),
    }
    Ok(checks.failed())
}

/// Opens a device of the guest's.
fn open(url: &str) -> Result<Arc<dyn ZonedDevice>> {
    let driver: Arc<dyn Driver> = RealDriver::new();
    Ok(zoned::open(url, driver)?)
}
