//! The work of a mount is proportional to the metadata, not to the size of the drive.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

#[path = "integration/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::data;
use fs::{FormatOptions, Fs, MountOptions};
use units::{Blocks, Bytes, Driver, RealDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Geometry, Io, Op, ZonedDevice};

const FILES: u32 = 50_000;
const ZONES: u32 = 75_000;
/// Bound on the memory of the test process in bytes, the emulated drive's content included.
const MAX_MEMORY_KIB: u64 = 512 << 10;

/// Peak memory of the test process in bytes.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A drive that counts zone reports, blocks read and operations.
#[derive(Debug)]
struct CountingDrive {
    emu: Arc<Emu>,
    reports: AtomicU64,
    blocks_read: AtomicU64,
    operations: AtomicU64,
}

impl ZonedDevice for CountingDrive {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let blocks = if let Op::Read { into, .. } = &op { into.len() as u64 / 4096 } else { 0 };
        self.blocks_read.fetch_add(blocks, Ordering::Relaxed);
        self.reports.fetch_add(u64::from(matches!(op, Op::Report { .. })), Ordering::Relaxed);
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

#[test]
fn a_mount_of_50_000_files_on_75_000_zones_takes_memory_and_reads_in_proportion_to_the_metadata() {
    let driver = RealDriver::new();
    let options = EmuOptions {
        zones: ZONES,
        zone_size: Blocks(4096),
        zone_capacity: Blocks(4096),
        max_open: Some(14),
        max_active: Some(14),
        ..EmuOptions::default()
    };
    let emu = Emu::memory(options, driver.clone());
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        let fs = Fs::mount(Arc::clone(&dev), &MountOptions::default()).await.unwrap();
        for n in 0..FILES {
            if n % 1000 == 0 {
                fs.mkdir(&format!("/{}", n / 1000)).await.unwrap();
            }
            let writer = fs.create(&format!("/{}/table-{n:06}.sst", n / 1000), &data()).await.unwrap();
            // Only some of the files have content, so that the drive's blocks fit into memory.
            if n % 10 == 0 {
                writer.append(&n.to_le_bytes()).await.unwrap();
            }
            writer.close().await.unwrap();
        }
        fs.unmount().await.unwrap();
    });
    let counter = Arc::new(CountingDrive {
        emu,
        reports: AtomicU64::new(0),
        blocks_read: AtomicU64::new(0),
        operations: AtomicU64::new(0),
    });
    let fs = block_on(&*driver, Fs::mount(counter.clone(), &MountOptions::default())).unwrap();
    let (reports, blocks, operations) = (
        counter.reports.load(Ordering::Relaxed),
        counter.blocks_read.load(Ordering::Relaxed),
        counter.operations.load(Ordering::Relaxed),
    );
    println!("{reports} reports, {blocks} blocks read, {operations} operations");
    assert_eq!(reports, 1);
    assert!(blocks < 20 << 20 >> 12, "{blocks} blocks");
    assert!(operations < 1000, "{operations} operations");
    assert_eq!(fs.statfs().files, u64::from(FILES) + 50);
    let reader = fs.open("/49/table-049990.sst").unwrap();
    let mut content = [0; 4];
    block_on(&*driver, reader.read_at(Bytes(0), &mut content)).unwrap();
    assert_eq!(u32::from_le_bytes(content), 49_990);
    block_on(&*driver, fs.unmount()).unwrap();
    let peak = peak_kib();
    println!("at most {peak} KiB in use");
    assert!(peak < MAX_MEMORY_KIB, "{peak} KiB");
}

#[test]
fn a_long_metadata_log_is_rolled_although_its_zone_has_room() {
    let size = Blocks(32_768);
    let latency = Latency::all(Duration::from_micros(1));
    let options =
        EmuOptions { zones: 16, zone_size: size, zone_capacity: size, latency, ..EmuOptions::default() };
    let (drive, fs) = common::Drive::formatted(options);
    drive.run(async {
        fs.mkdir("/a").await.unwrap();
        for _ in 0..10_000 {
            for (from, to) in [("/a", "/b"), ("/b", "/a")] {
                fs.rename(from, to).await.unwrap();
                fs.sync().await.unwrap();
            }
        }
        fs.unmount().await.unwrap();
    });
    let written = fs.zone_map().into_iter().filter(|z| z.role == fs::ZoneRole::Metadata).map(|z| z.pointer.0);
    assert!(written.sum::<u64>() < 18_000);
}
