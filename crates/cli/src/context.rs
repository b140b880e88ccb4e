//! What every command needs: the clock, the way of printing, the way to a device and a file system.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::fs::{Fs, MountOptions};
use anyhow::Result;
use units::{Driver, Instant, RealDriver};
use zoned::{DeviceUrl, ZonedDevice};

use crate::args::DeviceArg;
use crate::exit;

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

    /// Opens the device and makes a drive file that is not there. Its error says which parameter was wrong, or who
    /// holds it.
    pub fn open_or_create(&self, at: &DeviceArg) -> Result<Arc<dyn ZonedDevice>> {
        Ok(zoned::open_or_create(&at.device, Arc::clone(&self.driver))?)
    }

    /// Fails where [`open_or_create`](Context::open_or_create) would, and makes nothing.
    pub fn try_open(&self, at: &DeviceArg) -> Result<()> {
        match at.device.parse()? {
            // To assemble an array writes to it, and a rebuild would go on.
            DeviceUrl::Array(rest) => drop(::array::url::members(&rest, &self.driver)?),
            url if url.exists() => drop(url.open(Arc::clone(&self.driver))?),
            _ => {}
        }
        Ok(())
    }

    /// Opens a device that is there. Its error says which parameter was wrong, or who holds it.
    pub fn open(&self, at: &DeviceArg) -> Result<Arc<dyn ZonedDevice>> {
        Ok(zoned::open(&at.device, Arc::clone(&self.driver))?)
    }

    /// Opens the device and mounts its file system.
    pub fn mount(&self, at: &DeviceArg, read_only: bool) -> Result<Fs> {
        let device = self.open(at)?;
        let options = MountOptions { read_only, ..MountOptions::default() };
        let mounted = self.wait(Fs::mount(Arc::clone(&device), &options));
        mounted.map_err(|error| on(&device, error))
    }

    /// Runs a future to its end on this thread.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        units::block_on(&*self.driver, future)
    }

    /// The clock.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// The time of day, in ms since 1970.
    pub fn unix_millis(&self) -> u64 {
        self.driver.unix_millis()
    }

    /// Waits.
    pub fn sleep(&self, time: Duration) {
        self.wait(units::sleep_until(&*self.driver, self.now().after(time)));
    }
}

/// A file system's error with the name of its drive, if it does not say it itself.
pub fn on(device: &Arc<dyn ZonedDevice>, error: ::fs::Error) -> anyhow::Error {
    let name = &*device.geometry().name;
    let error = anyhow::Error::from(error);
    if exit::message(&error).contains(name) { error } else { error.context(name.to_owned()) }
}
