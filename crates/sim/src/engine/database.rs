//! A database on a mounted file system: RocksDB with its own WAL, RocksDB under a parallel WAL, modelled tables under a parallel WAL, or
//! LevelDB.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::wal::LogOptions;
use fs::{Batching, Fs, MountOptions, ParallelOptions};
use futures_util::FutureExt as _;
use kv::parallel_wal::{
    Applied, Family, FamilyInfo, FsLog, LOG_FILE, Mark, ParallelWal, ParallelWalOptions, RecordKind,
    RocksTables, Tables, TicketLog, WriteError, WriteOptions, parse,
};
use rocks::{Db, DbOptions, WriteBatch};
use units::{block_on, spawn};
use zoned::ZonedDevice;

use super::contents::Contents;
use super::key_order::{BatchTurn, KeyOrder};
use super::model_tables::{self, ModelTables};
use super::plan::{EXTRA_FAMILIES, RARE_FAMILY};
use super::shape::{Mode, Shape};
use crate::BrokenRules;
use crate::files::buffered_options;

const DATABASE_DIRECTORY: &str = "/db";
const CHECKPOINT_DIRECTORY: &str = "/checkpoints";
/// Most records of the parallel WAL in flight: more than the number of writers.
const MAX_OPEN_RECORDS: usize = 64;
const FAMILY_INFO: FamilyInfo = FamilyInfo { merges: true, one_stripe: false };

/// The content of a database, by family and key.
pub(super) type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// An open database on a mounted file system.
pub(super) struct Database {
    fs: Fs,
    store: Store,
    /// Keeps the order of batches that share a key, as the server does; `None` where the parallel WAL keeps the order.
    order: Option<KeyOrder>,
    broken: BrokenRules,
}

#[derive(Clone)]
enum Store {
    /// RocksDB with its own WAL.
    Group(Arc<Db>),
    /// LevelDB, in whose keys the family's number comes first: LevelDB has no families.
    LevelDb(Arc<level::Db>),
    Rocks {
        db: Arc<Db>,
        parallel_wal: Arc<ParallelWal>,
        tables: Arc<RocksTables>,
    },
    Model {
        parallel_wal: Arc<ParallelWal>,
        tables: Arc<ModelTables>,
    },
}

/// The outcome of a database's step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Done,
    /// The tables refused the batch, as the step asked, and the log voided the record.
    Refused,
    /// The flush of modelled tables failed, as some do at random.
    FlushFailed,
}

/// The mount options of a workload whose appended bytes stay in memory for `buffered` at most, if any.
pub(crate) fn mount_options(buffered: Option<Duration>, broken: BrokenRules) -> MountOptions {
    let options = MountOptions {
        log: LogOptions { buffer: 8 << 10, ..LogOptions::default() },
        write_buffer: 32 << 10,
        ..MountOptions::default()
    };
    broken.mount_options_with_broken_rule(buffered_options(options, buffered))
}

fn error_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Database {
    /// Mounts the file system, opens the database and recovers its log; in any mode, as [`kv::parallel_wal::Database`] does.
    pub(super) fn open(
        device: &Arc<dyn ZonedDevice>,
        shape: &Shape,
        broken: BrokenRules,
    ) -> Result<Database, String> {
        let options = mount_options(shape.buffered, broken);
        let mount = Fs::mount(Arc::clone(device), &options);
        let fs = block_on(&**device.driver(), mount).map_err(|e| format!("mount: {e}"))?;
        if shape.mode == Mode::Group && fs.stat(&format!("{DATABASE_DIRECTORY}/{LOG_FILE}")).is_ok() {
            let parallel = Shape { mode: Mode::Waltz, ..*shape };
            Database::open_on(&fs, &parallel, broken)?.close_database(true)?;
        }
        Database::open_on(&fs, shape, broken)
    }

    fn open_on(fs: &Fs, shape: &Shape, broken: BrokenRules) -> Result<Database, String> {
        let store = if shape.mode == Mode::LevelDb {
            let options = level::DbOptions {
                write_buffer: 64 << 10,
                block_cache: 1 << 20,
                table_size: 1 << 20,
                verify_checksums: true,
                ..level::DbOptions::default()
            };
            let db = level::Db::open(fs, DATABASE_DIRECTORY, &options).map_err(error_text)?;
            Store::LevelDb(Arc::new(db))
        } else if shape.modelled {
            let tables = ModelTables::open(fs, DATABASE_DIRECTORY, RARE_FAMILY + 1, broken)?;
            model_tables::make_directory(fs, CHECKPOINT_DIRECTORY)?;
            let below = Arc::clone(&tables) as Arc<dyn Tables>;
            let parallel_wal = open_parallel_wal(fs, shape, below, tables.families(), broken)?;
            tables.report_flushes_to(&parallel_wal);
            Store::Model { parallel_wal, tables }
        } else {
            let options = DbOptions {
                write_buffer: 64 << 10,
                background_jobs: 2,
                block_cache: 1 << 20,
                unlogged: shape.mode != Mode::Group,
                adds: true,
                families: EXTRA_FAMILIES,
                ..DbOptions::default()
            };
            let db = Arc::new(Db::open(fs, DATABASE_DIRECTORY, &options).map_err(error_text)?);
            if shape.mode == Mode::Group {
                Store::Group(db)
            } else {
                let tables = Arc::new(RocksTables::new(Arc::clone(&db), Arc::clone(fs.driver()), None));
                let below = Arc::clone(&tables) as Arc<dyn Tables>;
                let families = (0..=u32::from(EXTRA_FAMILIES)).map(Family).collect();
                let parallel_wal = open_parallel_wal(fs, shape, below, families, broken)?;
                tables.report_flushes_to(&parallel_wal);
                Store::Rocks { db, parallel_wal, tables }
            }
        };
        let order = (shape.ordered && shape.mode.is_parallel()).then(KeyOrder::default);
        Ok(Database { fs: fs.clone(), store, order, broken })
    }

    /// Writes a batch to the database. `refused`: the tables refuse the batch after the log has it.
    pub(super) async fn write(
        &self,
        batch: &[u8],
        how: WriteOptions,
        refused: bool,
    ) -> Result<Outcome, String> {
        let written = match &self.store {
            Store::Group(db) => {
                db.write(&WriteBatch::from_data(batch), how.synced).map_err(error_text)?;
                return Ok(Outcome::Done);
            }
            Store::LevelDb(db) => {
                let mut batch = leveldb_batch(batch)?;
                db.write(&mut batch, how.synced).map_err(error_text)?;
                return Ok(Outcome::Done);
            }
            Store::Rocks { parallel_wal, tables, .. } => {
                let apply = |mark| tables.apply(batch, mark).map_err(error_text);
                let apply_soon = |mark| async move {
                    if refused {
                        Err(None)
                    } else {
                        tables.apply_soon(batch, mark).await.map_err(|e| Some(error_text(e)))
                    }
                };
                match &self.order {
                    None => parallel_wal.write(batch, how, apply_unless_refused(refused, apply)),
                    Some(order) => {
                        let _turn = self.turn(order, batch).await?;
                        tables.ready(batch.len()).await;
                        parallel_wal.write_ordered(batch, how, apply_soon).await
                    }
                }
            }
            Store::Model { parallel_wal, tables } => {
                let apply = |mark| tables.apply(batch, mark).map_err(error_text);
                match &self.order {
                    None => parallel_wal.write(batch, how, apply_unless_refused(refused, apply)),
                    Some(order) => {
                        let _turn = self.turn(order, batch).await?;
                        let apply = apply_unless_refused(refused, apply);
                        parallel_wal.write_ordered(batch, how, |mark| async move { apply(mark) }).await
                    }
                }
            }
        };
        match written {
            Ok(()) => Ok(Outcome::Done),
            Err(WriteError::Apply(None)) => Ok(Outcome::Refused),
            Err(WriteError::Apply(Some(error))) => Err(error),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    /// The turn of an ordered write, which stands in for the parallel WAL's key locks.
    async fn turn<'o>(&self, order: &'o KeyOrder, batch: &[u8]) -> Result<Option<BatchTurn<'o>>, String> {
        if !self.broken.keeps_key_order() {
            return Ok(None);
        }
        order.turn(batch).await.map(Some).map_err(error_text)
    }

    /// The value of a key in the database's default family.
    pub(super) fn read(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        match &self.store {
            Store::Group(db) | Store::Rocks { db, .. } => {
                Ok(db.get(key.as_bytes()).map_err(error_text)?.map(|value| value.to_vec()))
            }
            Store::LevelDb(db) => db.get(&leveldb_key(0, key.as_bytes())).map_err(error_text),
            Store::Model { tables, .. } => Ok(tables.get(0, key.as_bytes())),
        }
    }

    /// Bytes of files that are in memory only; `None` without a page cache.
    pub(super) fn dirty_bytes(&self) -> Option<u64> {
        let cache = self.fs.cache_stats();
        (cache.capacity.0 > 0).then_some(cache.dirty.0)
    }

    /// Runs a future to its end on this thread. Where a [`KeyOrder`] keeps the order the thread blocks; else the future must
    /// never wait.
    pub(super) fn finish<T>(&self, what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        if self.order.is_some() {
            return block_on(&**self.fs.driver(), what);
        }
        what.now_or_never().unwrap_or_else(|| Err("the step waits for another one".into()))
    }

    /// Runs a blocking call on the store, on a thread of its own where the calling thread serves other writes too.
    async fn run_on_own_thread<T: Send + 'static>(
        &self,
        run: impl FnOnce(Store) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let store = self.store.clone();
        if self.order.is_none() {
            return run(store);
        }
        spawn(&**self.fs.driver(), "sim-apart", async move { run(store) }).await
    }

    /// Runs a step of modelled tables as [`run_on_own_thread`](Database::run_on_own_thread) does.
    async fn run_on_model_tables(
        &self,
        run: impl FnOnce(&ParallelWal, &ModelTables) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let run = |store| match store {
            Store::Model { parallel_wal, tables } => run(&parallel_wal, &tables),
            Store::Group(_) | Store::LevelDb(_) | Store::Rocks { .. } => {
                Err("the step is of modelled tables".into())
            }
        };
        self.run_on_own_thread(run).await
    }

    /// Makes every answered write of the database durable.
    pub(super) async fn sync(&self) -> Result<(), String> {
        self.run_on_own_thread(|store| match store {
            Store::Group(db) => db.sync_wal().map_err(error_text),
            Store::LevelDb(db) => db.write(&mut level::WriteBatch::new(), true).map_err(error_text),
            Store::Rocks { parallel_wal, .. } | Store::Model { parallel_wal, .. } => {
                parallel_wal.sync().map_err(error_text)
            }
        })
        .await
    }

    /// Writes the database's memtables to tables. `alone`: no ordered write runs during the flush.
    pub(super) async fn flush(&self, alone: bool) -> Result<Outcome, String> {
        let alone = alone && self.order.is_some();
        self.run_on_own_thread(move |store| match store {
            Store::Group(db) => db.flush().map(|()| Outcome::Done).map_err(error_text),
            Store::LevelDb(db) => {
                db.compact();
                Ok(Outcome::Done)
            }
            Store::Rocks { parallel_wal, tables, .. } => {
                let flush = || tables.flush();
                let flushed = if alone { parallel_wal.exclusive(flush) } else { flush() };
                flushed.map(|()| Outcome::Done).map_err(error_text)
            }
            Store::Model { parallel_wal, tables } => {
                let flush = || tables.flush_or_fail();
                let flushed = if alone { parallel_wal.exclusive(flush) } else { flush() };
                flushed
                    .map(|done| if done { Outcome::Done } else { Outcome::FlushFailed })
                    .map_err(error_text)
            }
        })
        .await
    }

    /// Flushes RocksDB's default family without telling the parallel WAL, concurrently with writes.
    pub(super) async fn flush_past(&self) -> Result<(), String> {
        self.run_on_own_thread(|store| match store {
            Store::Group(db) | Store::Rocks { db, .. } => db.flush().map_err(error_text),
            Store::LevelDb(_) | Store::Model { .. } => Err("the store flushes all families".into()),
        })
        .await
    }

    /// Creates a family of modelled tables.
    pub(super) async fn create_family(&self, family: u32) -> Result<(), String> {
        self.run_on_model_tables(move |parallel_wal, tables| {
            parallel_wal.exclusive(|| {
                tables.create_family(Family(family)).map_err(error_text)?;
                parallel_wal.set_family(Family(family), Some(FAMILY_INFO));
                Ok(())
            })
        })
        .await
    }

    /// Drops a family of modelled tables.
    pub(super) async fn drop_family(&self, family: u32) -> Result<(), String> {
        self.run_on_model_tables(move |parallel_wal, tables| {
            parallel_wal.exclusive(|| {
                tables.drop_family(Family(family)).map_err(error_text)?;
                parallel_wal.set_family(Family(family), None);
                Ok(())
            })
        })
        .await
    }

    /// Ingests a batch's records as a table of modelled tables.
    pub(super) async fn ingest(&self, batch: Vec<u8>) -> Result<(), String> {
        let marks = self.broken.marks_before_ingestion();
        self.run_on_model_tables(move |parallel_wal, tables| {
            if marks {
                parallel_wal.exactly_once().map_err(error_text)?;
            }
            parallel_wal.exclusive(|| tables.ingest(&batch)).map_err(error_text)
        })
        .await
    }

    /// Writes the checkpoint `name` of modelled tables.
    pub(super) async fn checkpoint(&self, name: &str) -> Result<(), String> {
        let path = format!("{CHECKPOINT_DIRECTORY}/{name}");
        self.run_on_model_tables(move |_, tables| tables.checkpoint(&path).map_err(error_text)).await
    }

    /// Turns on or off that flushes of modelled tables wait and fail at random.
    pub(super) fn set_random_flush_faults(&self, unsteady: bool) {
        if let Store::Model { tables, .. } = &self.store {
            tables.set_random_flush_faults(unsteady);
        }
    }

    pub(super) fn content(&self) -> Result<Content, String> {
        let mut content = Content::new();
        match &self.store {
            Store::Group(db) | Store::Rocks { db, .. } => {
                for family in 0..=u32::from(EXTRA_FAMILIES) {
                    let mut cursor = db.iter_in(family, &[]).map_err(error_text)?;
                    while cursor.valid() {
                        content.insert((family, cursor.key().to_vec()), cursor.value().to_vec());
                        cursor.next();
                    }
                    cursor.status().map_err(error_text)?;
                }
            }
            Store::LevelDb(db) => {
                let mut cursor = db.iter(&[]);
                while cursor.valid() {
                    let (family, name) = cursor.key().split_first().ok_or("a key without a family")?;
                    content.insert((u32::from(*family), name.to_vec()), cursor.value().to_vec());
                    cursor.next();
                }
                cursor.status().map_err(error_text)?;
            }
            Store::Model { tables, .. } => content = visible_content(&tables.live_contents()),
        }
        Ok(content)
    }

    /// The checkpoints of modelled tables, by name.
    pub(super) fn checkpoints(&self) -> Result<BTreeMap<String, Content>, String> {
        if !matches!(self.store, Store::Model { .. }) {
            return Ok(BTreeMap::new());
        }
        let entries = self.fs.read_dir(CHECKPOINT_DIRECTORY).map_err(error_text)?;
        let whole =
            entries.into_iter().filter(|entry| !entry.name.ends_with(model_tables::UNFINISHED_SUFFIX));
        let read = |name: String| {
            let contents = model_tables::read(&self.fs, &format!("{CHECKPOINT_DIRECTORY}/{name}"))?;
            Ok((name, visible_content(&contents)))
        };
        whole.map(|entry| read(entry.name)).collect()
    }

    /// Closes the database and unmounts. If not `cleanly`, a parallel log keeps its records.
    pub(super) fn close(self, cleanly: bool) -> Result<(), String> {
        let fs = self.fs.clone();
        self.close_database(cleanly)?;
        block_on(&**fs.driver(), fs.unmount()).map_err(|e| format!("unmount: {e}"))
    }

    fn close_database(self, cleanly: bool) -> Result<(), String> {
        let close = |parallel_wal: &ParallelWal| match cleanly {
            true => parallel_wal.close().map_err(|e| format!("closing the parallel WAL: {e}")),
            false => Ok(()),
        };
        match self.store {
            Store::Group(db) => db.close(),
            Store::LevelDb(db) => {
                drop(db);
                Ok(())
            }
            Store::Rocks { db, parallel_wal, tables } => {
                close(&parallel_wal)?;
                tables.wait_for_flush();
                db.close()
            }
            Store::Model { parallel_wal, tables } => {
                close(&parallel_wal)?;
                tables.wait_for_flush();
                Ok(())
            }
        }
        .map_err(|e| format!("closing the database: {e}"))
    }
}

/// The key of LevelDB for a key of a family.
fn leveldb_key(family: u32, key: &[u8]) -> Vec<u8> {
    let family = u8::try_from(family).expect("RocksDB's families have small numbers");
    [&[family], key].concat()
}

/// A batch of puts and deletes in LevelDB's form.
fn leveldb_batch(batch: &[u8]) -> Result<level::WriteBatch, String> {
    let mut to = level::WriteBatch::new();
    for record in parse(batch).map_err(error_text)? {
        let record = record.map_err(error_text)?;
        let key = leveldb_key(record.family.0, record.key);
        match record.kind {
            RecordKind::Put => to.put(&key, record.value),
            RecordKind::Delete => to.delete(&key),
            kind => return Err(format!("LevelDB has no {kind:?}")),
        }
    }
    Ok(to)
}

/// Opens the parallel WAL of the database over `tables`.
fn open_parallel_wal(
    fs: &Fs,
    shape: &Shape,
    tables: Arc<dyn Tables>,
    families: Vec<Family>,
    broken: BrokenRules,
) -> Result<Arc<ParallelWal>, String> {
    let batching = if shape.mode == Mode::Auto { Batching::Auto } else { Batching::Each };
    let options = ParallelOptions { open: MAX_OPEN_RECORDS, batching, spare: true, zones: shape.zones };
    let log =
        Arc::new(FsLog::open(fs, DATABASE_DIRECTORY, &options).map_err(error_text)?) as Arc<dyn TicketLog>;
    let options = ParallelWalOptions { log_limit: shape.log_limit, ..ParallelWalOptions::default() };
    let families = families.into_iter().map(|family| (family, FAMILY_INFO));
    let opened = ParallelWal::open(log, tables, families, broken.wal_options_with_broken_rule(options));
    opened.map(Arc::new).map_err(error_text)
}

/// The newest version of every key of modelled tables, without the hidden family.
fn visible_content(contents: &Contents) -> Content {
    let newest = contents.newest_values().filter(|((family, _), _)| *family != Family::MARKS.0);
    newest.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// `apply`, unless the workload's step asks the tables to refuse the batch.
fn apply_unless_refused(
    refused: bool,
    apply: impl FnOnce(Option<Mark>) -> Result<Applied, String>,
) -> impl FnOnce(Option<Mark>) -> Result<Applied, Option<String>> {
    move |mark| if refused { Err(None) } else { apply(mark).map_err(Some) }
}
