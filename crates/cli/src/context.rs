//! What every command needs: the clock, the way of printing, the way to a device and a file system.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::fs::{Fs, MountOptions};
use anyhow::Result;
use units::{Driver, Instant, RealDriver};
use zoned::ZonedDevice;

use crate::args::DeviceArg;

/// Handed to every command.
#[derive(Clone, Debug)]
pub struct Context {
    /// Whether to print JSON.
    pub json: bool,
    driver: Arc<dyn Driver>,
}

impl Context {
    /// On the real clock.
    pub fn new(json: bool) -> Context {
        Context { json, driver: RealDriver::new() }
    }

    /// Opens the device. Its error says which parameter was wrong, or who holds it.
    pub fn open(&self, at: &DeviceArg) -> Result<Arc<dyn ZonedDevice>> {
        Ok(zoned::open(&at.device, Arc::clone(&self.driver))?)
    }

    /// Opens the device and mounts its file system.
    pub fn mount(&self, at: &DeviceArg, read_only: bool) -> Result<Fs> {
        let device = self.open(at)?;
        let options = MountOptions { read_only, ..MountOptions::default() };
        Ok(self.wait(Fs::mount(device, &options))?)
    }

    /// Runs a future to its end on this thread.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        units::block_on(&*self.driver, future)
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// Waits.
    pub fn sleep(&self, time: Duration) {
        self.wait(units::sleep_until(&*self.driver, self.now().after(time)));
    }
}
