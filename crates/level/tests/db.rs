//! Tests of the LevelDB wrapper over the emulated drive.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use fs::{CreateOptions, FileKind, FormatOptions, Fs, MountOptions};
use level::{Db, DbOptions, WriteBatch};
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};

const PATH: &str = "/db";

fn formatted_drive(driver: &Arc<dyn Driver>) -> Arc<Emu> {
    drive_with_conventional_zones(driver, 0)
}

fn drive_with_conventional_zones(driver: &Arc<dyn Driver>, conventional: u32) -> Arc<Emu> {
    let zone = Blocks(1024);
    let options = EmuOptions {
        zones: 48 + conventional,
        conventional,
        zone_size: zone,
        zone_capacity: zone,
        ..EmuOptions::default()
    };
    let emu = Emu::memory(options, Arc::clone(driver));
    let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
    block_on(&**driver, Fs::format(&device, &FormatOptions::default())).unwrap();
    emu
}

fn mount(emu: &Arc<Emu>) -> Fs {
    let device: Arc<dyn ZonedDevice> = Arc::clone(emu) as Arc<dyn ZonedDevice>;
    block_on(&**emu.driver(), Fs::mount(device, &MountOptions::default())).unwrap()
}

fn unmount(fs: &Fs) {
    block_on(&**fs.driver(), fs.unmount()).unwrap();
}

fn small_options() -> DbOptions {
    DbOptions { write_buffer: 64 << 10, block_cache: 1 << 20, table_size: 1 << 20, ..DbOptions::default() }
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("value {n} ").repeat(40).into_bytes()
}

fn put(db: &Db, numbers: std::ops::Range<u32>, sync: bool) {
    for n in numbers {
        let mut batch = WriteBatch::new();
        batch.put(&key(n), &value(n));
        db.write(&mut batch, sync).unwrap();
    }
}

fn keys(db: &Db) -> Vec<Vec<u8>> {
    let mut cursor = db.iter(b"");
    let mut keys = Vec::new();
    while cursor.valid() {
        keys.push(cursor.key().to_vec());
        cursor.next();
    }
    cursor.status().unwrap();
    keys
}

#[test]
fn what_was_written_is_read_in_order_also_by_the_next_opening() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let emu = formatted_drive(&driver);
    let fs = mount(&emu);
    let db = Db::open(&fs, PATH, &small_options()).unwrap();
    // Enough for several memtables: most keys come from tables.
    put(&db, 0..2000, false);
    let mut batch = WriteBatch::new();
    batch.put(b"key", b"first");
    batch.delete(&key(7));
    db.write(&mut batch, true).unwrap();
    batch.clear();
    db.write(&mut batch, true).unwrap();
    assert_eq!(db.get(&key(8)).unwrap(), Some(value(8)));
    assert_eq!(db.get(&key(7)).unwrap(), None);
    let expected: Vec<Vec<u8>> =
        [b"key".to_vec()].into_iter().chain((0..2000).filter(|n| *n != 7).map(key)).collect();
    assert_eq!(keys(&db), expected);
    assert_eq!(db.iter(&key(1999)).value(), value(1999));
    assert!(db.property("leveldb.stats").is_some_and(|text| text.contains("Compactions")));
    drop(db);
    unmount(&fs);
    let fs = mount(&emu);
    let db = Db::open(&fs, PATH, &DbOptions { create: false, ..small_options() }).unwrap();
    assert_eq!(keys(&db), expected);
    db.compact();
    assert_eq!(keys(&db), expected);
    drop(db);
    unmount(&fs);
}

#[test]
fn the_manifest_is_a_log_where_logs_go_to_conventional_zones() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    for (conventional, expected) in [(0, FileKind::Data), (4, FileKind::Log)] {
        let emu = drive_with_conventional_zones(&driver, conventional);
        for opening in 1..4 {
            let fs = mount(&emu);
            let db = Db::open(&fs, PATH, &small_options()).unwrap();
            put(&db, 0..opening * 500, false);
            db.compact();
            let names = fs.read_dir(PATH).unwrap();
            let manifests: Vec<_> =
                names.iter().filter(|entry| entry.name.starts_with("MANIFEST-")).collect();
            assert!(manifests.len() == 1 && manifests[0].kind == expected, "{manifests:?}");
            assert_eq!(keys(&db), (0..opening * 500).map(key).collect::<Vec<_>>());
            drop(db);
            unmount(&fs);
        }
    }
}

#[test]
fn a_power_cut_leaves_a_prefix_with_all_synced_writes_also_while_logs_change() {
    // A memtable of 64 KiB is full after some of these values: the log changes close to the synced write.
    let long = [7; 9000];
    for round in 0..60 {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let emu = drive_with_conventional_zones(&driver, round % 2 * 4);
        let fs = mount(&emu);
        let db = Db::open(&fs, PATH, &small_options()).unwrap();
        let synced = 5 + round % 6;
        for n in 0..=synced {
            let mut batch = WriteBatch::new();
            batch.put(&key(n), &long);
            db.write(&mut batch, n == synced).unwrap();
        }
        let media = emu.media().cut(&mut Seeded::new(u64::from(round)));
        drop(db);
        unmount(&fs);
        let after = Emu::from_media(media, "after the cut", Latency::default(), Arc::clone(&driver));
        let fs = mount(&after);
        let db = Db::open(&fs, PATH, &DbOptions { create: false, ..small_options() }).unwrap();
        assert_eq!(keys(&db), (0..=synced).map(key).collect::<Vec<_>>(), "round {round}");
        drop(db);
        unmount(&fs);
    }
}

#[test]
fn a_missing_database_and_one_that_is_open_are_refused_with_the_reason() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let emu = formatted_drive(&driver);
    let fs = mount(&emu);
    let missing = Db::open(&fs, PATH, &DbOptions { create: false, ..small_options() }).unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
    let db = Db::open(&fs, PATH, &small_options()).unwrap();
    let held = Db::open(&fs, PATH, &small_options()).unwrap_err();
    assert!(held.to_string().contains("LOCK"), "{held}");
    let zero = Db::open(&fs, "/a\0b", &small_options()).unwrap_err();
    assert!(zero.to_string().contains("zero byte"), "{zero}");
    drop(db);
    unmount(&fs);
}

#[test]
fn what_is_acknowledged_around_a_full_drive_is_there_at_the_next_opening() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let zone = Blocks(64);
    let options = EmuOptions { zones: 64, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() };
    let emu = Emu::memory(options, Arc::clone(&driver));
    let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
    block_on(&*driver, Fs::format(&device, &FormatOptions::default())).unwrap();
    let fs = mount(&emu);
    let db = Db::open(&fs, PATH, &small_options()).unwrap();
    put(&db, 0..1, true);
    // The log fills the rest of its zone, and finds no other one.
    block_on(&*driver, async {
        let writer = fs.create("/filler", &CreateOptions::default()).await.unwrap();
        while writer.append(&vec![1; 64 << 10]).await.is_ok() {}
        let _full = writer.close().await;
    });
    let mut acknowledged = vec![key(0)];
    let mut write = |n: u32, value: &[u8], sync: bool| {
        let mut batch = WriteBatch::new();
        batch.put(&key(n), value);
        let written = db.write(&mut batch, sync).is_ok();
        acknowledged.extend((written && sync).then(|| key(n)));
        written
    };
    let written = (1..60).filter(|n| write(*n, &value(*n).repeat(200), false)).count();
    assert!(written < 59, "4 MB went into a full drive");
    block_on(&*driver, async {
        fs.unlink("/filler").await.unwrap();
        fs.sync().await.unwrap();
    });
    for n in 100..120 {
        write(n, b"later", true);
    }
    drop(db);
    unmount(&fs);
    let fs = mount(&emu);
    let db = Db::open(&fs, PATH, &DbOptions { create: false, ..small_options() }).unwrap();
    let found = keys(&db);
    assert!(acknowledged.iter().all(|key| found.contains(key)), "{acknowledged:?} in {found:?}");
    // Opened again, the database takes writes.
    put(&db, 5000..5001, true);
    drop(db);
    unmount(&fs);
}
