//! Tests of the parallel WAL over RocksDB, with a log in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]
#![allow(clippy::disallowed_methods, reason = "RocksDB's own threads run on the real clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fs::Fs;
use kv::parallel_wal::*;
use proptest::prelude::*;
use rocks::{Db, WriteBatch};
use units::block_on;

use crate::cut::{Drive, options};

#[allow(dead_code, reason = "the unit tests use more of it")]
#[path = "../../src/parallel_wal/tests/memory_log.rs"]
mod memory_log;

use memory_log::MemoryLog;

struct World {
    fs: Fs,
    db: Arc<Db>,
    log: Arc<MemoryLog>,
    tables: Arc<RocksTables>,
    parallel_wal: Arc<ParallelWal>,
}

impl World {
    fn open(drive: &Drive, log: MemoryLog) -> World {
        let fs = drive.mount();
        let db = Arc::new(Db::open(&fs, "/db", &options(true)).unwrap());
        let tables = Arc::new(RocksTables::new(Arc::clone(&db), Arc::clone(&drive.driver), None));
        let log = Arc::new(log);
        let info = FamilyInfo { merges: true, one_stripe: false };
        let parallel_wal = ParallelWal::open(
            Arc::clone(&log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            [(Family::DEFAULT, info)],
            ParallelWalOptions::default(),
        );
        let parallel_wal = Arc::new(parallel_wal.unwrap());
        tables.report_flushes_to(&parallel_wal);
        World { fs, db, log, tables, parallel_wal }
    }

    fn write(&self, how: WriteOptions, mut batch: WriteBatch) {
        let batch = batch.data();
        self.parallel_wal.write(batch, how, |mark| self.tables.apply(batch, mark)).unwrap();
    }

    fn get(&self, key: &str) -> Option<u64> {
        self.db.get(key.as_bytes()).unwrap().map(|value| u64::from_le_bytes(value[..].try_into().unwrap()))
    }

    /// Closes RocksDB without closing the parallel WAL, as after a power cut.
    fn close_without_wal(self) {
        self.tables.wait_for_flush();
        drop(self.parallel_wal);
        self.db.close().unwrap();
        block_on(&**self.fs.driver(), self.fs.unmount()).unwrap();
    }
}

fn put(key: &str, value: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), &value.to_le_bytes());
    batch
}

fn add(key: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.merge(key.as_bytes(), &1_u64.to_le_bytes());
    batch
}

#[test]
fn a_flush_of_rocksdb_retires_its_tickets_and_a_small_memtable_flushes_itself() {
    let drive = Drive::new();
    let world = World::open(&drive, MemoryLog::new());
    for n in 0..20 {
        world.write(WriteOptions::UNSYNCED, put(&format!("k{n}"), n));
    }
    assert_eq!(world.log.len(), 20);
    world.tables.flush().unwrap();
    assert_eq!(world.log.len(), 0);
    for n in 0..5000 {
        world.write(WriteOptions::UNSYNCED, put(&format!("k{n}"), n));
    }
    // RocksDB switched memtables; RocksDB's flush thread flushes them now.
    let end = Instant::now() + Duration::from_secs(600);
    while world.log.len() >= 4000 {
        assert!(Instant::now() < end, "{} are left", world.log.len());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.get("k4999"), Some(4999));
    world.close_without_wal();
}

#[test]
fn merges_are_counted_once_over_crashes_with_the_whole_log_replayed() {
    let mut drive = Drive::new();
    let mut log = MemoryLog::new();
    let mut expected = 0;
    for round in 0..4 {
        let world = World::open(&drive, log);
        assert_eq!(world.get("n").unwrap_or(0), expected, "round {round}");
        for n in 0..50 {
            world.write(WriteOptions::SYNCED, add("n"));
            world.write(WriteOptions::SYNCED, put("k", n));
            if n == 20 {
                world.tables.flush().unwrap();
            }
        }
        expected += 50;
        assert!(world.parallel_wal.is_exact());
        let next = drive.after_a_cut(round);
        log = world.log.cut(&mut |_| true, false);
        world.close_without_wal();
        drive = next;
    }
    let world = World::open(&drive, log);
    assert_eq!((world.get("n"), world.get("k")), (Some(expected), Some(49)));
    world.close_without_wal();
}

#[test]
fn a_clean_close_leaves_a_database_that_opens_without_the_log_and_a_crash_does_not() {
    let drive = Drive::new();
    let world = World::open(&drive, MemoryLog::new());
    world.write(WriteOptions::UNSYNCED, add("n"));
    world.tables.flush().unwrap();
    let crashed = drive.after_a_cut(1);
    world.parallel_wal.close().unwrap();
    assert!(world.log.is_removed());
    world.close_without_wal();

    let fs = drive.mount();
    let db = Db::open(&fs, "/db", &options(false)).unwrap();
    assert_eq!(db.get(b"n").unwrap().unwrap()[..], 1_u64.to_le_bytes());
    db.close().unwrap();

    // The log in memory has no file, so create an empty file with the parallel log's name.
    let fs = crashed.mount();
    let path = format!("/db/{LOG_FILE}");
    let made = block_on(&**fs.driver(), async {
        fs.create(&path, &fs::CreateOptions::default()).await?.close().await
    });
    made.unwrap();
    let error = Db::open(&fs, "/db", &options(false)).unwrap_err().to_string();
    assert!(error.contains("FURROW_WAL=auto or waltz"), "{error}");
}

#[test]
fn a_batch_that_rocksdb_refuses_is_void() {
    let drive = Drive::new();
    let world = World::open(&drive, MemoryLog::new());
    let batch = put("a", 1).data().to_vec();
    world.db.close().unwrap();
    let error = world
        .parallel_wal
        .write(&batch, WriteOptions::SYNCED, |mark| world.tables.apply(&batch, mark))
        .unwrap_err();
    assert!(matches!(error, WriteError::Apply(_)), "{error}");
    assert!(world.log.is_empty());
}

/// Threads write while memtables are flushed, and the power is cut, in several rounds.
fn cut_while_writing(seed: u64, merges: bool) {
    const THREADS: usize = 4;
    const KEYS: u64 = 8;
    let drive = Drive::new();
    let world = World::open(&drive, MemoryLog::new());
    let acknowledged: Vec<AtomicU64> = (0..THREADS as u64 * KEYS).map(|_| AtomicU64::new(0)).collect();
    let asked: Vec<AtomicU64> = acknowledged.iter().map(|_| AtomicU64::new(0)).collect();
    let (added, to_add) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let (mut before, mut next, mut log, mut after) = (Vec::new(), None, None, Vec::new());
    let mut counted = (0, 0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, stop, acknowledged, asked) = (&world, &stop, &acknowledged, &asked);
            let (added, to_add) = (&added, &to_add);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Acquire) {
                    n += 1;
                    let slot = thread * KEYS as usize + (n % KEYS) as usize;
                    asked[slot].store(n, Ordering::Release);
                    // Two keys of one batch, whose values must never differ.
                    let mut batch = put(&format!("a{slot}"), n);
                    batch.put(format!("b{slot}").as_bytes(), &n.to_le_bytes());
                    batch.put(b"padding", &[0; 600]);
                    let how = if n % 3 == 0 { WriteOptions::SYNCED } else { WriteOptions::UNSYNCED };
                    world.write(how, batch);
                    if how.synced {
                        acknowledged[slot].store(n, Ordering::Release);
                    }
                    if merges {
                        to_add.fetch_add(1, Ordering::AcqRel);
                        world.write(WriteOptions::SYNCED, add("n"));
                        added.fetch_add(1, Ordering::AcqRel);
                    }
                }
            });
        }
        while asked[0].load(Ordering::Acquire) < 150 + seed * 40 {
            std::thread::yield_now();
        }
        counted.0 = added.load(Ordering::Acquire);
        before.extend(acknowledged.iter().map(|a| a.load(Ordering::Acquire)));
        // The drive's image is taken before the log's, so that the log may have more records than the tables, and not
        // fewer.
        next = Some(drive.after_a_cut(seed));
        let mut coin = seed;
        let survive = &mut |_| {
            coin = coin.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            coin >> 63 == 1
        };
        log = Some(world.log.cut(survive, false));
        after.extend(asked.iter().map(|a| a.load(Ordering::Acquire)));
        counted.1 = to_add.load(Ordering::Acquire);
        stop.store(true, Ordering::Release);
    });
    world.close_without_wal();

    let world = World::open(&next.unwrap(), log.unwrap());
    for slot in 0..acknowledged.len() {
        let (a, b) =
            (world.get(&format!("a{slot}")).unwrap_or(0), world.get(&format!("b{slot}")).unwrap_or(0));
        assert_eq!(a, b, "the batch of slot {slot} is torn");
        assert!(
            (before[slot]..=after[slot]).contains(&a),
            "slot {slot}: {} {a} {}",
            before[slot],
            after[slot]
        );
    }
    if merges {
        let n = world.get("n").unwrap_or(0);
        assert!((counted.0..=counted.1).contains(&n), "{counted:?}: {n}");
    }
    world.close_without_wal();
}

#[test]
fn nothing_is_lost_or_torn_when_the_power_fails_under_four_writers() {
    (0..6).for_each(|seed| cut_while_writing(seed, false));
}

#[test]
fn nothing_is_added_twice_when_the_power_fails_under_four_writers() {
    (0..6).for_each(|seed| cut_while_writing(seed, true));
}

#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    SingleDelete(Vec<u8>),
    Merge(Vec<u8>, Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
    LogData(Vec<u8>),
    RolledBack(Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        (bytes(), bytes()).prop_map(|(k, v)| Change::Put(k, v)),
        bytes().prop_map(Change::Delete),
        bytes().prop_map(Change::SingleDelete),
        (bytes(), bytes()).prop_map(|(k, v)| Change::Merge(k, v)),
        (bytes(), bytes()).prop_map(|(a, b)| Change::DeleteRange(a, b)),
        bytes().prop_map(Change::LogData),
        bytes().prop_map(Change::RolledBack),
    ]
}

proptest! {
    #[test]
    fn batches_that_rocksdb_serialised_are_parsed(changes in prop::collection::vec(change(), 0..20)) {
        let mut batch = WriteBatch::new();
        let mut expected: Vec<(RecordKind, Vec<u8>, Vec<u8>)> = Vec::new();
        for change in changes {
            match change {
                Change::Put(k, v) => {
                    batch.put(&k, &v);
                    expected.push((RecordKind::Put, k, v));
                }
                Change::Delete(k) => {
                    batch.delete(&k);
                    expected.push((RecordKind::Delete, k, vec![]));
                }
                Change::SingleDelete(k) => {
                    batch.single_delete(&k);
                    expected.push((RecordKind::SingleDelete, k, vec![]));
                }
                Change::Merge(k, v) => {
                    batch.merge(&k, &v);
                    expected.push((RecordKind::Merge, k, v));
                }
                Change::DeleteRange(a, b) if a < b => {
                    batch.delete_range(&a, &b);
                    expected.push((RecordKind::DeleteRange, a, b));
                }
                Change::DeleteRange(..) => {}
                Change::LogData(v) => {
                    batch.log_data(&v);
                    expected.push((RecordKind::LogData, vec![], v));
                }
                Change::RolledBack(k) => {
                    batch.set_save_point();
                    batch.put(&k, b"never");
                    batch.rollback().unwrap();
                }
            }
        }
        let read: Vec<_> = parse(batch.data())
            .unwrap()
            .map(|record| record.map(|r| (r.kind, r.key.to_vec(), r.value.to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(read, expected);
    }
}
