//! A database whose log is RocksDB's own or a parallel log.

use std::fmt;
use std::sync::Arc;

use fs::Fs;
use fs::wal::LogStats;
use rocks::{Db, DbOptions, WriteBatch};

use super::batch::Family;
use super::fs_log::{log_limits, log_path};
use super::mode::WalMode;
use super::open::OpenParallelWal;
use super::options::{HeldRecords, ParallelWalOptions, WriteOptions};
use super::plan::FamilyInfo;
use super::tables::Tables;
use super::write_pace::Memtables;
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
        let family = (Family::DEFAULT, FamilyInfo { merges: settings.adds, one_stripe: false });
        let limits = options.parallel_wal.unwrap_or_else(|| log_limits(fs));
        let memtable = settings.write_buffer as u64;
        let memtables = Some(Memtables { memtable, limit: settings.unslowed_memtables() });
        let opened = OpenParallelWal::open(fs, dir, &db, [family], &log_options, limits, memtables);
        let parallel = opened.map_err(|e| Error::log("opening the database's parallel log", e))?;
        Ok(Database { db, wal, parallel: Some(parallel) })
    }

    /// RocksDB, for reads, iterators and properties. Writes through this handle would not reach the parallel log.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// The parallel WAL; `None` if the database has RocksDB's own log.
    pub(crate) fn parallel(&self) -> Option<&OpenParallelWal> {
        self.parallel.as_ref()
    }

    /// A numeric property of RocksDB; 0 if RocksDB does not know it.
    pub(crate) fn numeric_property(&self, property: &str) -> u64 {
        self.db.property(property).and_then(|n| n.parse().ok()).unwrap_or(0)
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
        tables.wait_for_room(batch.len());
        parallel_wal
            .write(batch, options, |mark| tables.apply(batch, mark))
            .map_err(|e| Error::write(DOING, e))
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
            Some(parallel) => parallel.close().map_err(|e| Error::log(DOING, e)),
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
