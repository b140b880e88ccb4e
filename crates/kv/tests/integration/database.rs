//! Tests of a database with either log: restarts, crashes and changes of the log.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use fs::{FormatOptions, Fs, MountOptions, ParallelOptions};
use kv::parallel_wal::{Database, DatabaseOptions, LOG_FILE, WalMode, log_limits};
use rocks::{DbOptions, WriteBatch};
use units::{Blocks, Driver, RealDriver, block_on};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};

const DIR: &str = "/db";

fn mount(emu: &Arc<Emu>, format: bool) -> Fs {
    let device = Arc::clone(emu) as Arc<dyn ZonedDevice>;
    let driver = Arc::clone(device.driver());
    block_on(&*driver, async {
        if format {
            Fs::format(&device, &FormatOptions::default()).await.unwrap();
        }
        Fs::mount(device, &MountOptions::default()).await.unwrap()
    })
}

fn drive() -> Arc<Emu> {
    let zone = Blocks(1024);
    let options = EmuOptions { zones: 64, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() };
    Emu::memory(options, RealDriver::new())
}

fn options(wal: WalMode) -> DatabaseOptions {
    let db = DbOptions {
        write_buffer: 64 << 10,
        block_cache: 1 << 20,
        background_jobs: 2,
        ..DbOptions::default()
    };
    DatabaseOptions { wal, db, parallel_wal: None }
}

fn open(fs: &Fs, wal: WalMode) -> Database {
    Database::open(fs, DIR, &options(wal)).unwrap()
}

fn put(db: &Database, model: &mut BTreeMap<String, String>, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    batch.put(b"last", value.as_bytes());
    db.write(&mut batch, true).unwrap();
    model.insert(key.to_owned(), value.to_owned());
    model.insert("last".into(), value.to_owned());
}

fn contents(db: &Database) -> BTreeMap<String, String> {
    let mut cursor = db.db().iter(b"").unwrap();
    let mut found = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    while cursor.valid() {
        found.insert(text(cursor.key()), text(cursor.value()));
        cursor.next();
    }
    cursor.status().unwrap();
    found
}

fn has_log(fs: &Fs) -> bool {
    fs.stat(&format!("{DIR}/{LOG_FILE}")).is_ok()
}

/// Opens one database in every mode after every mode, closed or crashed in between.
#[test]
fn any_mode_opens_a_database_of_any_other_mode() {
    let mut emu = drive();
    let mut model = BTreeMap::new();
    let mut fs = mount(&emu, true);
    let mut seed = 0;
    for before in WalMode::ALL {
        for after in WalMode::ALL {
            for crash in [false, true] {
                let what = format!("{before}, {}, {after}", if crash { "a power cut" } else { "closed" });
                let db = open(&fs, before);
                assert_eq!(contents(&db), model, "before {what}");
                for n in 0..20 {
                    put(&db, &mut model, &format!("k{n}"), &format!("{what} {n}"));
                }
                let cut = crash.then(|| emu.media().cut(&mut Seeded::new(seed)));
                db.close().unwrap();
                assert!(!has_log(&fs), "{what}");
                if let Some(media) = cut {
                    block_on(&**fs.driver(), fs.unmount()).unwrap();
                    let driver: Arc<dyn Driver> = RealDriver::new();
                    emu = Emu::from_media(media, "after the cut", Latency::default(), driver);
                    fs = mount(&emu, false);
                    assert_eq!(has_log(&fs), before != WalMode::Group, "{what}");
                    seed += 1;
                }
                let db = open(&fs, after);
                assert_eq!((db.wal(), contents(&db)), (after, model.clone()), "{what}");
                assert_eq!(has_log(&fs), after != WalMode::Group, "{what}");
                assert_eq!(db.log_stats().is_some(), after != WalMode::Group);
                put(&db, &mut model, "after", &what);
                db.close().unwrap();
            }
        }
    }
    block_on(&**fs.driver(), fs.unmount()).unwrap();
}

#[test]
fn writers_of_many_threads_keep_each_keys_last_value() {
    for wal in WalMode::ALL {
        let emu = drive();
        let fs = mount(&emu, true);
        let db = open(&fs, wal);
        std::thread::scope(|scope| {
            for t in 0..8 {
                let db = &db;
                scope.spawn(move || {
                    let mut model = BTreeMap::new();
                    for n in 0..50 {
                        put(db, &mut model, &format!("t{t}"), &n.to_string());
                    }
                });
            }
        });
        let last = contents(&db);
        for t in 0..8 {
            assert_eq!(last[&format!("t{t}")], "49", "{wal}");
        }
        if let Some(stats) = db.log_stats() {
            assert_eq!(stats.records, 400, "{wal}");
        }
        db.close().unwrap();
        let mut late = WriteBatch::new();
        late.put(b"late", b"1");
        assert!(db.write(&mut late, true).is_err(), "{wal}");
        block_on(&**fs.driver(), fs.unmount()).unwrap();
    }
}

#[test]
fn memtables_are_flushed_when_the_log_exceeds_its_share_of_the_drive() {
    let fs = mount(&drive(), true);
    let limit = log_limits(&fs).log_limit;
    assert!(limit <= fs.statfs().capacity.0 / 8, "{limit}");
    let settings = options(WalMode::Waltz);
    // A small record takes a few bytes of a memtable and a whole block of the log.
    let db = DbOptions { write_buffer: 64 << 20, ..settings.db };
    let db = Database::open(&fs, DIR, &DatabaseOptions { db, ..settings }).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"key", b"value");
    for _ in 0..=limit / 4096 {
        db.write(&mut batch, false).unwrap();
    }
    assert!(db.held_records().unwrap().flushes_asked > 0, "{:?}", db.held_records());
    db.close().unwrap();
    block_on(&**fs.driver(), fs.unmount()).unwrap();
}

/// RocksDB does not close while a cursor is open, and then the parallel WAL stays open too.
#[test]
fn a_close_that_is_refused_closes_nothing() {
    let emu = drive();
    let fs = mount(&emu, true);
    for wal in WalMode::ALL {
        let (db, mut model) = (open(&fs, wal), BTreeMap::new());
        put(&db, &mut model, "before", "1");
        let cursor = db.db().iter(b"").unwrap();
        let error = db.close().unwrap_err().to_string();
        assert!(error.contains("1 cursors are open"), "{error}");
        put(&db, &mut model, "after", "2");
        drop(cursor);
        assert_eq!(contents(&db), model, "{wal}");
        db.close().unwrap();
        assert!(!has_log(&fs), "{wal}");
    }
    block_on(&**fs.driver(), fs.unmount()).unwrap();
}

/// If the failed opening had left the log open, the next opening would find it busy.
#[test]
fn a_failed_opening_leaves_nothing_open() {
    let zone = Blocks(1024);
    let latency = Latency::all(std::time::Duration::from_millis(2));
    let options =
        EmuOptions { zones: 64, zone_size: zone, zone_capacity: zone, latency, ..EmuOptions::default() };
    let emu = Emu::memory(options, RealDriver::new());
    let fs = mount(&emu, true);
    open(&fs, WalMode::Waltz).close().unwrap();
    block_on(&**fs.driver(), async {
        let path = format!("{DIR}/{LOG_FILE}");
        let (log, _held) = fs.parallel_log(&path, &ParallelOptions::default()).await.unwrap();
        // A log record with a `WriteBatch` whose only record has an unknown kind.
        log.append(b"\0\0\0\0\0\0\0\0\x01\0\0\0\x7f", true).await.unwrap();
        log.close().await.unwrap();
    });
    for _ in 0..5 {
        let error = Database::open(&fs, DIR, &self::options(WalMode::Waltz)).unwrap_err().to_string();
        assert!(error.contains("WriteBatch"), "{error}");
    }
    block_on(&**fs.driver(), fs.unmount()).unwrap();
}
