//! Tests of the database wrapper over the emulated drive.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use fs::{FormatOptions, Fs, MountOptions};
use rocks::{Db, DbOptions, ErrorKind, WriteBatch};
use units::{Blocks, Bytes, Driver, RealDriver, block_on};
use zoned::emu::{Emu, EmuOptions, Latency, Seeded};
use zoned::{Geometry, Io, IoClass, Op, ZonedDevice};

struct Drive {
    driver: Arc<dyn Driver>,
    emu: Arc<Emu>,
    device: Arc<dyn ZonedDevice>,
}

impl Drive {
    fn new() -> Drive {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let zone = Blocks(1024);
        let options = EmuOptions { zones: 64, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() };
        let drive = Drive::of_emulator(Emu::memory(options, Arc::clone(&driver)), driver);
        block_on(&*drive.driver, Fs::format(&drive.device, &FormatOptions::default())).unwrap();
        drive
    }

    fn of_emulator(emu: Arc<Emu>, driver: Arc<dyn Driver>) -> Drive {
        let device: Arc<dyn ZonedDevice> = Arc::clone(&emu) as Arc<dyn ZonedDevice>;
        Drive { driver, emu, device }
    }

    /// The drive after a power cut now. The seed decides which of the writes that were not durable survive.
    fn after_a_cut(&self, seed: u64) -> Drive {
        let media = self.emu.media().cut(&mut Seeded::new(seed));
        let emu = Emu::from_media(media, "after the cut", Latency::default(), Arc::clone(&self.driver));
        Drive::of_emulator(emu, Arc::clone(&self.driver))
    }

    fn mount(&self) -> Fs {
        block_on(&*self.driver, Fs::mount(Arc::clone(&self.device), &MountOptions::default())).unwrap()
    }

    fn unmount(&self, fs: &Fs) {
        block_on(&*self.driver, fs.unmount()).unwrap();
    }
}

fn small_options() -> DbOptions {
    DbOptions { write_buffer: 256 << 10, block_cache: 1 << 20, background_jobs: 2, ..DbOptions::default() }
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:08}").into_bytes()
}

/// A value whose expiry is "never".
fn value_without_expiry(i: u32) -> Vec<u8> {
    let mut value = 0u64.to_le_bytes().to_vec();
    value.extend(format!("value {i} ").repeat(20).into_bytes());
    value
}

fn fill(db: &Db, range: std::ops::Range<u32>, sync: bool) {
    let mut batch = WriteBatch::new();
    for i in range {
        batch.put(&key(i), &value_without_expiry(i));
        if batch.len() == 100 {
            db.write(&batch, sync).unwrap();
            batch.clear();
        }
    }
    db.write(&batch, sync).unwrap();
}

fn all_keys(db: &Db) -> Vec<Vec<u8>> {
    let mut cursor = db.iter(b"").unwrap();
    let mut found = Vec::new();
    while cursor.valid() {
        found.push(cursor.key().to_vec());
        cursor.next();
    }
    cursor.status().unwrap();
    found
}

#[test]
fn keys_survive_flush_compaction_and_reopen() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    fill(&db, 0..4000, false);
    assert_eq!(db.get(&key(17)).unwrap().as_deref(), Some(&value_without_expiry(17)[..]));
    assert!(db.get(b"absent").unwrap().is_none());
    db.flush().unwrap();
    fill(&db, 4000..5000, false);
    db.compact().unwrap();
    assert_eq!(all_keys(&db).len(), 5000);
    let (a, b) = (key(0), key(4999));
    let found = db.multi_get(&[&a, b"absent", &b]).unwrap();
    assert_eq!(found[0].as_deref(), Some(&value_without_expiry(0)[..]));
    assert!(found[1].is_none());
    assert_eq!(found[2].as_deref(), Some(&value_without_expiry(4999)[..]));
    assert_ne!(db.property("rocksdb.estimate-num-keys").unwrap(), "0");
    assert!(db.property("rocksdb.no-such").is_none());
    db.close().unwrap();
    drive.unmount(&fs);

    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    assert_eq!(all_keys(&db), (0..5000).map(key).collect::<Vec<_>>());
    drop(db);
    drive.unmount(&fs);
    let report = block_on(&*drive.driver, Fs::check(&drive.device)).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[test]
fn synced_writes_survive_without_a_clean_close() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    fill(&db, 0..300, true);
    fill(&db, 300..310, false);
    db.sync_wal().unwrap();
    for seed in 0..4 {
        let after = drive.after_a_cut(seed);
        let fs = after.mount();
        let db = Db::open(&fs, "/db", &small_options()).unwrap();
        assert_eq!(all_keys(&db), (0..310).map(key).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn deletes_and_range_deletes_hide_what_they_cover() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    fill(&db, 0..100, false);
    let mut batch = WriteBatch::new();
    batch.delete(&key(5));
    batch.delete_range(&key(10), &key(90));
    batch.delete_range(&key(99), &key(98));
    assert_eq!(batch.len(), 2);
    assert!(batch.byte_size() > 0);
    db.write(&batch, true).unwrap();
    let left: Vec<_> = (0..5).chain(6..10).chain(90..100).map(key).collect();
    assert_eq!(all_keys(&db), left);
    let mut cursor = db.iter(&key(50)).unwrap();
    assert_eq!(cursor.key(), key(90));
    cursor.seek(&key(1));
    assert_eq!((cursor.key(), cursor.value()), (&key(1)[..], &value_without_expiry(1)[..]));
}

#[test]
fn a_compaction_drops_what_has_expired_and_nothing_else() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &DbOptions { expiry: true, ..small_options() }).unwrap();
    let now = drive.driver.unix_millis();
    let mut batch = WriteBatch::new();
    batch.put(b"gone", &[&(now - 1).to_le_bytes()[..], b"x"].concat());
    batch.put(b"later", &[&(now + 3_600_000).to_le_bytes()[..], b"x"].concat());
    batch.put(b"never", &[&0u64.to_le_bytes()[..], b"x"].concat());
    batch.put(b"short", b"x");
    db.write(&batch, false).unwrap();
    assert!(db.get(b"gone").unwrap().is_some(), "only a compaction drops");
    db.flush().unwrap();
    db.compact().unwrap();
    assert_eq!(all_keys(&db), [&b"later"[..], b"never", b"short"]);
}

#[test]
fn a_pinned_value_outlives_its_database() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    fill(&db, 0..2000, false);
    db.flush().unwrap();
    let pinned = db.get(&key(7)).unwrap().unwrap();
    db.close().unwrap();
    drop(db);
    assert_eq!(&*pinned, value_without_expiry(7));
}

#[test]
fn a_closed_database_says_so_and_a_cursor_keeps_it_open() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    let cursor = db.iter(b"").unwrap();
    assert_eq!(db.close().unwrap_err().kind(), ErrorKind::Busy);
    drop(cursor);
    db.close().unwrap();
    db.close().unwrap();
    assert_eq!(db.get(b"a").unwrap_err().kind(), ErrorKind::Closed);
    assert!(db.property("rocksdb.stats").is_none());
}

#[test]
fn a_database_is_opened_once_per_process() {
    let drive = Drive::new();
    let fs = drive.mount();
    let first = Db::open(&fs, "/db", &small_options()).unwrap();
    let error = Db::open(&fs, "/db", &small_options()).unwrap_err();
    assert!(error.to_string().contains("LOCK"), "{error}");
    first.close().unwrap();
    Db::open(&fs, "/db", &small_options()).unwrap();
}

#[test]
fn the_log_of_rocksdb_is_a_file_that_can_be_followed() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    let reader = fs.open("/db/LOG").unwrap();
    let mut text = vec![0; 1 << 20];
    let read = block_on(&*drive.driver, reader.read_at(fs::Bytes(0), &mut text)).unwrap();
    let text = String::from_utf8_lossy(&text[..read]).into_owned();
    assert!(text.contains("RocksDB version"), "{text}");
    db.close().unwrap();
}

#[test]
fn a_missing_database_is_not_made_unless_asked() {
    let drive = Drive::new();
    let fs = drive.mount();
    let error = Db::open(&fs, "/db", &DbOptions { create: false, ..small_options() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a scope would wait for ever for a thread that does")]
fn a_compaction_on_a_nearly_full_drive_ends() {
    for left in [12 << 20, 4 << 20, 1 << 20] {
        let driver: Arc<dyn Driver> = RealDriver::new();
        let zone = Blocks(256);
        let options = EmuOptions {
            zones: 48,
            zone_size: zone,
            zone_capacity: zone,
            track_power_cuts: false,
            ..EmuOptions::default()
        };
        let drive = Drive::of_emulator(Emu::memory(options, Arc::clone(&driver)), driver);
        block_on(&*drive.driver, Fs::format(&drive.device, &FormatOptions::default())).unwrap();
        let fs = drive.mount();
        let db = Arc::new(Db::open(&fs, "/db", &small_options()).unwrap());
        let mut batch = WriteBatch::new();
        for n in 0..4_000_u32 {
            for i in 0..100_u32 {
                batch
                    .put(&key((n * 100 + i).wrapping_mul(2_654_435_761) % 200_000), &value_without_expiry(n));
            }
            if db.write(&batch, false).is_err() || fs.statfs().free.0 < left {
                break;
            }
            batch.clear();
        }
        let (done, over) = std::sync::mpsc::channel();
        let compacting = Arc::clone(&db);
        std::thread::spawn(move || done.send(compacting.compact()).unwrap());
        // The compaction may succeed or fail, as RocksDB decides; it only has to end.
        let _result = over.recv_timeout(std::time::Duration::from_secs(120)).expect("the compaction ends");
        assert!(all_keys(&db).len() > 1000, "reads go on");
        db.close().ok();
        drive.unmount(&fs);
    }
}

#[test]
fn the_log_of_rocksdb_survives_a_crash() {
    let drive = Drive::new();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    let after = drive.after_a_cut(3);
    let found = after.mount();
    // The LOG is longer than its first line: the lines logged while the database was opened survive.
    let size = found.stat("/db/LOG").unwrap().size.0;
    assert!(size > 4096, "the LOG has {size} bytes");
    after.unmount(&found);
    db.close().unwrap();
    drive.unmount(&fs);
}

/// A device that passes every operation on to another. While `on`, it counts the operations of one thread, and makes
/// all other threads wait.
#[derive(Debug)]
struct WatchedDevice {
    inner: Arc<dyn ZonedDevice>,
    thread: ThreadId,
    on: Mutex<bool>,
    over: Condvar,
    submitted: AtomicU64,
}

impl WatchedDevice {
    fn watch(&self, on: bool) {
        *self.on.lock().unwrap() = on;
        self.over.notify_all();
    }
}

impl ZonedDevice for WatchedDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let on = self.on.lock().unwrap();
        if *on && std::thread::current().id() == self.thread {
            self.submitted.fetch_add(1, Ordering::SeqCst);
        } else {
            // If the watched thread waits for an operation of a held thread, the hold ends after a timeout.
            let (mut on, waited) =
                self.over.wait_timeout_while(on, Duration::from_secs(20), |on| *on).unwrap();
            if waited.timed_out() {
                *on = false;
                self.over.notify_all();
            }
        }
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[test]
fn who_writes_without_rocksdbs_log_does_not_wait_for_the_drive_for_the_line_of_a_new_memtable() {
    let mut drive = Drive::new();
    let watched = Arc::new(WatchedDevice {
        inner: Arc::clone(&drive.device),
        thread: std::thread::current().id(),
        on: Mutex::new(false),
        over: Condvar::new(),
        submitted: AtomicU64::new(0),
    });
    drive.device = watched.clone();
    let fs = drive.mount();
    let db =
        Db::open(&fs, "/db", &DbOptions { unlogged: true, write_buffers: 4, ..small_options() }).unwrap();
    let waiting = || db.property("rocksdb.num-immutable-mem-table").unwrap().parse::<u32>().unwrap();
    let mut batch = WriteBatch::new();
    watched.watch(true);
    // No memtable is flushed during these writes. With the third memtable RocksDB slows its writers down, and logs a
    // warning in this thread.
    for n in 0..10_000_u32 {
        batch.clear();
        (0..100).for_each(|i| batch.put(&key(n * 100 + i), &value_without_expiry(i)));
        db.apply(batch.data(), false, None).unwrap();
        if waiting() == 3 {
            break;
        }
    }
    assert!(*watched.on.lock().unwrap(), "who writes waited for the drive");
    assert_eq!(waiting(), 3);
    assert_eq!(watched.submitted.load(Ordering::SeqCst), 0);
    watched.watch(false);
    db.flush_all().unwrap();
    db.close().unwrap();
    let mut log = vec![0; usize::try_from(fs.stat("/db/LOG").unwrap().size.0).unwrap()];
    let reader = fs.open("/db/LOG").unwrap();
    block_on(&*drive.driver, reader.read_at(Bytes(0), &mut log)).unwrap();
    let log = String::from_utf8(log).unwrap();
    let warning = log.lines().find(|line| line.contains("[WARN]"));
    assert!(warning.is_some_and(|line| line.contains("3 immutable memtables")), "{warning:?}");
    drive.unmount(&fs);
}

#[test]
fn idle_logs_give_their_zones_to_a_database_that_switches_its_log() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let zone = Blocks(1024);
    let options = EmuOptions {
        zones: 64,
        zone_size: zone,
        zone_capacity: zone,
        max_open: Some(4),
        max_active: Some(4),
        ..EmuOptions::default()
    };
    let drive = Drive::of_emulator(Emu::memory(options, Arc::clone(&driver)), driver);
    block_on(&*drive.driver, Fs::format(&drive.device, &FormatOptions::default())).unwrap();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    fill(&db, 0..4000, false);
    db.flush().unwrap();
    // Four open zones are too few for four logs at a time: an open log whose entries are all durable releases its zone.
    let others: Vec<_> = (0..3).map(|i| open_log(&fs, &format!("/other{i}")).unwrap()).collect();
    for i in 0..50 {
        let mut batch = WriteBatch::new();
        batch.put(&key(i), &vec![1; 20_000]);
        db.write(&batch, true).and_then(|()| db.flush()).unwrap();
    }
    for (i, other) in others.iter().enumerate() {
        block_on(&*drive.driver, async {
            other.append(b" and more").await.unwrap();
            other.sync().await.unwrap();
            let mut read = [0; 64];
            let reader = fs.open(&format!("/other{i}")).unwrap();
            let length = reader.read_at(Bytes(0), &mut read).await.unwrap();
            assert_eq!(&read[..length], b"entry and more", "log {i}");
        });
    }
    db.close().unwrap();
    drop(others);
    drive.unmount(&fs);
}

fn open_log(fs: &Fs, path: &str) -> fs::Result<fs::Writer> {
    block_on(&**fs.driver(), async {
        let log =
            fs.create(path, &fs::CreateOptions { kind: fs::FileKind::Log, ..Default::default() }).await?;
        log.append(b"entry").await?;
        log.sync().await?;
        Ok(log)
    })
}

/// RocksDB's own log must not bring back writes that the caller keeps in a log of its own.
#[test]
fn a_database_without_its_log_takes_no_logged_write() {
    let drive = Drive::new();
    let fs = drive.mount();
    let unlogged = DbOptions { unlogged: true, ..small_options() };
    let mut batch = WriteBatch::new();
    batch.put(b"past", b"1");
    for sync in [false, true] {
        let db = Db::open(&fs, "/db", &unlogged).unwrap();
        let error = db.write(&batch, sync).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("past the parallel log"), "{error}");
        let _closed_without_a_word = db.close();
    }
    let db = Db::open(&fs, "/db", &small_options()).unwrap();
    assert!(db.get(b"past").unwrap().is_none());
    db.write(&batch, true).unwrap();
    db.close().unwrap();
    drive.unmount(&fs);
}

/// Leaves the marks that a checkpoint, or an interrupted close, leaves of a parallel log.
#[test]
fn marks_of_a_removed_log_are_dropped_when_the_database_is_opened_with_its_own_log() {
    let drive = Drive::new();
    let fs = drive.mount();
    let unlogged = DbOptions { unlogged: true, families: 2, ..small_options() };
    let own = DbOptions { unlogged: false, ..unlogged.clone() };
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1");
    let db = Db::open(&fs, "/db", &unlogged).unwrap();
    db.apply(batch.data(), false, None).unwrap();
    db.set_marks_floor(7).unwrap();
    db.flush_all().unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        let db = Db::open(&fs, "/db", &own).unwrap();
        assert_eq!(&db.get(b"a").unwrap().unwrap()[..], b"1");
        db.write(&batch, true).unwrap();
        db.close().unwrap();
    }
    let db = Db::open(&fs, "/db", &unlogged).unwrap();
    assert_eq!(db.marks_floor().unwrap(), None);
    db.close().unwrap();
    drive.unmount(&fs);
}

/// A drive that counts the blocks read and written in each class.
#[derive(Debug)]
struct CountingDrive {
    inner: Arc<dyn ZonedDevice>,
    read: Mutex<BTreeMap<IoClass, u64>>,
    written: Mutex<BTreeMap<IoClass, u64>>,
}

impl ZonedDevice for CountingDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        let (counts, bytes) = match &op {
            Op::Read { into, .. } => (&self.read, into.len()),
            Op::Write { data, .. } | Op::Append { data, .. } => (&self.written, data.len()),
            Op::Zone { .. } | Op::Flush | Op::Report { .. } => return self.inner.submit_as(class, op),
        };
        *counts.lock().unwrap().entry(class).or_default() += bytes as u64;
        self.inner.submit_as(class, op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[test]
fn tables_of_flushes_and_of_compactions_have_classes_of_their_own() {
    let mut drive = Drive::new();
    let counted = Arc::new(CountingDrive {
        inner: Arc::clone(&drive.device),
        read: Mutex::default(),
        written: Mutex::default(),
    });
    drive.device = counted.clone();
    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &DbOptions { write_buffer: 4 << 20, ..small_options() }).unwrap();
    let bytes = |counts: &Mutex<BTreeMap<IoClass, u64>>, class| {
        counts.lock().unwrap().get(&class).copied().unwrap_or_default()
    };
    fill(&db, 0..4000, false);
    db.flush().unwrap();
    let flushed = bytes(&counted.written, IoClass::Flush);
    assert!(flushed > 100_000, "{:?}", counted.written);
    assert_eq!(bytes(&counted.written, IoClass::Compaction), 0, "nothing is compacted yet");
    fill(&db, 0..4000, false);
    db.flush().unwrap();
    let flushed_twice = bytes(&counted.written, IoClass::Flush);
    db.compact().unwrap();
    assert!(bytes(&counted.written, IoClass::Compaction) > 100_000, "{:?}", counted.written);
    assert!(bytes(&counted.read, IoClass::Compaction) > 100_000, "{:?}", counted.read);
    assert_eq!(bytes(&counted.written, IoClass::Flush), flushed_twice, "a compaction is no flush");
    db.close().unwrap();
    drive.unmount(&fs);
}
