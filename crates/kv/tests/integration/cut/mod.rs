//! An emulated drive and its images after power cuts.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use fs::{BrokenRule, FormatOptions, Fs, MountOptions};
use rocks::DbOptions;
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};

pub struct Drive {
    pub driver: Arc<dyn Driver>,
    pub emu: Arc<Emu>,
}

impl Drive {
    pub fn new() -> Drive {
        let zone = Blocks(1024);
        Drive::of(EmuOptions { zones: 64, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() })
    }

    pub fn of(options: EmuOptions) -> Drive {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let drive = Drive { emu: Emu::memory(options, Arc::clone(&driver)), driver };
        block_on(&*drive.driver, Fs::format(&drive.device(), &FormatOptions::default())).unwrap();
        drive
    }

    pub fn device(&self) -> Arc<dyn ZonedDevice> {
        Arc::clone(&self.emu) as Arc<dyn ZonedDevice>
    }

    pub fn after_a_cut(&self, seed: u64) -> Drive {
        let media = self.emu.media().cut(&mut Seeded::new(seed));
        let emu = Emu::from_media(media, "after the cut", Latency::default(), Arc::clone(&self.driver));
        Drive { emu, driver: Arc::clone(&self.driver) }
    }

    pub fn mount(&self) -> Fs {
        self.mount_with(None)
    }

    /// Mounts the drive's file system, with a rule of its log broken.
    pub fn mount_with(&self, broken_rule: Option<BrokenRule>) -> Fs {
        let options = MountOptions { broken_rule, ..MountOptions::default() };
        block_on(&*self.driver, Fs::mount(self.device(), &options)).unwrap()
    }
}

pub fn options(unlogged: bool) -> DbOptions {
    let small = DbOptions { write_buffer: 64 << 10, block_cache: 1 << 20, ..DbOptions::default() };
    DbOptions { background_jobs: 2, unlogged, adds: true, ..small }
}
