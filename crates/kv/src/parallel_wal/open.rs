//! The parallel WAL of an open database, with its log and its tables.

use std::sync::Arc;

use fs::{Fs, ParallelOptions};
use rocks::Db;

use super::batch::Family;
use super::error::LogError;
use super::fs_log::FsLog;
use super::log::TicketLog;
use super::options::ParallelWalOptions;
use super::plan::FamilyInfo;
use super::protocol::ParallelWal;
use super::rocks_tables::RocksTables;
use super::tables::Tables;
use super::write_pace::Memtables;

/// The parallel WAL of an open database, with its log and its tables.
pub(crate) struct OpenParallelWal {
    pub log: Arc<FsLog>,
    pub parallel_wal: Arc<ParallelWal>,
    pub tables: Arc<RocksTables>,
}

impl OpenParallelWal {
    /// Opens the parallel log in the directory `dir` of the database `db`, which was opened
    /// [`unlogged`](rocks::DbOptions::unlogged), and replays the log's records into the tables. `memtables`: how
    /// large memtables may become, if that is known.
    pub fn open(
        fs: &Fs,
        dir: &str,
        db: &Arc<Db>,
        families: impl IntoIterator<Item = (Family, FamilyInfo)>,
        log_options: &ParallelOptions,
        options: ParallelWalOptions,
        memtables: Option<Memtables>,
    ) -> Result<OpenParallelWal, LogError> {
        let log = Arc::new(FsLog::open(fs, dir, log_options)?);
        let tables = Arc::new(RocksTables::new(Arc::clone(db), Arc::clone(fs.driver()), memtables));
        let parallel_wal = ParallelWal::open(
            Arc::clone(&log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            families,
            options,
        );
        let parallel_wal = Arc::new(parallel_wal.inspect_err(|_| log.close_unused())?);
        tables.report_flushes_to(&parallel_wal);
        Ok(OpenParallelWal { log, parallel_wal, tables })
    }

    /// Flushes every memtable and removes the log, then waits for the end of the background flush.
    pub fn close(&self) -> Result<(), LogError> {
        let emptied = self.parallel_wal.close();
        self.tables.wait_for_flush();
        emptied
    }
}
