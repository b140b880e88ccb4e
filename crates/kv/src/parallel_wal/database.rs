//! A database whose log is RocksDB's own or a parallel log.

use std::fmt;
use std::sync::Arc;

use fs::Fs;
use fs::wal::LogStats;
use rocks::{Db, DbOptions, WriteBatch};

use super::batch::Family;
use super::families::FamilyInfo;
use super::fs_log::{FsLog, log_limits, log_path};
use super::log::TicketLog;
use super::mode::WalMode;
use super::options::{HeldRecords, ParallelWalOptions, WriteOptions};
use super::protocol::ParallelWal;
use super::rocks_tables::RocksTables;
use super::tables::Tables;
use crate::error::{Error, Result};

/// Settings with which a [`Database`] is opened.
#[derive(Clone, Debug, Default)]
pub struct DatabaseOptions {
    /// The database's log. Default: `auto`.
    pub wal: WalMode,
    /// RocksDB's settings. `unlogged` is ignored: `wal` decides.
    pub db: DbOptions,
    /// Settings of the parallel WAL, if `wal` names one. None: the log may take a 16th of the drive, at least 4 zones
    /// and at most 1 GiB, before memtables are flushed to empty it.
    pub parallel_wal: Option<ParallelWalOptions>,
}

/// A RocksDB database in a directory of a mounted file system, whose log is RocksDB's own or a parallel one.
///
/// All methods may be called from any thread. Any mode opens a database that any other left, after a clean close and after a
/// crash: the records of either log are in tables before the first write is taken.
pub struct Database {
    db: Arc<Db>,
    wal: WalMode,
    parallel: Option<OpenParallelWal>,
}

struct OpenParallelWal {
    log: Arc<FsLog>,
    parallel_wal: Arc<ParallelWal>,
    tables: Arc<RocksTables>,
}

impl Database {
    /// Opens the database in the directory `dir`, or creates it.
    ///
    /// # Errors
    /// Errors of RocksDB and of the log. After an error the log keeps its records, and the next opening replays them.
    pub fn open(fs: &Fs, dir: &str, options: &DatabaseOptions) -> Result<Database> {
        if options.wal == WalMode::Group && fs.stat(&log_path(dir)).is_ok() {
            tracing::info!(dir, "the database has a parallel log: flushing its records to tables first");
            Database::open_with(fs, dir, WalMode::Waltz, options)?.close()?;
        }
        Database::open_with(fs, dir, options.wal, options)
    }

    fn open_with(fs: &Fs, dir: &str, wal: WalMode, options: &DatabaseOptions) -> Result<Database> {
        let settings = DbOptions { unlogged: wal != WalMode::Group, ..options.db.clone() };
        let db = Db::open(fs, dir, &settings).map_err(|e| Error::rocks("opening the database", &e))?;
        let db = Arc::new(db);
        let Some(log_options) = wal.parallel() else {
            return Ok(Database { db, wal, parallel: None });
        };
        const DOING: &str = "opening the database's parallel log";
        let log = Arc::new(FsLog::open(fs, dir, &log_options).map_err(|e| Error::log(DOING, e))?);
        let tables = Arc::new(RocksTables::new(Arc::clone(&db), Arc::clone(fs.driver())));
        let info = FamilyInfo { merges: settings.adds, one_stripe: false };
        let parallel_wal = ParallelWal::open(
            Arc::clone(&log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            [(Family::DEFAULT, info)],
            options.parallel_wal.unwrap_or_else(|| log_limits(fs)),
        );
        let parallel_wal = parallel_wal.inspect_err(|_| log.close_unused());
        let parallel_wal = Arc::new(parallel_wal.map_err(|e| Error::log(DOING, e))?);
        tables.report_flushes_to(&parallel_wal);
        Ok(Database { db, wal, parallel: Some(OpenParallelWal { log, parallel_wal, tables }) })
    }

    /// RocksDB, for reads, iterators and properties. Writes through this handle would not reach the parallel log.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// The database's log.
    pub fn wal(&self) -> WalMode {
        self.wal
    }

    /// Applies a batch, wholly or not at all. With `synced` the batch is durable on return. Without `synced` the batch
    /// survives a kill of the process if the database has a parallel log.
    ///
    /// # Errors
    /// After any error but [`Error::Unknown`], the batch never happened and never will have.
    pub fn write(&self, batch: &mut WriteBatch, synced: bool) -> Result<()> {
        const DOING: &str = "writing a batch";
        let Some(OpenParallelWal { parallel_wal, tables, .. }) = &self.parallel else {
            return self.db.write(batch, synced).map_err(|e| Error::rocks(DOING, &e));
        };
        let options = WriteOptions { synced, ..WriteOptions::UNSYNCED };
        let batch = batch.data();
        parallel_wal
            .write(batch, options, |mark| tables.apply(batch, mark))
            .map_err(|e| Error::write(DOING, e))
    }

    /// Like [`write`](Database::write), for a caller who makes sure that no two batches in flight share a key, and who
    /// writes through this method alone. With a parallel log, any number of batches may be in flight from one thread,
    /// and a write stall delays the batches without blocking the thread. RocksDB's own log blocks the thread that
    /// polls.
    ///
    /// # Errors
    /// As for `write`. If the future is dropped, the batch is written or not.
    pub async fn write_ordered(&self, batch: &mut WriteBatch, options: WriteOptions) -> Result<()> {
        let Some(OpenParallelWal { parallel_wal, tables, .. }) = &self.parallel else {
            return self.write(batch, options.synced);
        };
        let batch = batch.data();
        tables.ready().await;
        let written = parallel_wal.write_ordered(batch, options, |mark| tables.apply_soon(batch, mark)).await;
        written.map_err(|e| Error::write("writing a batch", e))
    }

    /// Whether the parallel log's drive would take another batch at once; always true without a parallel log.
    pub fn takes_more_batches(&self) -> bool {
        self.parallel.as_ref().is_none_or(|parallel| parallel.log.appends_at_once())
    }

    /// Makes every acknowledged write durable.
    pub fn sync(&self) -> Result<()> {
        const DOING: &str = "syncing the log";
        match &self.parallel {
            Some(parallel) => parallel.parallel_wal.sync().map_err(|e| Error::log(DOING, e)),
            None => self.db.sync_wal().map_err(|e| Error::rocks(DOING, &e)),
        }
    }

    /// Flushes all memtables to tables, and waits for the end of the flush.
    pub fn flush(&self) -> Result<()> {
        const DOING: &str = "flushing the memtables";
        match &self.parallel {
            Some(parallel) => parallel.tables.flush().map_err(|e| Error::log(DOING, e)),
            None => self.db.flush().map_err(|e| Error::rocks(DOING, &e)),
        }
    }

    /// Counters of the parallel log since the opening, if the database has one.
    pub fn log_stats(&self) -> Option<LogStats> {
        self.parallel.as_ref().map(|parallel| parallel.log.stats())
    }

    /// The batches of the parallel log that are not in tables, if the database has a parallel log.
    pub fn held_records(&self) -> Option<HeldRecords> {
        self.parallel.as_ref().map(|parallel| parallel.parallel_wal.held_records())
    }

    /// Flushes every memtable, removes the parallel log and closes the database. A second call does nothing.
    ///
    /// # Errors
    /// If the parallel log has failed or cannot be emptied, the log stays; the database is closed all the same, and the
    /// next opening replays the log. `Store` while iterators exist: nothing is closed then.
    pub fn close(&self) -> Result<()> {
        const DOING: &str = "closing the database";
        self.db.check_unused().map_err(|e| Error::rocks(DOING, &e))?;
        let emptied = match &self.parallel {
            Some(OpenParallelWal { parallel_wal, tables, .. }) => {
                let emptied = parallel_wal.close().map_err(|e| Error::log(DOING, e));
                tables.wait_for_flush();
                emptied
            }
            None => Ok(()),
        };
        self.db.close().map_err(|e| Error::rocks(DOING, &e))?;
        emptied
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, log: {}", self.db, self.wal)
    }
}
