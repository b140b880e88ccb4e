//! A tiny drive on the virtual clock.
#![allow(dead_code, reason = "each test crate uses a part of it")]

use std::future::Future;
use std::sync::Arc;

use fs::{CreateOptions, FileKind, FormatOptions, Fs, MountOptions};
use units::{Bytes, Driver, VirtualDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Latency, Media};

pub struct Drive {
    pub driver: Arc<VirtualDriver>,
    pub emu: Arc<Emu>,
}

impl Drive {
    pub fn new(options: EmuOptions) -> Drive {
        let driver = VirtualDriver::new(7);
        let emu = Emu::memory(options, driver.clone());
        Drive { driver, emu }
    }

    pub fn tiny() -> Drive {
        Drive::new(EmuOptions::tiny())
    }

    pub fn from_media(media: Media) -> Drive {
        let driver = VirtualDriver::new(7);
        let emu = Emu::from_media(media, "emu:mem", Latency::default(), driver.clone());
        Drive { driver, emu }
    }

    pub fn dev(&self) -> Arc<dyn ZonedDevice> {
        self.emu.clone()
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&*self.driver, future)
    }

    pub fn format(&self) {
        let dev = self.dev();
        self.run(Fs::format(&dev, &FormatOptions::default())).expect("formats");
    }

    pub fn try_mount(&self) -> fs::Result<Fs> {
        self.run(Fs::mount(self.dev(), &MountOptions { write_buffer: 16 << 10, ..MountOptions::default() }))
    }

    pub fn mount(&self) -> Fs {
        self.try_mount().expect("mounts")
    }

    pub fn formatted(options: EmuOptions) -> (Drive, Fs) {
        let drive = Drive::new(options);
        drive.format();
        let fs = drive.mount();
        (drive, fs)
    }

    /// Unmounts nothing: the drive after a power cut that kept whatever `choose` says.
    pub fn cut(&self, choose: &mut dyn zoned::emu::Choose) -> Drive {
        Drive::from_media(self.emu.power_cut(choose))
    }

    pub fn check(&self) {
        let dev = self.dev();
        let report = self.run(Fs::check(&dev)).expect("checks");
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

pub fn log() -> CreateOptions {
    CreateOptions { kind: FileKind::Log, ..CreateOptions::default() }
}

pub fn data() -> CreateOptions {
    CreateOptions::default()
}

/// `len` bytes that differ from place to place and from seed to seed.
pub fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 7) as u8 ^ (i >> 11) as u8 ^ seed).collect()
}

pub async fn write(fs: &Fs, path: &str, content: &[u8]) -> fs::Result<()> {
    let writer = fs.create(path, &data()).await?;
    writer.append(content).await?;
    writer.sync().await?;
    writer.close().await
}

pub async fn read(fs: &Fs, path: &str) -> fs::Result<Vec<u8>> {
    let reader = fs.open(path)?;
    let mut content = vec![0; usize::try_from(reader.size().0).unwrap()];
    let n = reader.read_at(Bytes(0), &mut content).await?;
    content.truncate(n);
    Ok(content)
}

pub fn same_driver(fs: &Fs) -> &Arc<dyn Driver> {
    fs.driver()
}
