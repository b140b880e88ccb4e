//! A small emulated drive on the virtual clock, for tests of the file system.
#![allow(dead_code, reason = "each test crate uses a part of it")]

pub mod parallel;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs::{CreateOptions, FileKind, FormatOptions, Fs, MountOptions};
use units::{Bytes, Driver, VirtualDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency, Media};
use zoned::{Geometry, Io, Op, ZonedDevice};

#[derive(Debug)]
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

    /// The drive after a power cut at this moment, without an unmount. `choose` decides which unsynced writes
    /// survive.
    pub fn cut(&self, choose: &mut dyn zoned::emu::Choose) -> Drive {
        Drive::from_media(self.emu.power_cut(choose))
    }

    pub fn check(&self) {
        let dev = self.dev();
        let report = self.run(Fs::check(&dev)).expect("checks");
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

/// A drive that counts device reads.
#[derive(Debug)]
pub struct Counter {
    emu: Arc<Emu>,
    pub reads: AtomicU64,
    pub blocks: AtomicU64,
}

impl Counter {
    pub fn over(drive: &Drive) -> Arc<Counter> {
        Arc::new(Counter { emu: drive.emu.clone(), reads: AtomicU64::new(0), blocks: AtomicU64::new(0) })
    }

    /// Number of device reads, and of blocks read, since the last call.
    pub fn take(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.blocks.swap(0, Ordering::Relaxed))
    }
}

impl ZonedDevice for Counter {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if let Op::Read { into, .. } = &op {
            let blocks = into.len() as u64 / u64::from(self.geometry().block_size);
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.blocks.fetch_add(blocks, Ordering::Relaxed);
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

pub fn log() -> CreateOptions {
    CreateOptions { kind: FileKind::Log, ..CreateOptions::default() }
}

pub fn data() -> CreateOptions {
    CreateOptions::default()
}

/// `len` test bytes that differ by offset and by seed.
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
