//! A model of RocksDB's tables in memory, with memtables that a crash loses, and batches for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::memory_log::{MemoryLog, Survivors};
use crate::parallel_wal::*;

/// A [`BatchBuilder`] for the model of the tables: keys are texts, values are numbers.
#[derive(Default, Clone)]
pub struct ModelBatch(BatchBuilder);

impl ModelBatch {
    pub fn put(self, family: u8, key: &str, value: i64) -> ModelBatch {
        ModelBatch(self.0.put(Family(family.into()), key.as_bytes(), &value.to_le_bytes()))
    }

    pub fn delete(self, family: u8, key: &str) -> ModelBatch {
        ModelBatch(self.0.delete(Family(family.into()), key.as_bytes()))
    }

    pub fn single_delete(self, family: u8, key: &str) -> ModelBatch {
        ModelBatch(self.0.single_delete(Family(family.into()), key.as_bytes()))
    }

    pub fn delete_range(self, family: u8, from: &str, to: &str) -> ModelBatch {
        ModelBatch(self.0.delete_range(Family(family.into()), from.as_bytes(), to.as_bytes()))
    }

    pub fn merge(self, family: u8, key: &str, by: i64) -> ModelBatch {
        ModelBatch(self.0.merge(Family(family.into()), key.as_bytes(), &by.to_le_bytes()))
    }

    pub fn done(self) -> Vec<u8> {
        self.0.build()
    }
}

/// The keys of a family, each with its versions: a single delete removes the newest one and uncovers the one before.
type FamilyData = BTreeMap<(u32, Vec<u8>), Vec<i64>>;

#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub data: FamilyData,
    pub sequence: u64,
    pub floor: Option<u64>,
    marks: BTreeSet<u64>,
}

impl Contents {
    fn apply(&mut self, batch: &[u8], mark: Option<Mark>) -> u64 {
        for record in parse(batch).unwrap() {
            let record = record.unwrap();
            self.sequence += 1;
            let at = (record.family.0, record.key.to_vec());
            let number = || i64::from_le_bytes(record.value.try_into().unwrap());
            match record.kind {
                RecordKind::Put => self.data.entry(at).or_default().push(number()),
                RecordKind::Delete => drop(self.data.remove(&at)),
                RecordKind::SingleDelete => {
                    let left = self.data.get_mut(&at).is_some_and(|v| v.pop().is_some() && !v.is_empty());
                    if !left {
                        self.data.remove(&at);
                    }
                }
                RecordKind::DeleteRange => {
                    self.data.retain(|(f, k), _| *f != at.0 || k[..] < *record.key || k[..] >= *record.value);
                }
                RecordKind::Merge => {
                    let versions = self.data.entry(at).or_insert_with(|| vec![0]);
                    *versions.last_mut().unwrap() += number();
                }
                RecordKind::LogData => {}
            }
        }
        let last = self.sequence;
        if let Some(mark) = mark {
            self.sequence += 1;
            self.marks.insert(mark.ticket.0);
            if let Some(floor) = mark.floor {
                self.set_floor(floor);
            }
        }
        last
    }

    fn set_floor(&mut self, floor: Ticket) {
        self.floor = Some(floor.0);
        self.marks = self.marks.split_off(&floor.0);
    }

    pub fn get(&self, family: u32, key: &str) -> Option<i64> {
        self.data.get(&(family, key.as_bytes().to_vec())).map(|versions| *versions.last().unwrap())
    }
}

#[derive(Default, Debug)]
pub struct State {
    /// The memtables' content over that of the tables.
    pub live: Contents,
    /// The content of the tables, which a crash keeps.
    pub durable: Contents,
}

/// A model of RocksDB's tables in memory.
#[derive(Default)]
pub struct ModelTables {
    pub state: Mutex<State>,
    pub parallel_wal: OnceLock<Weak<ParallelWal>>,
    /// Number of batches that may still be replayed before the power fails.
    pub replays: AtomicU64,
    pub flushes_asked: AtomicU64,
    /// The callback of the last background flush that was requested; the test decides when the flush runs.
    pub asked: Mutex<Option<FlushOver>>,
    /// Whether the tables refuse every batch.
    pub refuses: AtomicBool,
    marks_go: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ModelTables {
    pub fn new() -> Arc<ModelTables> {
        ModelTables::from(Contents::default(), u64::MAX)
    }

    /// Tables with the content that a crash left.
    pub fn from(durable: Contents, replays: u64) -> Arc<ModelTables> {
        let state = Mutex::new(State { live: durable.clone(), durable });
        Arc::new(ModelTables { state, replays: AtomicU64::new(replays), ..ModelTables::default() })
    }

    /// Applies a batch to the memtables, as RocksDB's `Write` does with the log off.
    pub fn apply(&self, batch: &[u8], mark: Option<Mark>) -> Applied {
        Applied { last: Sequence(self.state.lock().live.apply(batch, mark)) }
    }

    /// Ends a flush of the memtables `sealed`: a flush of younger memtables that ended earlier holds.
    pub fn install(&self, sealed: Contents) {
        let mut state = self.state.lock();
        if state.durable.sequence <= sealed.sequence {
            state.durable = sealed;
        }
    }

    /// Flushes one family alone, past the parallel WAL.
    pub fn flush_family(&self, family: u32) {
        let parallel_wal = self.parallel_wal.get().and_then(Weak::upgrade).unwrap();
        parallel_wal.flush_begins().unwrap();
        let mut state = self.state.lock();
        state.durable.data.retain(|(f, _), _| *f != family);
        let live = state.live.data.clone();
        state.durable.data.extend(live.into_iter().filter(|((f, _), _)| *f == family));
        let largest = Sequence(state.live.sequence);
        drop(state);
        parallel_wal.flushed(Family(family), largest);
    }

    pub fn get(&self, family: u32, key: &str) -> Option<i64> {
        self.state.lock().live.get(family, key)
    }

    /// Ends the requested background flush as failed.
    pub fn fail_flush(&self) {
        let over = self.asked.lock().take();
        over.unwrap()();
    }

    /// Calls `what` when the marks are dropped.
    pub fn when_marks_go(&self, what: impl FnOnce() + Send + 'static) {
        *self.marks_go.lock() = Some(Box::new(what));
    }

    pub fn has_marks(&self) -> bool {
        self.state.lock().live.floor.is_some()
    }

    pub fn marks(&self) -> usize {
        self.state.lock().live.marks.len()
    }
}

impl Tables for ModelTables {
    fn replay(&self, batch: &[u8], mark: Option<Mark>) -> Result<(), LogError> {
        let left = self.replays.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        if left.is_err() {
            return Err(LogError::new(LogErrorKind::Poisoned, "the power failed"));
        }
        self.apply(batch, mark);
        Ok(())
    }

    fn check_writable(&self) -> Result<(), LogError> {
        let refuses = self.refuses.load(Ordering::Relaxed);
        if refuses { Err(LogError::new(LogErrorKind::NoSpace, "a flush failed")) } else { Ok(()) }
    }

    fn flush(&self) -> Result<(), LogError> {
        let sealed = self.state.lock().live.clone();
        let parallel_wal = self.parallel_wal.get().and_then(Weak::upgrade);
        if let Some(parallel_wal) = &parallel_wal {
            parallel_wal.flush_begins()?;
        }
        std::thread::yield_now();
        let sequence = sealed.sequence;
        self.install(sealed);
        if let Some(parallel_wal) = parallel_wal {
            parallel_wal.all_flushed(Sequence(sequence));
        }
        let over = self.asked.lock().take();
        if let Some(over) = over {
            over();
        }
        Ok(())
    }

    fn empty_memtables(&self) -> Result<(), LogError> {
        self.flush()
    }

    fn flush_soon(&self, over: FlushOver) {
        self.flushes_asked.fetch_add(1, Ordering::Relaxed);
        *self.asked.lock() = Some(over);
    }

    fn floor(&self) -> Result<Option<Ticket>, LogError> {
        Ok(self.state.lock().live.floor.map(Ticket))
    }

    fn is_marked(&self, ticket: Ticket) -> Result<bool, LogError> {
        Ok(self.state.lock().live.marks.contains(&ticket.0))
    }

    fn set_floor(&self, floor: Ticket) -> Result<(), LogError> {
        let mut state = self.state.lock();
        state.live.set_floor(floor);
        state.live.marks.clear();
        // As in RocksDB the floor is a record with a sequence, so that memtables sealed before it are older.
        state.live.sequence += 1;
        Ok(())
    }

    fn drop_marks(&self) -> Result<(), LogError> {
        let then = self.marks_go.lock().take();
        if let Some(then) = then {
            then();
        }
        let mut state = self.state.lock();
        for contents in [0, 1] {
            let contents = if contents == 0 { &mut state.live } else { &mut state.durable };
            contents.floor = None;
            contents.marks.clear();
        }
        Ok(())
    }
}

/// A parallel WAL over a log in memory and the model of the tables, with families 0 and 1, both with a merge operator.
pub struct World {
    pub log: Arc<MemoryLog>,
    pub tables: Arc<ModelTables>,
    pub parallel_wal: Arc<ParallelWal>,
}

impl World {
    pub fn new(options: ParallelWalOptions) -> World {
        World::open(Arc::new(MemoryLog::new()), ModelTables::new(), options).unwrap()
    }

    pub fn open(
        log: Arc<MemoryLog>,
        tables: Arc<ModelTables>,
        options: ParallelWalOptions,
    ) -> Result<World, LogError> {
        let merges = FamilyInfo { merges: true, one_stripe: false };
        let families = [(Family(0), merges), (Family(1), merges)];
        let parallel_wal = Arc::new(ParallelWal::open(
            Arc::clone(&log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            families,
            options,
        )?);
        tables.parallel_wal.set(Arc::downgrade(&parallel_wal)).unwrap();
        Ok(World { log, tables, parallel_wal })
    }

    pub fn write(&self, how: WriteOptions, batch: &ModelBatch) -> Result<(), WriteError<String>> {
        let batch = batch.clone().done();
        self.parallel_wal.write(&batch, how, |mark| {
            std::thread::yield_now();
            Ok(self.tables.apply(&batch, mark))
        })
    }

    /// Writes a batch that the log takes and the tables refuse; returns the error.
    pub fn refused(&self, how: WriteOptions, batch: &ModelBatch) -> WriteError<String> {
        self.parallel_wal.write(&batch.clone().done(), how, |_| Err("refused".to_owned())).unwrap_err()
    }

    /// The database after a power cut. Further cuts interrupt the first recoveries, each after the number of replayed
    /// batches in `recoveries`.
    pub fn cut(
        log: &MemoryLog,
        durable: Contents,
        survive: &mut Survivors<'_>,
        keep_mark: bool,
        recoveries: &[u64],
    ) -> World {
        let (mut log, mut durable) = (log.cut(survive, keep_mark), durable);
        for replays in recoveries {
            let tables = ModelTables::from(durable.clone(), *replays);
            let opened = World::open(Arc::new(log.cut(survive, keep_mark)), Arc::clone(&tables), DEFAULT);
            // RocksDB may have flushed the memtables before the power failed.
            let state = tables.state.lock();
            durable =
                if opened.is_err() && replays % 2 == 1 { state.live.clone() } else { state.durable.clone() };
            drop(state);
            if let Ok(opened) = opened {
                log = opened.log.cut(survive, keep_mark);
            }
        }
        World::open(Arc::new(log), ModelTables::from(durable, u64::MAX), DEFAULT).unwrap()
    }
}

pub const DEFAULT: ParallelWalOptions =
    ParallelWalOptions { log_limit: 1 << 30, log_block: 4096, broken_rule: None };
