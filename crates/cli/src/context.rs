//! The context that every command gets: the clock, the output format, and the opening of devices and file systems.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::fs::{Fs, MountOptions};
use anyhow::Result;
use units::{Driver, Instant, RealDriver};
use zoned::contents::Contents;
use zoned::{DeviceUrl, ZonedDevice};

use crate::args::DeviceArg;
use crate::exit::{self, Failure};

/// The context that every command gets.
#[derive(Clone, Debug)]
pub struct Context {
    /// Whether the command prints JSON.
    pub json: bool,
    driver: Arc<dyn Driver>,
}

impl Context {
    /// A command's context on the real clock.
    pub fn new(json: bool) -> Context {
        Context { json, driver: RealDriver::new() }
    }

    /// Opens a device; makes a drive file that does not exist.
    pub fn open_or_create(&self, at: &DeviceArg) -> Result<Arc<dyn ZonedDevice>> {
        Ok(zoned::open_or_create(&at.device, Arc::clone(&self.driver))?)
    }

    /// Fails where a mount of the device would fail for its URL, its holder, or because it is an array's member.
    /// Writes nothing.
    pub fn try_open(&self, at: &DeviceArg) -> Result<()> {
        match at.device.parse()? {
            // An array is not assembled, as that would write to it, and resume a rebuild.
            DeviceUrl::Array(rest) => drop(::array::url::members(&rest, &self.driver)?),
            url if url.exists() => self.refuse_member(&url.open(Arc::clone(&self.driver))?)?,
            _ => {}
        }
        Ok(())
    }

    /// Opens a device that exists.
    pub fn open(&self, at: &DeviceArg) -> Result<Arc<dyn ZonedDevice>> {
        Ok(zoned::open(&at.device, Arc::clone(&self.driver))?)
    }

    /// Opens a device and mounts its file system.
    pub fn mount(&self, at: &DeviceArg, read_only: bool) -> Result<Fs> {
        let device = self.open(at)?;
        let options = MountOptions { read_only, ..MountOptions::default() };
        let mounted = self.wait(Fs::mount(Arc::clone(&device), &options));
        mounted.map_err(|error| self.on(&device, error))
    }

    /// A file system's error with the name of its drive. An array's member holds no file system of its own: its error
    /// names the array instead, as advice to format the member would destroy the array.
    pub fn on(&self, device: &Arc<dyn ZonedDevice>, error: ::fs::Error) -> anyhow::Error {
        if let Err(member) = self.refuse_member(device) {
            return member;
        }
        let name = &*device.geometry().name;
        let error = anyhow::Error::from(error);
        if exit::message(&error).contains(name) { error } else { error.context(name.to_owned()) }
    }

    /// Fails where a device is a member of an array.
    pub fn refuse_member(&self, device: &Arc<dyn ZonedDevice>) -> Result<()> {
        let Some(member) = self.wait(Contents::read(&**device)).ok().and_then(|contents| contents.array)
        else {
            return Ok(());
        };
        Err(Failure::usage(format!(
            "{} is {member}, and holds no file system of its own: use the whole array, --device array:URL,URL,URL, \
             array:FILE or array:NAME",
            device.geometry().name,
        )))
    }

    /// Runs a future to its end on this thread.
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        units::block_on(&*self.driver, future)
    }

    /// The driver of the command's clock.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    /// The time on the command's clock.
    pub fn now(&self) -> Instant {
        self.driver.now()
    }

    /// The time of day, in ms since 1970.
    pub fn unix_millis(&self) -> u64 {
        self.driver.unix_millis()
    }

    /// Sleeps on the command's clock.
    pub fn sleep(&self, time: Duration) {
        self.wait(units::sleep_until(&*self.driver, self.now().after(time)));
    }
}
