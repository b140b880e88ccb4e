//! Modelled tables below a parallel WAL: column families that come and go, ingestion, checkpoints, and flushes that wait or fail.
//!
//! The model keeps RocksDB's rules for memtables and for atomic flushes, and the rules that the wrapper of an unmodified
//! program's database adds (`crates/rocks/cpp/unlogged.cc`). All contents are one file, which every flush, drop and ingestion
//! replaces by a rename:
//!
//! ```text
//!   apply -> memtable of its family -- flush: wait for a stall, choose and seal, sync the log, write the file --> TABLES
//!                                             a drop of a family in between abandons the flush
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fs::{CreateOptions, ErrorKind, Fs};
use kv::parallel_wal::{
    Applied, BatchBuilder, BatchError, Family, FlushOver, LogError, LogErrorKind, Mark, ParallelWal,
    RecordKind, Sequence, Tables, parse,
};
use parking_lot::Mutex;
use units::{Bytes, Spawned, block_on, sleep_until, spawn};

use super::contents::{Contents, SequencedRecord};
use crate::{BrokenRules, Rng};

/// Percentage of flushes that wait before they choose their memtables, and longest wait.
const STALL_PERCENT: u64 = 40;
const LONGEST_STALL_NS: u64 = 4_000_000;
/// Percentage of flushes that fail with their memtables sealed.
const FAILURE_PERCENT: u64 = 10;
/// Percentage of flushes that wait, before they choose their memtables, for a marked batch in a family without entries.
const WRITE_WAIT_PERCENT: u64 = 70;
/// Percentage of flushes that wait for a family's drop with their memtables sealed.
const DROP_WAIT_PERCENT: u64 = 30;
/// Longest wait of a flush for a write or a drop, and time between two looks.
const LONGEST_EVENT_WAIT: Duration = Duration::from_millis(20);
const EVENT_POLL: Duration = Duration::from_micros(100);

/// The end of the name of a file that is being written.
pub(super) const UNFINISHED_SUFFIX: &str = ".new";

/// Flushes until all memtables must be empty, while no batch is applied.
const FLUSH_ATTEMPTS: u32 = 16;

const FLOOR_KEY: &[u8] = b"f";
const TICKET_KEY_PREFIX: &[u8] = b"t";
const TICKET_KEYS_END: &[u8] = b"u";

/// The modelled tables of a database.
pub(super) struct ModelTables {
    fs: Fs,
    path: String,
    broken: BrokenRules,
    state: Mutex<State>,
    this: Weak<ModelTables>,
    /// The lock of the running flush: flushes run one at a time.
    flushing: Mutex<()>,
    /// The lock held while the file of contents is replaced.
    replacing: Mutex<()>,
    reports_to: OnceLock<Weak<ParallelWal>>,
    background: Mutex<Option<Spawned<()>>>,
    /// Whether flushes wait and fail at random.
    unsteady: AtomicBool,
    random: Mutex<Rng>,
}

struct State {
    memtables: BTreeMap<u32, Memtables>,
    /// The contents a reader sees: memtables over tables.
    live: Contents,
    /// The contents of the tables, as the file holds them.
    durable: Contents,
    /// Number of families dropped since the tables were opened.
    drops: u64,
    /// The families of the marked batches that were applied since a flush began to wait for one.
    marked: BTreeSet<u32>,
}

/// The entries of a family that are not in tables.
#[derive(Default)]
struct Memtables {
    active: Vec<SequencedRecord>,
    /// Entries of a flush that is running or has failed.
    sealed: Vec<SequencedRecord>,
}

impl Memtables {
    fn is_empty(&self) -> bool {
        self.active.is_empty() && self.sealed.is_empty()
    }
}

impl State {
    /// The families that have entries in memtables.
    fn unflushed(&self) -> BTreeSet<u32> {
        self.memtables.iter().filter(|(_, tables)| !tables.is_empty()).map(|(family, _)| *family).collect()
    }

    fn apply(&mut self, entries: impl Iterator<Item = SequencedRecord>) {
        for entry in entries {
            if let Some(memtables) = self.memtables.get_mut(&entry.family) {
                self.live.apply(&entry);
                memtables.active.push(entry);
            }
        }
    }
}

fn log_error(error: impl std::fmt::Display) -> LogError {
    LogError::new(LogErrorKind::Failed, error.to_string())
}

/// The records of a batch, numbered from the sequence `first` on.
fn batch_entries(batch: &[u8], first: u64) -> Result<Vec<SequencedRecord>, BatchError> {
    let numbered = parse(batch)?.zip(first..).map(|(record, sequence)| {
        record.map(|record| SequencedRecord {
            sequence,
            kind: record.kind,
            family: record.family.0,
            key: record.key.to_vec(),
            value: record.value.to_vec(),
        })
    });
    numbered.collect()
}

fn ticket_key(ticket: fs::Ticket) -> Vec<u8> {
    [TICKET_KEY_PREFIX, &ticket.0.to_be_bytes()].concat()
}

impl ModelTables {
    /// Opens the modelled tables in the directory `dir`, or makes them with the families below `families`.
    pub(super) fn open(
        fs: &Fs,
        dir: &str,
        families: u32,
        broken: BrokenRules,
    ) -> Result<Arc<ModelTables>, String> {
        let path = format!("{dir}/TABLES");
        let new = fs.stat(&path).is_err();
        let durable = if new { Contents::with_families(0..families) } else { read(fs, &path)? };
        let memtables = durable.families.iter().map(|family| (*family, Memtables::default())).collect();
        let state = Mutex::new(State {
            memtables,
            live: durable.clone(),
            durable,
            drops: 0,
            marked: BTreeSet::new(),
        });
        let tables = Arc::new_cyclic(|this| ModelTables {
            fs: fs.clone(),
            path,
            broken,
            state,
            this: Weak::clone(this),
            flushing: Mutex::default(),
            replacing: Mutex::default(),
            reports_to: OnceLock::new(),
            background: Mutex::default(),
            unsteady: AtomicBool::new(false),
            random: Mutex::new(Rng::new(fs.driver().random())),
        });
        if new {
            make_directory(fs, dir)?;
            tables.replace(|_| {}).map_err(|e| e.to_string())?;
        }
        Ok(tables)
    }

    /// Reports flushes to a parallel WAL from now on.
    pub(super) fn report_flushes_to(&self, parallel_wal: &Arc<ParallelWal>) {
        let _only_the_first = self.reports_to.set(Arc::downgrade(parallel_wal));
    }

    /// Turns on or off that flushes wait and fail at random.
    pub(super) fn set_random_flush_faults(&self, unsteady: bool) {
        self.unsteady.store(unsteady, Ordering::Release);
    }

    /// The families of the modelled tables without the hidden one.
    pub(super) fn families(&self) -> Vec<Family> {
        let state = self.state.lock();
        state.live.families.iter().map(|n| Family(*n)).filter(|family| *family != Family::MARKS).collect()
    }

    /// The contents a reader sees: memtables over tables.
    pub(super) fn live_contents(&self) -> Contents {
        self.state.lock().live.clone()
    }

    pub(super) fn get(&self, family: u32, key: &[u8]) -> Option<Vec<u8>> {
        self.state.lock().live.get(family, key).cloned()
    }

    /// Applies a batch with its mark to the memtables, without the records of families that do not exist.
    pub(super) fn apply(&self, batch: &[u8], mark: Option<Mark>) -> Result<Applied, BatchError> {
        let mut state = self.state.lock();
        let records = batch_entries(batch, state.live.sequence + 1)?;
        let last = state.live.sequence + records.len() as u64;
        if mark.is_some() {
            state.marked.extend(records.iter().map(|record| record.family));
        }
        let marks =
            mark.map_or_else(BatchBuilder::new, |mark| {
                let put = BatchBuilder::new().put(Family::MARKS, &ticket_key(mark.ticket), &[]);
                match mark.floor {
                    Some(floor) => put
                        .delete_range(Family::MARKS, TICKET_KEY_PREFIX, &ticket_key(floor))
                        .put(Family::MARKS, FLOOR_KEY, &floor.0.to_le_bytes()),
                    None => put,
                }
            });
        let marks = batch_entries(&marks.build(), last + 1)?;
        state.live.sequence = last + marks.len() as u64;
        state.apply(records.into_iter().chain(marks));
        Ok(Applied { last: Sequence(last) })
    }

    /// Makes a family of modelled tables. To be called while no batch is being applied.
    pub(super) fn create_family(&self, family: Family) -> Result<(), LogError> {
        self.replace(|contents| {
            contents.families.insert(family.0);
        })?;
        let mut state = self.state.lock();
        state.live.families.insert(family.0);
        state.memtables.insert(family.0, Memtables::default());
        Ok(())
    }

    /// Drops a family of modelled tables. To be called while no batch is being applied.
    pub(super) fn drop_family(&self, family: Family) -> Result<(), LogError> {
        {
            let mut state = self.state.lock();
            state.memtables.remove(&family.0);
            state.live.drop_family(family.0);
            state.drops += 1;
        }
        self.replace(|contents| contents.drop_family(family.0))
    }

    /// Puts the records of a batch into the tables past memtables and log. To be called while no batch is being applied.
    pub(super) fn ingest(&self, batch: &[u8]) -> Result<(), LogError> {
        let overlaps = |entry: &SequencedRecord| {
            let state = self.state.lock();
            let memtables = state.memtables.get(&entry.family);
            let covers = |one: &SequencedRecord| one.kind == RecordKind::DeleteRange || one.key == entry.key;
            memtables.is_some_and(|m| m.active.iter().chain(&m.sealed).any(covers))
        };
        if batch_entries(batch, 0).map_err(log_error)?.iter().any(overlaps) {
            self.empty_memtables()?;
        }
        let ingested = {
            let mut state = self.state.lock();
            let ingested = batch_entries(batch, state.live.sequence + 1).map_err(log_error)?;
            state.live.sequence += ingested.len() as u64;
            ingested
        };
        self.replace(|contents| ingested.iter().for_each(|entry| contents.apply(entry)))?;
        let mut state = self.state.lock();
        ingested.iter().for_each(|entry| state.live.apply(entry));
        Ok(())
    }

    /// Copies the modelled tables to the file `to`, after a flush.
    pub(super) fn checkpoint(&self, to: &str) -> Result<(), LogError> {
        self.flush_all(false)?;
        let _replacing = self.replacing.lock();
        let durable = self.state.lock().durable.encode();
        self.write(to, &durable)
    }

    /// Flushes as [`flush`](Tables::flush) does; false if the model made the flush fail.
    pub(super) fn flush_or_fail(&self) -> Result<bool, LogError> {
        match self.flush_all(true) {
            Err(error) if error.kind == LogErrorKind::Busy => Ok(false),
            ended => ended.map(|()| true),
        }
    }

    /// Waits for the end of the background flush.
    pub(super) fn wait_for_flush(&self) {
        let task = self.background.lock().take();
        if let Some(task) = task {
            block_on(&**self.fs.driver(), task);
        }
    }

    /// Flushes all families, and again until no drop of a family abandons the flush.
    fn flush_all(&self, may_fail: bool) -> Result<(), LogError> {
        let written = Sequence(self.state.lock().live.sequence);
        while !self.flush_once(may_fail)? && !self.broken.takes_abandoned_flush_for_done() {}
        let empty = self.state.lock().unflushed().is_empty();
        if empty || self.broken.takes_abandoned_flush_for_done() {
            self.reported_wal().into_iter().for_each(|parallel_wal| parallel_wal.all_flushed(written));
        }
        Ok(())
    }

    /// Flushes all families at once; false if a drop of a family abandoned the flush.
    fn flush_once(&self, may_fail: bool) -> Result<bool, LogError> {
        let _flushing = self.flushing.lock();
        let drops = self.state.lock().drops;
        let early = self.broken.chooses_families_before_stall().then(|| self.state.lock().unflushed());
        self.stall_at_random();
        self.wait_for_a_write_at_random();
        let sealed: Vec<SequencedRecord> = {
            let mut state = self.state.lock();
            let chosen = early.unwrap_or_else(|| state.unflushed());
            let chosen = state.memtables.iter_mut().filter(|(family, _)| chosen.contains(family));
            let seal = |(_, memtables): (&u32, &mut Memtables)| {
                memtables.sealed.append(&mut memtables.active);
                memtables.sealed.clone()
            };
            chosen.flat_map(seal).collect()
        };
        if sealed.is_empty() {
            return Ok(true);
        }
        if let Some(parallel_wal) = self.reported_wal() {
            parallel_wal.flush_begins()?;
        }
        self.stall_at_random();
        self.wait_for_a_drop_at_random(drops);
        if may_fail && self.is_unsteady(FAILURE_PERCENT) {
            return Err(LogError::new(LogErrorKind::Busy, "the modelled flush fails"));
        }
        if self.state.lock().drops != drops {
            return Ok(false);
        }
        let mut abandoned = false;
        self.replace(|contents| {
            abandoned = self.state.lock().drops != drops;
            if !abandoned {
                sealed.iter().for_each(|entry| contents.apply(entry));
            }
        })?;
        if abandoned {
            return Ok(false);
        }
        let largest: BTreeMap<u32, u64> = sealed.iter().map(|e| (e.family, e.sequence)).collect();
        {
            let mut state = self.state.lock();
            let flushed = state.memtables.iter_mut().filter(|(family, _)| largest.contains_key(family));
            flushed.for_each(|(_, memtables)| memtables.sealed.clear());
        }
        if let Some(parallel_wal) = self.reported_wal() {
            let flushed = largest.iter().map(|(family, largest)| (Family(*family), Sequence(*largest)));
            flushed.for_each(|(family, largest)| parallel_wal.flushed(family, largest));
        }
        Ok(true)
    }

    fn reported_wal(&self) -> Option<Arc<ParallelWal>> {
        self.reports_to.get().and_then(Weak::upgrade)
    }

    fn is_unsteady(&self, percent: u64) -> bool {
        self.unsteady.load(Ordering::Acquire) && self.random.lock().chance(percent)
    }

    fn stall_at_random(&self) {
        if self.is_unsteady(STALL_PERCENT) {
            let driver = &**self.fs.driver();
            let wait = Duration::from_nanos(self.random.lock().below(LONGEST_STALL_NS));
            block_on(driver, sleep_until(driver, driver.now().after(wait)));
        }
    }

    /// Waits in some flushes until a marked batch is in a family that had nothing to flush, while the family of the marks had.
    fn wait_for_a_write_at_random(&self) {
        let before = {
            let mut state = self.state.lock();
            state.marked.clear();
            state.unflushed()
        };
        if before.contains(&Family::MARKS.0) {
            self.wait_at_random(WRITE_WAIT_PERCENT, |state| !state.marked.is_subset(&before));
        }
    }

    /// Waits in some flushes until more than `drops` families have been dropped: that drop abandons the flush.
    fn wait_for_a_drop_at_random(&self, drops: u64) {
        self.wait_at_random(DROP_WAIT_PERCENT, |state| state.drops != drops);
    }

    /// Waits in this percentage of the calls until `happened`, or [`LONGEST_EVENT_WAIT`].
    fn wait_at_random(&self, percent: u64, happened: impl Fn(&State) -> bool) {
        if self.is_unsteady(percent) {
            let driver = &**self.fs.driver();
            let end = driver.now().after(LONGEST_EVENT_WAIT);
            while !happened(&self.state.lock()) && driver.now() < end {
                block_on(driver, sleep_until(driver, driver.now().after(EVENT_POLL)));
            }
        }
    }

    /// Replaces the file of contents durably. `change` alters the contents and runs while no other replacement does.
    fn replace(&self, change: impl FnOnce(&mut Contents)) -> Result<(), LogError> {
        let _replacing = self.replacing.lock();
        let mut contents = self.state.lock().durable.clone();
        change(&mut contents);
        self.write(&self.path, &contents.encode())?;
        self.state.lock().durable = contents;
        Ok(())
    }

    /// Writes a file whole: a power cut leaves the old content or the new.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), LogError> {
        let unfinished = format!("{path}{UNFINISHED_SUFFIX}");
        let written = async {
            match self.fs.unlink(&unfinished).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let file = self.fs.create(&unfinished, &CreateOptions::default()).await?;
            file.append(content).await?;
            file.sync().await?;
            file.close().await?;
            self.fs.rename(&unfinished, path).await?;
            self.fs.sync().await
        };
        block_on(&**self.fs.driver(), written).map_err(log_error)
    }
}

/// Reads a file that [`ModelTables`] wrote.
pub(super) fn read(fs: &Fs, path: &str) -> Result<Contents, String> {
    let reader = fs.open(path).map_err(|e| e.to_string())?;
    let mut bytes = vec![0; usize::try_from(reader.size().0).unwrap_or_default()];
    let read = block_on(&**fs.driver(), reader.read_at(Bytes(0), &mut bytes)).map_err(|e| e.to_string())?;
    let whole = bytes.get(..read).unwrap_or_default();
    Contents::decode(whole).map_err(|e| format!("{path}: {e}"))
}

/// Makes a directory, durably, if it does not exist.
pub(super) fn make_directory(fs: &Fs, path: &str) -> Result<(), String> {
    let made = async {
        match fs.mkdir(path).await {
            Err(error) if error.kind() != ErrorKind::Exists => Err(error),
            _ => fs.sync().await,
        }
    };
    block_on(&**fs.driver(), made).map_err(|e| e.to_string())
}

impl Tables for ModelTables {
    fn replay(&self, batch: &[u8], mark: Option<Mark>) -> Result<(), LogError> {
        self.apply(batch, mark).map(|_| ()).map_err(log_error)
    }

    fn flush(&self) -> Result<(), LogError> {
        self.flush_all(true)
    }

    fn empty_memtables(&self) -> Result<(), LogError> {
        for _ in 0..FLUSH_ATTEMPTS {
            self.flush_all(false)?;
            if self.state.lock().unflushed().is_empty() {
                return Ok(());
            }
        }
        Err(log_error("memtables are not empty after a flush"))
    }

    fn flush_soon(&self, over: FlushOver) {
        let Some(tables) = self.this.upgrade() else { return over() };
        let task = spawn(&**self.fs.driver(), "sim-flush", async move {
            let _the_log_keeps_the_records_of_a_failed_flush = tables.flush();
            over();
        });
        *self.background.lock() = Some(task);
    }

    fn floor(&self) -> Result<Option<fs::Ticket>, LogError> {
        let floor = self.get(Family::MARKS.0, FLOOR_KEY);
        Ok(floor.and_then(|f| f.first_chunk().copied()).map(|f| fs::Ticket(u64::from_le_bytes(f))))
    }

    fn is_marked(&self, ticket: fs::Ticket) -> Result<bool, LogError> {
        Ok(self.get(Family::MARKS.0, &ticket_key(ticket)).is_some())
    }

    fn set_floor(&self, floor: fs::Ticket) -> Result<(), LogError> {
        if !self.state.lock().live.families.contains(&Family::MARKS.0) {
            self.create_family(Family::MARKS)?;
        }
        let batch = BatchBuilder::new().delete_range(Family::MARKS, TICKET_KEY_PREFIX, TICKET_KEYS_END).put(
            Family::MARKS,
            FLOOR_KEY,
            &floor.0.to_le_bytes(),
        );
        self.apply(&batch.build(), None).map(|_| ()).map_err(log_error)
    }

    fn drop_marks(&self) -> Result<(), LogError> {
        let has_marks = self.state.lock().live.families.contains(&Family::MARKS.0);
        if has_marks { self.drop_family(Family::MARKS) } else { Ok(()) }
    }
}
