//! Opening a database reads its log once, with read-ahead, in bounded memory.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fs::wal::{LogOptions, MEMORY};
use fs::{FormatOptions, Fs, MountOptions};
use rocks::{Db, DbOptions, WriteBatch};
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Geometry, Io, Op, ZonedDevice};

const VALUES: u32 = 3000;
const VALUE: usize = 4000;
const BLOCK: usize = 4096;

/// A device that counts the blocks read from another device.
#[derive(Debug)]
struct CountingDevice {
    emu: Arc<Emu>,
    blocks: AtomicU64,
}

impl ZonedDevice for CountingDevice {
    fn geometry(&self) -> &Geometry {
        self.emu.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if let Op::Read { into, .. } = &op {
            self.blocks.fetch_add((into.len() / BLOCK) as u64, Ordering::Relaxed);
        }
        self.emu.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.emu.driver()
    }
}

fn database_options() -> DbOptions {
    DbOptions { keep_recovered: true, ..DbOptions::default() }
}

/// Mounts with log entries of one block, so that many reads are in flight.
fn mount(driver: &dyn Driver, device: &Arc<dyn ZonedDevice>) -> Fs {
    let log = LogOptions { buffer: BLOCK, ..LogOptions::default() };
    block_on(driver, Fs::mount(Arc::clone(device), &MountOptions { log, ..MountOptions::default() })).unwrap()
}

fn value(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(VALUE / 4)
}

fn write_values(db: &Db) {
    for n in 0..VALUES {
        let mut batch = WriteBatch::new();
        batch.put(&n.to_be_bytes(), &value(n));
        db.write(&batch, n + 1 == VALUES).unwrap();
    }
}

fn check_values(db: &Db) {
    for n in 0..VALUES {
        assert_eq!(&*db.get(&n.to_be_bytes()).unwrap().unwrap(), value(n));
    }
}

#[test]
fn opening_a_database_reads_its_log_once() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let zone = Blocks(2048);
    let options = EmuOptions {
        zones: 32,
        zone_size: zone,
        zone_capacity: zone,
        reorder: true,
        latency: Latency { write: std::time::Duration::from_micros(20), ..Latency::NONE },
        track_power_cuts: false,
        ..EmuOptions::default()
    };
    let drive = Arc::new(CountingDevice {
        emu: Emu::memory(options, Arc::clone(&driver)),
        blocks: AtomicU64::new(0),
    });
    let device: Arc<dyn ZonedDevice> = Arc::clone(&drive) as Arc<dyn ZonedDevice>;
    block_on(&*driver, Fs::format(&device, &FormatOptions::default())).unwrap();
    let fs = mount(&*driver, &device);
    let db = Db::open(&fs, "/db", &database_options()).unwrap();
    write_values(&db);
    // The copy of the media is taken here, as if the process were killed now.
    let killed = drive.emu.media();
    db.close().unwrap();
    block_on(&*driver, fs.unmount()).unwrap();

    let log_blocks = u64::from(VALUES) * (VALUE as u64 + 20) / (BLOCK as u64 - 64);
    for opening in 0..2 {
        let fs = mount(&*driver, &device);
        drive.blocks.store(0, Ordering::Relaxed);
        let db = Db::open(&fs, "/db", &database_options()).unwrap();
        let read = drive.blocks.load(Ordering::Relaxed);
        assert!(read >= log_blocks && read < log_blocks + 200, "opening {opening}: {read} for {log_blocks}");
        let replayed = db.replayed();
        let log = replayed.iter().max_by_key(|log| log.stats.bytes).unwrap();
        assert!(log.stats.bytes.0 > u64::from(VALUES) * VALUE as u64);
        assert!(log.stats.peak > fs::Bytes(0) && log.stats.peak <= MEMORY, "{log:?}");
        check_values(&db);
        db.close().unwrap();
        block_on(&*driver, fs.unmount()).unwrap();
    }

    // The log was not closed. The mount rebuilds the log's index, and RocksDB reads the log along that index.
    let device: Arc<dyn ZonedDevice> =
        Emu::from_media(killed, "after the kill", Latency::default(), Arc::clone(&driver));
    let fs = mount(&*driver, &device);
    let db = Db::open(&fs, "/db", &database_options()).unwrap();
    assert!(db.replayed().iter().any(|log| log.stats.bytes.0 > u64::from(VALUES) * VALUE as u64));
    check_values(&db);
    db.close().unwrap();
    block_on(&*driver, fs.unmount()).unwrap();
}

#[test]
fn a_database_on_the_host_is_the_same_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let db = Db::open_on_host(path, &database_options()).unwrap();
    assert_eq!(db.replayed(), []);
    write_values(&db);
    db.close().unwrap();
    let db = Db::open_on_host(path, &database_options()).unwrap();
    let replayed = db.replayed();
    let log = replayed.first().unwrap();
    assert!(log.stats.bytes.0 > u64::from(VALUES) * VALUE as u64);
    assert!(log.took > std::time::Duration::ZERO);
    check_values(&db);
    db.close().unwrap();
}
