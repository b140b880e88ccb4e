//! The tests that run in the guest: `furrow-guest NAME DEVICE`.

mod array;
mod conformance;
mod faults;
mod order;
mod rates;
mod resets;
mod server;
mod stock;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use units::{Driver, RealDriver};
use zoned::{ErrorKind, ZonedDevice};

use crate::checks::Checks;
use crate::clock;
use crate::control::Control;

/// Runs the tests of this name on a device, or on all where it is `-`; how many failed.
pub fn run(name: &str, device: &str) -> Result<u32> {
    let mut checks = Checks::new(Control::open()?)?;
    match name {
        "conformance" => conformance::run(&mut checks, device)?,
        "stock" => stock::run(&mut checks, device)?,
        "resets" => resets::run(&mut checks, device)?,
        "faults" => faults::run(&mut checks)?,
        "array" => array::run(&mut checks)?,
        "rates" => rates::run(&mut checks)?,
        "order" => order::run(&mut checks, device)?,
        _ => bail!("there is no test {name}"),
    }
    Ok(checks.failed())
}

/// How often it is tried to open a device.
const ATTEMPTS: u32 = 1500;

/// Opens a device of the guest's. The one who had it before may need a moment to let it go.
fn open(url: &str) -> Result<Arc<dyn ZonedDevice>> {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let mut attempt = 0;
    loop {
        match zoned::open(url, Arc::clone(&driver)) {
            Err(error) if matches!(error.kind(), ErrorKind::Held { .. }) && attempt < ATTEMPTS => {
                attempt += 1;
                clock::sleep(Duration::from_millis(20));
            }
            result => return Ok(result?),
        }
    }
}
