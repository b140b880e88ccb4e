//! [`TicketLog`] on a parallel log of the zoned file system.

use std::sync::Arc;

use fs::{Fs, ParallelLog, ParallelOptions, ParallelStats, Replay};
use parking_lot::Mutex;
use units::block_on;

use super::error::{LogError, LogErrorKind};
use super::log::{LogFuture, Ticket, TicketLog, VisitRecord};
use super::options::ParallelWalOptions;

/// The file beside a database's own that is its parallel log.
pub const LOG_FILE: &str = "FURROW-LOG";

/// Where the parallel log of the database in `dir` is.
pub(crate) fn log_path(dir: &str) -> String {
    format!("{}/{LOG_FILE}", dir.trim_end_matches('/'))
}

/// A log may take this share of the drive, as far as that is some zones, before memtables are flushed for it.
const LOG_SHARE: u64 = 16;
pub(crate) const LOG_ZONES: u64 = 4;

/// What a log on this file system may take.
pub fn log_limits(fs: &Fs) -> ParallelWalOptions {
    let geometry = fs.device().geometry();
    let zones = geometry.zone_capacity.bytes(geometry.block_size).0.saturating_mul(LOG_ZONES);
    let usual = ParallelWalOptions::default();
    let log_limit = (fs.statfs().capacity.0 / LOG_SHARE).max(zones).min(usual.log_limit);
    ParallelWalOptions { log_limit, log_block: u64::from(geometry.block_size), ..usual }
}

/// A database's parallel log.
#[derive(Debug)]
pub struct FsLog {
    fs: Fs,
    path: String,
    log: Arc<ParallelLog>,
    /// What it held when it was opened; taken by the replay.
    held: Mutex<Option<Replay>>,
}

impl FsLog {
    /// Opens the log of the database in `dir`, or makes it. The directory is there.
    pub fn open(fs: &Fs, dir: &str, options: &ParallelOptions) -> Result<FsLog, LogError> {
        let path = log_path(dir);
        let opened = block_on(&**fs.driver(), fs.parallel_log(&path, options));
        let (log, replay) = opened.map_err(|e| failed(&e))?;
        Ok(FsLog { fs: fs.clone(), path, log: Arc::new(log), held: Mutex::new(Some(replay)) })
    }

    /// What was done so far.
    pub fn stats(&self) -> ParallelStats {
        self.log.stats()
    }

    /// Closes the log, with what it holds, so that it can be opened again at once.
    pub(crate) fn let_go(&self) {
        if let Err(error) = self.wait(self.log.close()) {
            tracing::warn!(%error, path = self.path, "closing a parallel log that could not be used");
        }
    }

    fn wait<R>(&self, future: impl Future<Output = fs::Result<R>>) -> Result<R, LogError> {
        block_on(&**self.fs.driver(), future).map_err(|e| failed(&e))
    }
}

fn failed(error: &fs::Error) -> LogError {
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
        self.wait(self.log.append(record, synced)).map(|ticket| Ticket(ticket.0))
    }

    fn append_soon<'l>(&'l self, record: &'l [u8], synced: bool, writers: usize) -> LogFuture<'l, Ticket> {
        Box::pin(async move {
            let ticket = self.log.append_for(record, synced, writers).await.map_err(|e| failed(&e))?;
            Ok(Ticket(ticket.0))
        })
    }

    fn goes_at_once(&self) -> bool {
        self.log.goes_at_once()
    }

    fn void(&self, ticket: Ticket) -> Result<(), LogError> {
        self.wait(self.log.void(fs::Ticket(ticket.0)))
    }

    fn void_soon(&self, ticket: Ticket) -> LogFuture<'_, ()> {
        Box::pin(async move { self.log.void(fs::Ticket(ticket.0)).await.map_err(|e| failed(&e)) })
    }

    fn sync(&self) -> Result<(), LogError> {
        self.wait(self.log.sync())
    }

    fn sync_soon(&self) -> LogFuture<'_, ()> {
        Box::pin(async move { self.log.sync().await.map_err(|e| failed(&e)) })
    }

    fn retire(&self, below: Ticket) -> Result<(), LogError> {
        self.log.retire(fs::Ticket(below.0)).map_err(|e| failed(&e))
    }

    fn next_ticket(&self) -> Ticket {
        Ticket(self.log.next_ticket().0)
    }

    fn failure(&self) -> Option<LogError> {
        self.log.failed().map(|e| failed(&e))
    }

    fn replay(&self, visit: &mut VisitRecord<'_>) -> Result<(), LogError> {
        let held = self.held.lock().take();
        let Some(mut held) = held else { return Ok(()) };
        while let Some((ticket, record)) = self.wait(held.next())? {
            visit(Ticket(ticket.0), &record)?;
        }
        Ok(())
    }

    fn seal(&self) -> Result<(), LogError> {
        self.wait(async {
            self.log.close().await?;
            self.fs.sync().await
        })
    }

    fn remove(&self) -> Result<(), LogError> {
        self.wait(async {
            self.log.close().await?;
            self.fs.unlink(&self.path).await?;
            self.fs.sync().await
        })
    }
}
