//! Opens the guest's zoned devices.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use units::{Driver, RealDriver};
use zoned::{ErrorKind, ZonedDevice};

use crate::clock;

/// Largest number of attempts to open a device.
const ATTEMPTS: u32 = 1500;

/// Opens a device. Retries while another process still holds the device.
pub(super) fn open(url: &str) -> Result<Arc<dyn ZonedDevice>> {
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
