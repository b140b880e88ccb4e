//! Opening a parallel log: recovery decides which entries count, and a new epoch begins.

use std::sync::Arc;

use crate::device::{self, Purpose};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::Record;
use crate::options::FileKind;
use crate::shared::Handle;
use crate::wal::parallel::log::ParallelLog;
use crate::wal::parallel::maintenance;
use crate::wal::parallel::options::ParallelOptions;
use crate::wal::parallel::parts::{Opening, Parts};
use crate::wal::parallel::recover::{RecoveredEntries, recover};
use crate::wal::parallel::replay::Replay;
use crate::wal::parallel::ticket::Epoch;

/// Opens a parallel log for writing.
///
/// The record of the new epoch, with the ticket at which recovery of the old epoch stopped, is durable before
/// the first append.
pub(crate) async fn open(handle: Arc<Handle>, options: &ParallelOptions) -> Result<(ParallelLog, Replay)> {
    let shared = Arc::clone(&handle.shared);
    let ino = handle.file.ino;
    if handle.file.content.read().log.segments.iter().any(|s| s.start < s.end) {
        // The device is flushed, because recovery's decision is recorded: a later recovery must find the same
        // entries.
        device::flush(shared.device.purpose(Purpose::Log), "flushing before a parallel log is recovered")
            .await?;
    }
    let recovered = recovered(&handle).await?;
    let epoch = handle.file.content.read().log.epochs.last().map_or(1, |epoch| epoch.epoch + 1);
    let (first, settled) = (recovered.next, recovered.stop);
    let (record, retired) = {
        let mut state = shared.state.lock();
        state.commit(Record::Epoch { ino, epoch: Epoch { epoch, first, settled } })?;
        (state.journal.applied, handle.file.content.read().log.retired)
    };
    shared.metadata.commit_upto(record).await?;
    let opening = Opening { epoch, first, retired, ends: recovered.tops.clone() };
    let parts = Parts::new(Arc::clone(&handle), &opening, options);
    let maintenance = maintenance::run(Arc::downgrade(&parts.maintenance), parts.work.clone());
    shared.driver.spawn("parallel-log", Box::pin(maintenance));
    Ok((ParallelLog::new(parts), Replay::new(&handle, recovered, retired)))
}

/// Reads a parallel log's records, without changing anything on the device.
pub(crate) async fn read(handle: Arc<Handle>) -> Result<Replay> {
    let recovered = recovered(&handle).await?;
    let retired = handle.file.content.read().log.retired;
    Ok(Replay::new(&handle, recovered, retired))
}

/// Recovers a parallel log; fails if the log is damaged.
async fn recovered(handle: &Arc<Handle>) -> Result<RecoveredEntries> {
    let shared = &handle.shared;
    let (epochs, retired, segments) = {
        let log = &handle.file.content.read().log;
        (log.epochs.clone(), log.retired, log.segments.clone())
    };
    debug_assert!(handle.file.kind == FileKind::ParallelLog, "checked by Fs");
    let (uuid, ino, rules) = (shared.superblock.uuid, handle.file.ino, shared.options.rules());
    let recovered =
        recover(shared.device.purpose(Purpose::Log), uuid, ino, &epochs, retired, &segments, rules).await?;
    if recovered.dropped > 0 {
        tracing::debug!(
            log = ino,
            dropped = recovered.dropped,
            "recovered a parallel log with entries that do not count"
        );
    }
    match recovered.missing {
        None => Ok(recovered),
        Some(missing) => Err(damaged(ino, missing)),
    }
}

/// The error of a parallel log that lost a durable record.
pub(crate) fn damaged(ino: u64, missing: u64) -> Error {
    Error::new(ErrorKind::Corrupt, "recovering a parallel log").because(format!(
        "log {ino} lost the record of ticket {missing}, which was durable: the medium lost it; restore the database from a \
         backup, or remove the log and lose what is only in it"
    ))
}
