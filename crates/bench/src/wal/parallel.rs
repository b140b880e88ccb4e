//! A parallel log under the load: one log, whose old records are given up as a database does when it has written tables.

use std::sync::atomic::{AtomicU64, Ordering};

use fs::{Fs, ParallelLog, ParallelOptions, Result, Ticket};
use units::Bytes;

const PATH: &str = "/parallel";

/// The log, and how many tickets of it are kept.
#[derive(Debug)]
pub(super) struct Parallel {
    log: ParallelLog,
    keep: u64,
    retired: AtomicU64,
}

impl Parallel {
    /// Opens the log; it holds `record`, safely. What is more than `roll` bytes of such records back is given up.
    pub(super) async fn open(fs: &Fs, join: bool, roll: Bytes, record: &[u8]) -> Result<Parallel> {
        let options = ParallelOptions { join, ..ParallelOptions::default() };
        let (log, _) = fs.parallel_log(PATH, &options).await?;
        log.append(record, true).await?;
        // Each takes a header, and may take whole blocks.
        let block = u64::from(fs.device().geometry().block_size);
        let takes = (record.len() as u64 + 128).next_multiple_of(block);
        Ok(Parallel { log, keep: (roll.0 / takes).max(1), retired: AtomicU64::new(0) })
    }

    /// Appends, and makes it safe with `sync`.
    pub(super) async fn append(&self, record: &[u8], sync: bool) -> Result<()> {
        let ticket = self.log.append(record, sync).await?;
        let below = ticket.0.saturating_sub(self.keep);
        let before = self.retired.load(Ordering::Relaxed);
        if below > before + self.keep / 4 && self.retired.fetch_max(below, Ordering::Relaxed) < below {
            self.log.retire(Ticket(below))?;
        }
        Ok(())
    }

    pub(super) async fn sync(&self) -> Result<()> {
        self.log.sync().await
    }

    pub(super) async fn close(&self) -> Result<()> {
        self.log.close().await
    }
}
