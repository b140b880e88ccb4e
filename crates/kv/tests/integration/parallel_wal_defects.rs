//! Defects of the published prototype of WALTZ, one test each: the parallel WAL handles the situation on RocksDB, and
//! shows the defect if the test breaks the rule that prevents it. Defects of the log alone:
//! `crates/fs/tests/integration/parallel_log_defects.rs`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs::{BrokenRule, Fs, ParallelOptions};
use kv::parallel_wal::{BrokenRule as WalRule, *};
use rocks::Db;
use units::{Blocks, block_on};
use zoned::emu::{EmuOptions, FaultOp, FaultSpec};

use crate::cut::{Drive, options};

struct World {
    fs: Fs,
    db: Arc<Db>,
    tables: Arc<RocksTables>,
    log: Arc<FsLog>,
    parallel_wal: Arc<ParallelWal>,
}

impl World {
    fn open(drive: &Drive) -> World {
        World::with_broken(drive, None, None)
    }

    fn with_broken(drive: &Drive, broken_rule: Option<BrokenRule>, wal_rule: Option<WalRule>) -> World {
        let fs = drive.mount_with(broken_rule);
        let db = Arc::new(Db::open(&fs, "/db", &options(true)).unwrap());
        let tables = Arc::new(RocksTables::new(Arc::clone(&db), Arc::clone(&drive.driver), None));
        let log = Arc::new(FsLog::open(&fs, "/db", &ParallelOptions::default()).unwrap());
        let info = FamilyInfo { merges: true, one_stripe: false };
        let parallel_wal = ParallelWal::open(
            Arc::clone(&log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            [(Family::DEFAULT, info)],
            ParallelWalOptions { broken_rule: wal_rule, ..ParallelWalOptions::default() },
        );
        let parallel_wal = Arc::new(parallel_wal.unwrap());
        tables.report_flushes_to(&parallel_wal);
        World { fs, db, tables, log, parallel_wal }
    }

    fn write(&self, how: WriteOptions, batch: BatchBuilder) -> Result<(), WriteError<rocks::Error>> {
        let batch = batch.build();
        self.parallel_wal.write(&batch, how, |mark| self.tables.apply(&batch, mark))
    }

    fn put(&self, key: &str, value: u64) -> Result<(), WriteError<rocks::Error>> {
        self.write(
            WriteOptions::SYNCED,
            BatchBuilder::new().put(Family::DEFAULT, key.as_bytes(), &value.to_le_bytes()),
        )
    }

    fn bytes(&self, key: &str) -> Option<Vec<u8>> {
        self.db.get(key.as_bytes()).unwrap().map(|value| value.to_vec())
    }

    fn get(&self, key: &str) -> Option<u64> {
        self.bytes(key).map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()))
    }

    /// The database after a power cut now, on an image of the drive.
    fn cut(self, drive: &Drive, seed: u64) -> World {
        let after = drive.after_a_cut(seed);
        self.close_without_wal();
        World::open(&after)
    }

    /// Closes RocksDB without closing the parallel WAL: the log keeps its records.
    fn close_without_wal(self) {
        self.tables.wait_for_flush();
        drop((self.parallel_wal, self.log));
        self.db.close().unwrap();
        let _broken_drives_fail = block_on(&**self.fs.driver(), self.fs.unmount());
    }
}

/// The value of a key before and after a crash, if a second write of the key begins while the first is between log and
/// tables.
fn overtaken_values(wal_rule: Option<WalRule>) -> (Option<u64>, Option<u64>) {
    let drive = Drive::new();
    let world = World::with_broken(&drive, None, wal_rule);
    let first = BatchBuilder::new().put(Family::DEFAULT, b"a", &1_u64.to_le_bytes()).build();
    let (second_began, second_done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let outcome = world.parallel_wal.write(&first, WriteOptions::SYNCED, |mark| {
            let (world, second_began, second_done) = (&world, &second_began, &second_done);
            scope.spawn(move || {
                second_began.store(true, Ordering::Release);
                world.put("a", 2).unwrap();
                second_done.store(true, Ordering::Release);
            });
            while !second_began.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // While the first write holds the key's stripe, the second write waits.
            let patience = if wal_rule == Some(WalRule::KeyLocks) { u32::MAX } else { 2000 };
            for _ in 0..patience {
                if second_done.load(Ordering::Acquire) {
                    break;
                }
                std::thread::yield_now();
            }
            world.tables.apply(&first, mark)
        });
        outcome.unwrap();
    });
    let before = world.get("a");
    let after = world.cut(&drive, 1);
    let both = (before, after.get("a"));
    after.close_without_wal();
    both
}

/// The prototype of WALTZ gives a batch its sequence after logging the batch, so that all log records carry sequence 0.
/// The parallel WAL writes a ticket into the record, and tickets and RocksDB's sequences have one order for each key.
#[test]
fn records_are_replayed_in_the_order_in_which_rocksdb_had_them() {
    assert_eq!(overtaken_values(None), (Some(2), Some(2)));
    assert_eq!(
        overtaken_values(Some(WalRule::KeyLocks)),
        (Some(1), Some(2)),
        "without stripes a crash changes the value"
    );
}

/// The drive fails the append of a put; with `landed` the data is written all the same. Returns whether the put failed,
/// and the key's value at once and after each of several crashes.
fn after_a_failed_append(
    broken_rule: Option<BrokenRule>,
    landed: bool,
) -> (bool, Option<u64>, Vec<Option<u64>>) {
    let drive = Drive::new();
    let world = World::with_broken(&drive, broken_rule, None);
    world.put("a", 1).unwrap();
    // The next write is the append, and not a background commit of the log's segments.
    block_on(&**world.fs.driver(), world.fs.sync_names()).unwrap();
    drive.emu.fail(FaultSpec { landed, ..FaultSpec::next(FaultOp::Write) });
    let failed = world.put("a", 2).is_err();
    world.put("b", 1).unwrap();
    let now = world.get("a");
    let later = (0..12).map(|seed| {
        let after = World::open(&drive.after_a_cut(seed));
        let value = after.get("a");
        after.close_without_wal();
        value
    });
    let later = later.collect();
    world.close_without_wal();
    (failed, now, later)
}

#[test]
fn a_failed_append_fails_the_write_and_the_key_keeps_its_value() {
    for landed in [false, true] {
        assert_eq!(after_a_failed_append(None, landed), (true, Some(1), vec![Some(1); 12]), "{landed}");
    }
    let (failed, now, later) = after_a_failed_append(Some(BrokenRule::Void), true);
    assert_eq!((failed, now), (true, Some(1)));
    assert!(later.contains(&Some(2)), "without void entries the put comes back: {later:?}");
}

/// RocksDB refuses a batch that is in the log.
#[test]
fn a_write_that_rocksdb_refuses_does_not_come_back() {
    let after = |wal_rule| {
        let drive = Drive::new();
        let world = World::with_broken(&drive, None, wal_rule);
        world.put("a", 1).unwrap();
        let batch = BatchBuilder::new().put(Family::DEFAULT, b"a", &2_u64.to_le_bytes()).build();
        assert_eq!(
            world.parallel_wal.write(&batch, WriteOptions::SYNCED, |_| Err("full")),
            Err(WriteError::Apply("full"))
        );
        let after = world.cut(&drive, 1);
        let value = after.get("a");
        after.close_without_wal();
        value
    };
    assert_eq!(after(None), Some(1));
    assert_eq!(after(Some(WalRule::Void)), Some(2), "a log without a void entry replays the batch");
}

#[test]
fn batches_of_any_size_survive_with_every_byte() {
    let zone = Blocks(64);
    let options = EmuOptions { zones: 256, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() };
    let drive = Drive::of(EmuOptions { max_append: Blocks(16), ..options });
    let world = World::open(&drive);
    // Value sizes near those of a block, an append, a zone, and a memtable.
    let around = [4096, 16 * 4096, 64 * 4096, 300_000].map(|n: usize| [n - 100, n - 60, n - 1, n, n + 1]);
    let sizes: Vec<usize> = around.into_iter().flatten().chain([0, 1]).collect();
    let value = |size: usize| (0..size).map(|n| (n * 31 + size) as u8).collect::<Vec<u8>>();
    for size in &sizes {
        let batch = BatchBuilder::new().put(Family::DEFAULT, format!("{size}").as_bytes(), &value(*size));
        world.write(WriteOptions::SYNCED, batch).unwrap();
    }
    let after = world.cut(&drive, 3);
    for size in sizes {
        assert!(after.bytes(&format!("{size}")) == Some(value(size)), "{size} bytes");
    }
    after.close_without_wal();
}

/// Every key with its value, as a cursor shows them.
fn cursor_contents(cursor: &mut rocks::Cursor) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    cursor.seek(b"");
    while cursor.valid() {
        let value = u64::from_le_bytes(cursor.value().try_into().unwrap());
        seen.insert(String::from_utf8(cursor.key().to_vec()).unwrap(), value);
        cursor.next();
    }
    seen
}

/// Two threads write while snapshots are taken. Returns the number of snapshots with a later write and without an
/// earlier one, or with another content when they were read again, and the number of snapshots taken between the first
/// and the last write. With `early` a write is acknowledged before RocksDB has its batch.
fn count_snapshot_gaps(early: bool) -> (usize, usize) {
    let rounds: u64 = if early { 5 } else { 200 };
    let drive = Drive::new();
    let world = World::open(&drive);
    let (looks, told) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut gaps, mut in_between) = (0, 0);
    std::thread::scope(|scope| {
        let threads = ["x", "y"].map(|thread| {
            let (world, looks, told) = (&world, &looks, &told);
            // Waits until a snapshot was taken after this call.
            let looked = || {
                let seen = looks.load(Ordering::Acquire);
                while looks.load(Ordering::Acquire) < seen + 2 {
                    std::thread::yield_now();
                }
            };
            scope.spawn(move || {
                for n in 1..=rounds {
                    let put = |key: &str| {
                        let key = format!("{thread}{key}");
                        BatchBuilder::new().put(Family::DEFAULT, key.as_bytes(), &n.to_le_bytes())
                    };
                    if !early {
                        world.write(WriteOptions::UNSYNCED, put("1")).unwrap();
                        world.write(WriteOptions::UNSYNCED, put("2")).unwrap();
                        if thread == "x" {
                            told.store(n, Ordering::Release);
                        } else {
                            // The thread writes the last number that the other thread has acknowledged.
                            let other = told.load(Ordering::Acquire).to_le_bytes();
                            let after = BatchBuilder::new().put(Family::DEFAULT, b"z", &other);
                            world.write(WriteOptions::UNSYNCED, after).unwrap();
                        }
                        if n == rounds / 2 {
                            looked();
                        }
                        continue;
                    }
                    // As in the prototype of WALTZ, the memtable gets the batch some time after the acknowledgement.
                    let first = put("1").build();
                    let mut held = None;
                    let told = world.parallel_wal.write(&first, WriteOptions::UNSYNCED, |mark| {
                        held = mark;
                        Ok::<_, String>(Applied { last: Sequence(0) })
                    });
                    told.unwrap();
                    world.write(WriteOptions::UNSYNCED, put("2")).unwrap();
                    looked();
                    world.tables.apply(&first, held).unwrap();
                }
            })
        });
        while !threads.iter().all(|thread| thread.is_finished()) {
            let mut cursor = world.db.iter(b"").unwrap();
            let seen = cursor_contents(&mut cursor);
            let of = |key: &str| seen.get(key).copied().unwrap_or(0);
            gaps += ["x", "y"].iter().filter(|t| of(&format!("{t}1")) < of(&format!("{t}2"))).count();
            gaps += usize::from(of("z") > of("x2")) + usize::from(cursor_contents(&mut cursor) != seen);
            in_between += usize::from((1..rounds).contains(&of("x2")));
            looks.fetch_add(1, Ordering::AcqRel);
        }
    });
    world.close_without_wal();
    (gaps, in_between)
}

/// The prototype of WALTZ publishes a sequence before the memtable has the batch. The parallel WAL leaves sequences to
/// RocksDB.
#[test]
fn a_snapshot_with_a_batch_has_every_batch_acknowledged_before_it() {
    let (found, in_between) = count_snapshot_gaps(false);
    assert_eq!(found, 0);
    assert!(in_between > 0, "no snapshot fell among the writes");
    assert!(count_snapshot_gaps(true).0 > 0, "an early acknowledgement shows in snapshots");
}

#[test]
fn writes_beside_zone_replacements_survive_a_cut() {
    let zone = Blocks(16);
    let options = EmuOptions { zones: 400, zone_size: zone, zone_capacity: zone, ..EmuOptions::default() };
    for seed in 0..3 {
        let drive = Drive::of(EmuOptions { volatile_cache: true, reorder: true, ..options.clone() });
        let world = World::open(&drive);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let world = &world;
                scope.spawn(move || (0..100).for_each(|n| world.put(&format!("{thread}.{n}"), n).unwrap()));
            }
        });
        // 400 records of one or two blocks fill many zones of 16 blocks.
        let replaced = world.log.stats().replaced;
        assert!(replaced > 12, "{replaced} replacements");
        let after = world.cut(&drive, seed);
        let missing = |thread| (0..100).filter(|n| after.get(&format!("{thread}.{n}")) != Some(*n)).count();
        assert_eq!((0..4).map(missing).sum::<usize>(), 0, "seed {seed}");
        after.close_without_wal();
    }
}

/// In the prototype of WALTZ a thread whose append fails retries for ever.
#[test]
fn device_errors_end_a_write_and_those_after_it() {
    let drive = Drive::new();
    let world = World::open(&drive);
    world.put("a", 1).unwrap();
    drive.emu.fail(FaultSpec::all(FaultOp::Write));
    let first = world.put("a", 2).unwrap_err();
    assert!(matches!(first, WriteError::Log(_)), "{first:?}");
    for _ in 0..10 {
        let next = world.put("b", 1).unwrap_err();
        assert!(matches!(next, WriteError::Log(_)), "{next:?}");
    }
    assert_eq!((world.get("a"), world.get("b")), (Some(1), None), "reads go on");
}
