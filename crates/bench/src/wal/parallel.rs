//! A parallel log under a load. Old records are retired, as a database does once tables hold them.

use std::sync::atomic::{AtomicU64, Ordering};

use fs::{Batching, Fs, ParallelLog, ParallelOptions, Result, Ticket};
use units::Bytes;

const LOG_PATH: &str = "/parallel";

/// A parallel log, and how many of its newest tickets are kept.
#[derive(Debug)]
pub(super) struct Parallel {
    log: ParallelLog,
    keep: u64,
    retired: AtomicU64,
}

impl Parallel {
    /// Makes the log, with `record` durable in it. Records more than `roll` bytes behind the newest one are retired.
    pub(super) async fn open(fs: &Fs, join: bool, roll: Bytes, record: &[u8]) -> Result<Parallel> {
        let batching = if join { Batching::Auto } else { Batching::Each };
        let options = ParallelOptions { batching, ..ParallelOptions::default() };
        let (log, _) = fs.parallel_log(LOG_PATH, &options).await?;
        log.append(record, true).await?;
        // A record's entry has a header, and may fill its last block with padding.
        let block = u64::from(fs.device().geometry().block_size);
        let takes = (record.len() as u64 + 128).next_multiple_of(block);
        Ok(Parallel { log, keep: (roll.0 / takes).max(1), retired: AtomicU64::new(0) })
    }

    /// Appends `record` to the parallel log; makes it durable if `sync` is set.
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
