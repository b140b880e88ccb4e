//! Tests of the marks left in tables after their log was removed, and of flushes past the parallel WAL.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::cut::{Drive, options};
use fs::Fs;
use kv::parallel_wal::{
    BatchBuilder, Database, DatabaseOptions, Family, FamilyInfo, FsLog, LogErrorKind, ParallelWal,
    ParallelWalOptions, RocksTables, Sequence, Tables, TicketLog, WalMode, WriteError, WriteOptions,
};
use parking_lot::{Condvar, Mutex};
use rocks::{Db, DbOptions, FlushEvents, WriteBatch};
use units::Blocks;
use zoned::emu::{EmuOptions, FaultOp, FaultSpec};

struct World {
    /// Keeps the file system mounted as long as the database is open.
    _fs: Fs,
    db: Arc<Db>,
    log: Arc<FsLog>,
    tables: Arc<RocksTables>,
    parallel_wal: Arc<ParallelWal>,
}

impl World {
    fn open(drive: &Drive) -> World {
        World::with_families(drive, 0)
    }

    /// Opens a database with this number of families beside the default one.
    fn with_families(drive: &Drive, families: u8) -> World {
        World::with_gated_flushes(None, drive, families)
    }

    /// Opens a database whose flushes wait at `gate`.
    fn with_gated_flushes(gate: Option<Arc<FlushGate>>, drive: &Drive, families: u8) -> World {
        let fs = drive.mount();
        let db = Arc::new(Db::open(&fs, "/db", &DbOptions { families, ..options(true) }).unwrap());
        let tables = Arc::new(RocksTables::new(Arc::clone(&db), Arc::clone(&drive.driver), None));
        let log = Arc::new(FsLog::open(&fs, "/db", &fs::ParallelOptions::default()).unwrap());
        let parallel_wal = ParallelWal::open(
            Arc::clone(&log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            (0..=families.into()).map(|n| (Family(n), FamilyInfo { merges: true, one_stripe: false })),
            ParallelWalOptions::default(),
        );
        let parallel_wal = Arc::new(parallel_wal.unwrap());
        if let Some(gate) = gate {
            gate.parallel_wal.set(Arc::downgrade(&parallel_wal)).unwrap();
            db.set_flush_events(gate);
        }
        tables.report_flushes_to(&parallel_wal);
        World { _fs: fs, db, log, tables, parallel_wal }
    }

    fn write(&self, mut batch: WriteBatch) -> Result<(), WriteError<rocks::Error>> {
        let batch = batch.data();
        self.parallel_wal.write(batch, WriteOptions::SYNCED, |mark| self.tables.apply(batch, mark))
    }

    fn put(&self, key: &str, value: u64) -> Result<(), WriteError<rocks::Error>> {
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), &value.to_le_bytes());
        self.write(batch)
    }

    fn get(&self, key: &str) -> Option<u64> {
        self.db.get(key.as_bytes()).unwrap().map(|value| u64::from_le_bytes(value[..].try_into().unwrap()))
    }

    /// Ends the test's use of the database without closing it, for a power cut.
    fn abandon(self) {
        std::mem::forget(self);
    }
}

const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Holds up RocksDB's flushes at their beginning.
#[derive(Default)]
struct FlushGate {
    parallel_wal: OnceLock<Weak<ParallelWal>>,
    counts: Mutex<GateCounts>,
    changed: Condvar,
}

#[derive(Default)]
struct GateCounts {
    begun: usize,
    /// Number of flushes that the gate lets through.
    open: usize,
    over: usize,
}

impl FlushGate {
    fn open(&self, flushes: usize) {
        self.counts.lock().open = flushes;
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&GateCounts) -> bool) {
        let waited =
            self.changed.wait_while_for(&mut self.counts.lock(), |counts| !until(counts), TEST_TIMEOUT);
        assert!(!waited.timed_out(), "a guard against a hang");
    }
}

impl FlushEvents for FlushGate {
    fn begins(&self) {
        self.parallel_wal.get().and_then(Weak::upgrade).unwrap().flush_begins().unwrap();
        let number = {
            let mut counts = self.counts.lock();
            counts.begun += 1;
            counts.begun
        };
        self.changed.notify_all();
        self.wait(|counts| counts.open >= number);
    }

    fn family_flushed(&self, family: Option<u32>, largest: u64) {
        let parallel_wal = self.parallel_wal.get().and_then(Weak::upgrade).unwrap();
        parallel_wal.flushed(family.map_or(Family::MARKS, Family), Sequence(largest));
        self.counts.lock().over += 1;
        self.changed.notify_all();
    }
}

#[test]
fn marks_of_a_removed_log_do_not_count_for_the_next_log() {
    let drive = Drive::new();
    let world = World::open(&drive);
    let mut batch = WriteBatch::new();
    batch.merge(b"n", &1_u64.to_le_bytes());
    world.write(batch).unwrap();
    for n in 0..50 {
        world.put(&format!("a{n}"), n).unwrap();
    }
    // The steps of a close up to the removal of the log. The power fails before the marks are dropped.
    world.tables.flush().unwrap();
    world.log.retire(world.log.next_ticket()).unwrap();
    world.log.remove().unwrap();
    let drive = drive.after_a_cut(1);
    world.abandon();

    let world = World::open(&drive);
    assert_eq!((world.get("n"), world.get("a49")), (Some(1), Some(49)));
    for n in 0..50 {
        world.put(&format!("b{n}"), n).unwrap();
    }
    let drive = drive.after_a_cut(2);
    world.abandon();

    let world = World::open(&drive);
    let lost: Vec<u64> = (0..50).filter(|n| world.get(&format!("b{n}")) != Some(*n)).collect();
    world.abandon();
    assert_eq!(lost, Vec::<u64>::new(), "acknowledged synced writes are gone");
}

#[test]
fn a_close_interrupted_at_any_step_leaves_a_database_that_opens_without_the_log() {
    for done in 0..4 {
        let drive = Drive::new();
        let world = World::open(&drive);
        let mut batch = WriteBatch::new();
        batch.merge(b"n", &1_u64.to_le_bytes());
        world.write(batch).unwrap();
        world.put("a", 7).unwrap();
        // The steps of a close, with a power cut after each.
        world.tables.flush().unwrap();
        world.log.retire(world.log.next_ticket()).unwrap();
        let steps: [&dyn Fn(); 3] =
            [&|| world.log.seal().unwrap(), &|| world.tables.drop_marks().unwrap(), &|| {
                world.log.remove().unwrap()
            }];
        steps.iter().take(done).for_each(|step| step());
        let drive = drive.after_a_cut(done as u64);
        world.abandon();
        let settings =
            DatabaseOptions { wal: WalMode::Group, db: options(false), ..DatabaseOptions::default() };
        let database = Database::open(&drive.mount(), "/db", &settings).unwrap();
        for (key, value) in [("n", 1_u64), ("a", 7)] {
            let found = database.db().get(key.as_bytes()).unwrap();
            assert_eq!(found.as_deref(), Some(&value.to_le_bytes()[..]), "{key} after {done} steps");
        }
        database.close().unwrap();
    }
}

#[test]
fn a_write_whose_flush_failed_is_not_reported_as_failed_for_good() {
    let drive = Drive::of(EmuOptions {
        zones: 64,
        zone_size: Blocks(1024),
        zone_capacity: Blocks(1024),
        volatile_cache: true,
        ..EmuOptions::default()
    });
    let world = World::open(&drive);
    drive.emu.fail(FaultSpec::next(FaultOp::Flush));
    let error = world.put("k", 1).unwrap_err();
    let WriteError::Log(log) = &error else { panic!("{error:?}") };
    assert_eq!(log.kind, LogErrorKind::Poisoned, "{error}");
    world.abandon();
}

/// `GetRootDB()->Flush()` flushes one family, whatever `atomic_flush` says.
#[test]
fn a_flush_of_one_family_past_the_parallel_wal_retires_no_batch_of_other_families() {
    let drive = Drive::new();
    let world = World::with_families(&drive, 1);
    let batch = BatchBuilder::new().put(Family(1), b"other", b"1").build();
    world.parallel_wal.write(&batch, WriteOptions::SYNCED, |mark| world.tables.apply(&batch, mark)).unwrap();
    world.put("a", 2).unwrap();
    world.db.flush().unwrap();
    assert_eq!(world.parallel_wal.held_records().records, 2);
    let after = drive.after_a_cut(1);
    world.abandon();
    let world = World::with_families(&after, 1);
    assert_eq!(world.get("a"), Some(2));
    let other = world.db.iter_in(1, b"").unwrap();
    assert!(other.valid() && other.key() == b"other");
    drop(other);
    world.put("a", 3).unwrap();
    assert_eq!(world.parallel_wal.held_records().records, 1);
    world.tables.flush().unwrap();
    assert_eq!(world.parallel_wal.held_records().records, 0, "a flush of the tables covers all families");
    world.parallel_wal.close().unwrap();
    world.tables.wait_for_flush();
    world.db.close().unwrap();
}

/// RocksDB before 7.10 reports the latest reason of the family's flushes: here the reason of the flush of all families.
#[test]
fn a_flush_of_one_family_that_ends_during_a_flush_of_all_retires_no_batch_of_other_families() {
    let drive = Drive::new();
    let gate = Arc::new(FlushGate::default());
    let world = World::with_gated_flushes(Some(Arc::clone(&gate)), &drive, 1);
    let batch = BatchBuilder::new().put(Family(1), b"other", b"1").build();
    world.parallel_wal.write(&batch, WriteOptions::SYNCED, |mark| world.tables.apply(&batch, mark)).unwrap();
    world.put("a", 2).unwrap();
    let mut written = 2;
    std::thread::scope(|scope| {
        let past = scope.spawn(|| world.db.flush());
        gate.wait(|counts| counts.begun == 1);
        // Fill a memtable. The next write makes RocksDB switch memtables and request a flush of all families.
        while world.db.property("rocksdb.num-immutable-mem-table").as_deref() != Some("2") {
            let mut batch = WriteBatch::new();
            batch.put(format!("fill {written}").as_bytes(), &[7; 3000]);
            world.write(batch).unwrap();
            written += 1;
        }
        gate.open(1);
        gate.wait(|counts| counts.over == 1);
        let held = world.parallel_wal.held_records().records;
        gate.open(usize::MAX);
        past.join().unwrap().unwrap();
        assert_eq!(held, written, "the other family was in memory");
    });
    world.tables.flush().unwrap();
    assert_eq!(world.parallel_wal.held_records().records, 0);
    world.parallel_wal.close().unwrap();
    world.tables.wait_for_flush();
    world.db.close().unwrap();
}

/// An empty range delete leaves no entry, so that the table's largest sequence is below the batch. A flush that finds all
/// memtables empty reports all families as flushed.
#[test]
fn a_record_without_an_entry_in_tables_retires_at_the_next_flush() {
    let drive = Drive::new();
    let world = World::open(&drive);
    world.put("a", 1).unwrap();
    let batch = BatchBuilder::new().delete_range(Family::DEFAULT, b"b", b"b").build();
    world.parallel_wal.write(&batch, WriteOptions::SYNCED, |mark| world.tables.apply(&batch, mark)).unwrap();
    world.db.flush().unwrap();
    assert_eq!(world.parallel_wal.held_records().records, 1, "the table ends with the put");
    world.tables.flush().unwrap();
    assert_eq!(world.parallel_wal.held_records().records, 0);
    world.parallel_wal.close().unwrap();
    world.tables.wait_for_flush();
    world.db.close().unwrap();
}
