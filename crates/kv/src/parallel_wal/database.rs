//! A database that the engine opened itself, with either log.

use std::fmt;
use std::sync::Arc;

use fs::{Fs, ParallelStats};
use rocks::{Db, DbOptions, WriteBatch};

use super::batch::Family;
use super::error::{LogError, LogErrorKind, WriteError};
use super::fs_log::{FsLog, log_limits, log_path};
use super::log::TicketLog;
use super::mode::WalMode;
use super::options::{FamilyInfo, How, ParallelWalOptions};
use super::protocol::ParallelWal;
use super::rocks_tables::RocksTables;
use super::tables::Tables;
use crate::{Error, LogStats, Result};

/// How a [`Database`] is opened.
#[derive(Clone, Debug, Default)]
pub struct DatabaseOptions {
    /// Which log. Default: `auto`.
    pub wal: WalMode,
    /// RocksDB's settings. `unlogged` follows from `wal`, whatever it says.
    pub db: DbOptions,
    /// The engine's, where there is a parallel log. None: its log may take a 16th of the drive, at least 4 zones and at most
    /// 1 GiB, before memtables are flushed for it.
    pub parallel_wal: Option<ParallelWalOptions>,
}

/// A RocksDB database in a directory of a mounted file system, whose log is RocksDB's own or a parallel one.
///
/// All methods may be called from any thread. Any mode opens what any other left, after a clean close and after a
/// crash: what a log holds is applied first, and is in tables before writes are let in.
pub struct Database {
    db: Arc<Db>,
    wal: WalMode,
    parallel: Option<Parallel>,
}

struct Parallel {
    log: Arc<FsLog>,
    parallel_wal: Arc<ParallelWal>,
    tables: Arc<RocksTables>,
}

impl Database {
    /// Opens the database in the directory `dir`, or creates it.
    ///
    /// # Errors
    /// What RocksDB or the log says. What the log holds stays there, and the next opening begins again.
    pub fn open(fs: &Fs, dir: &str, options: &DatabaseOptions) -> Result<Database> {
        if options.wal == WalMode::Group && fs.stat(&log_path(dir)).is_ok() {
            tracing::info!(dir, "the database has a parallel log: bringing it into tables first");
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
        let parallel_wal = parallel_wal.inspect_err(|_| log.let_go());
        let parallel_wal = Arc::new(parallel_wal.map_err(|e| Error::log(DOING, e))?);
        tables.tell(&parallel_wal);
        Ok(Database { db, wal, parallel: Some(Parallel { log, parallel_wal, tables }) })
    }

    /// RocksDB: for reads, iterators and properties. Written to, it would pass the parallel log by.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// Which log it has.
    pub fn wal(&self) -> WalMode {
        self.wal
    }

    /// Applies a batch, wholly or not at all. With `synced` it is durable on return; without, it survives a kill of
    /// the process where there is a parallel log.
    ///
    /// # Errors
    /// But for [`Error::Unknown`], the batch never happened and never will have.
    pub fn write(&self, batch: &mut WriteBatch, synced: bool) -> Result<()> {
        const DOING: &str = "writing a batch";
        let Some(Parallel { parallel_wal, tables, .. }) = &self.parallel else {
            return self.db.write(batch, synced).map_err(|e| Error::rocks(DOING, &e));
        };
        let how = if synced { How::SYNCED } else { How::UNSYNCED };
        let batch = batch.data();
        parallel_wal.write(batch, how, |mark| tables.apply(batch, mark)).map_err(|e| Error::write(DOING, e))
    }

    /// [`write`](Database::write) for an owner who sees to it that no two batches on their way share a key, and who writes
    /// through this alone: with a parallel log, any number of batches may be on their way from one thread, and a write stall
    /// holds up the batches, not the thread. RocksDB's own log blocks the thread that polls. The batch is what `writers` have.
    ///
    /// # Errors
    /// As for `write`. Dropped on its way, the batch is written or not.
    pub async fn write_ordered(&self, batch: &mut WriteBatch, synced: bool, writers: usize) -> Result<()> {
        let Some(Parallel { parallel_wal, tables, .. }) = &self.parallel else {
            return self.write(batch, synced);
        };
        let how = if synced { How::SYNCED } else { How::UNSYNCED };
        let batch = batch.data();
        tables.ready().await;
        let written =
            parallel_wal.write_ordered(batch, how, writers, |mark| tables.apply_soon(batch, mark)).await;
        written.map_err(|e| Error::write("writing a batch", e))
    }

    /// Whether a batch would go to the parallel log's drive at once, rather than wait for those on their way.
    pub fn goes_at_once(&self) -> bool {
        self.parallel.as_ref().is_none_or(|parallel| parallel.parallel_wal.goes_at_once())
    }

    /// Makes every acknowledged write durable.
    pub fn sync(&self) -> Result<()> {
        const DOING: &str = "syncing the log";
        match &self.parallel {
            Some(parallel) => parallel.parallel_wal.sync().map_err(|e| Error::log(DOING, e)),
            None => self.db.sync_wal().map_err(|e| Error::rocks(DOING, &e)),
        }
    }

    /// Writes the memtables to tables, and waits for it.
    pub fn flush(&self) -> Result<()> {
        const DOING: &str = "flushing the memtables";
        match &self.parallel {
            Some(parallel) => parallel.tables.flush().map_err(|e| Error::log(DOING, e)),
            None => self.db.flush().map_err(|e| Error::rocks(DOING, &e)),
        }
    }

    /// The parallel log, if there is one.
    pub fn log_stats(&self) -> Option<LogStats> {
        let Parallel { log, parallel_wal, .. } = self.parallel.as_ref()?;
        let (held, log) = (parallel_wal.held(), log.stats());
        Some(LogStats {
            held_records: held.records,
            held_bytes: held.bytes,
            records: log.records,
            appends: log.appends,
            drive_flushes: log.flushes,
            voids: log.voids,
            replacements: log.replaced,
            waits: log.waits,
            flushes_asked: held.flushes_asked,
        })
    }

    /// What the parallel log did so far, if there is one.
    pub fn parallel_stats(&self) -> Option<ParallelStats> {
        self.parallel.as_ref().map(|parallel| parallel.log.stats())
    }

    /// Brings everything into tables, removes the parallel log and closes the database. A second call does nothing.
    ///
    /// # Errors
    /// A parallel log that failed, or could not be emptied, stays; the database is closed all the same, and what the log
    /// holds is applied when it is opened again. `Store` while there are cursors: nothing is closed then.
    pub fn close(&self) -> Result<()> {
        const DOING: &str = "closing the database";
        self.db.check_unused().map_err(|e| Error::rocks(DOING, &e))?;
        let emptied = match &self.parallel {
            Some(Parallel { parallel_wal, tables, .. }) => {
                let emptied = parallel_wal.close().map_err(|e| Error::log(DOING, e));
                tables.settle();
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

impl Error {
    /// What RocksDB said.
    pub(crate) fn rocks(doing: &'static str, error: &rocks::Error) -> Error {
        match error.kind() {
            rocks::ErrorKind::NoSpace => Error::NoSpace(error.to_string()),
            rocks::ErrorKind::Closed => Error::Closed,
            _ => Error::Store { doing, detail: error.to_string() },
        }
    }

    /// What the parallel log said.
    pub(crate) fn log(doing: &'static str, error: LogError) -> Error {
        match error.kind {
            LogErrorKind::NoSpace => Error::NoSpace(error.text),
            LogErrorKind::Busy | LogErrorKind::Failed => Error::Refused { doing, detail: error.text },
            LogErrorKind::Poisoned | LogErrorKind::Corrupt => Error::Store { doing, detail: error.text },
        }
    }

    /// Why the engine did not write a batch.
    fn write(doing: &'static str, error: WriteError<rocks::Error>) -> Error {
        match error {
            WriteError::Log(error) => Error::log(doing, error),
            WriteError::Apply(error) => Error::rocks(doing, &error),
            WriteError::Unknown(..) => Error::Unknown { doing, detail: error.to_string() },
            WriteError::Batch(_) | WriteError::Invalid(_) => {
                Error::Store { doing, detail: error.to_string() }
            }
        }
    }
}
