//! [`TicketLog`] on a parallel log of the zoned file system.

use fs::wal::LogStats;
use fs::{Fs, ParallelLog, ParallelOptions, Replay, Ticket};
use parking_lot::Mutex;
use units::block_on;

use super::error::{LogError, LogErrorKind};
use super::log::{LogFuture, TicketLog, VisitRecord};
use super::options::{ParallelWalOptions, WriteOptions};

/// Name of a database's parallel log, a file in the database's directory.
pub const LOG_FILE: &str = "FURROW-LOG";

/// The path of the parallel log of the database in `dir`.
pub(crate) fn log_path(dir: &str) -> String {
    format!("{}/{LOG_FILE}", dir.trim_end_matches('/'))
}

/// A parallel log may take one part in `LOG_SHARE` of the drive, and at least [`LOG_ZONES`] zones, before memtables are
/// flushed to empty it.
const LOG_SHARE: u64 = 16;
pub(crate) const LOG_ZONES: u64 = 4;

/// Limits of a parallel WAL for the size of this file system.
#[cfg_attr(
    not(feature = "broken-rules"),
    allow(clippy::needless_update, reason = "the feature adds a field")
)]
pub fn log_limits(fs: &Fs) -> ParallelWalOptions {
    let geometry = fs.device().geometry();
    let zones = geometry.zone_capacity.bytes(geometry.block_size).0.saturating_mul(LOG_ZONES);
    let usual = ParallelWalOptions::default();
    let log_limit = (fs.statfs().capacity.0 / LOG_SHARE).max(zones).min(usual.log_limit);
    ParallelWalOptions { log_limit, log_block: u64::from(geometry.block_size), ..usual }
}

/// A database's parallel log in the zoned file system.
#[derive(Debug)]
pub struct FsLog {
    fs: Fs,
    path: String,
    log: ParallelLog,
    /// The records that the log held when it was opened, until the replay takes them.
    held: Mutex<Option<Replay>>,
}

impl FsLog {
    /// Opens the parallel log of the database in the existing directory `dir`, or creates it.
    pub fn open(fs: &Fs, dir: &str, options: &ParallelOptions) -> Result<FsLog, LogError> {
        let path = log_path(dir);
        let opened = block_on(&**fs.driver(), fs.parallel_log(&path, options));
        let (log, replay) = opened.map_err(|e| to_log_error(&e))?;
        Ok(FsLog { fs: fs.clone(), path, log, held: Mutex::new(Some(replay)) })
    }

    /// The log's counters since it was opened.
    pub fn stats(&self) -> LogStats {
        self.log.stats()
    }

    /// Whether a record appended now would go to the drive at once, without waiting for appends in flight.
    pub(crate) fn appends_at_once(&self) -> bool {
        self.log.goes_at_once()
    }

    /// Closes the log and keeps its records, so that it can be opened again at once.
    pub(crate) fn close_unused(&self) {
        if let Err(error) = self.wait(self.log.close()) {
            tracing::warn!(%error, path = self.path, "closing a parallel log failed after its replay failed");
        }
    }

    fn wait<R>(&self, future: impl Future<Output = fs::Result<R>>) -> Result<R, LogError> {
        block_on(&**self.fs.driver(), future).map_err(|e| to_log_error(&e))
    }
}

fn to_log_error(error: &fs::Error) -> LogError {
    let kind = match error.kind() {
        fs::ErrorKind::NoSpace => LogErrorKind::NoSpace,
        fs::ErrorKind::Busy => LogErrorKind::Busy,
        fs::ErrorKind::Poisoned => LogErrorKind::Poisoned,
        fs::ErrorKind::Corrupt => LogErrorKind::Corrupt,
        _ => LogErrorKind::Failed,
    };
    LogError::new(kind, error.to_string())
}

impl TicketLog for FsLog {
    fn append(&self, record: &[u8], synced: bool) -> Result<Ticket, LogError> {
        self.wait(self.log.append(record, synced))
    }

    fn append_soon<'l>(&'l self, record: &'l [u8], options: WriteOptions) -> LogFuture<'l, Ticket> {
        let WriteOptions { synced, writers, .. } = options;
        Box::pin(
            async move { self.log.append_for(record, synced, writers).await.map_err(|e| to_log_error(&e)) },
        )
    }

    fn void(&self, ticket: Ticket) -> Result<(), LogError> {
        self.wait(self.log.void(ticket))
    }

    fn void_soon(&self, ticket: Ticket) -> LogFuture<'_, ()> {
        Box::pin(async move { self.log.void(ticket).await.map_err(|e| to_log_error(&e)) })
    }

    fn sync(&self) -> Result<(), LogError> {
        self.wait(self.log.sync())
    }

    fn sync_soon(&self) -> LogFuture<'_, ()> {
        Box::pin(async move { self.log.sync().await.map_err(|e| to_log_error(&e)) })
    }

    fn retire(&self, below: Ticket) -> Result<(), LogError> {
        self.log.retire(below).map_err(|e| to_log_error(&e))
    }

    fn next_ticket(&self) -> Ticket {
        self.log.next_ticket()
    }

    fn failure(&self) -> Option<LogError> {
        self.log.failed().map(|e| to_log_error(&e))
    }

    fn replay(&self, visit: &mut VisitRecord<'_>) -> Result<(), LogError> {
        let held = self.held.lock().take();
        let Some(mut held) = held else { return Ok(()) };
        while let Some((ticket, record)) = self.wait(held.next())? {
            visit(ticket, &record)?;
        }
        Ok(())
    }

    fn seal(&self) -> Result<(), LogError> {
        self.wait(async {
            self.log.close().await?;
            self.fs.sync_names().await
        })
    }

    fn remove(&self) -> Result<(), LogError> {
        self.wait(async {
            self.log.close().await?;
            self.fs.unlink(&self.path).await?;
            self.fs.sync_names().await
        })
    }
}
