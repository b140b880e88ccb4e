//! Opening a parallel log: what it holds is found and decided, and a new epoch begins.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::format::record::Record;
use crate::options::FileKind;
use crate::shared::Handle;
use crate::wal::parallel::inner::Inner;
use crate::wal::parallel::keeper;
use crate::wal::parallel::log::ParallelLog;
use crate::wal::parallel::options::ParallelOptions;
use crate::wal::parallel::recover::{Verdict, recover};
use crate::wal::parallel::replay::Replay;
use crate::wal::parallel::ticket::Epoch;
use crate::wal::parallel::zone::{Top, Tops};

/// Opens the log for writing.
///
/// The new epoch, with what was decided of the one before, is durable before anything is appended.
pub(crate) async fn open(handle: Arc<Handle>, options: &ParallelOptions) -> Result<(ParallelLog, Replay)> {
    let shared = Arc::clone(&handle.shared);
    let ino = handle.file.ino;
    if handle.file.content.read().log.segments.iter().any(|s| s.start < s.end) {
        // What is decided now holds from now on.
        shared.flush_device("flushing before a parallel log is recovered").await?;
    }
    let verdict = found(&handle).await?;
    let epoch = handle.file.content.read().log.epochs.last().map_or(1, |epoch| epoch.epoch + 1);
    let (first, settled) = (verdict.next, verdict.stop);
    let (record, retired) = {
        let mut state = shared.state.lock();
        state.commit(Record::Epoch { ino, epoch: Epoch { epoch, first, settled } })?;
        (state.journal.applied, handle.file.content.read().log.retired)
    };
    shared.commit_upto(record).await?;
    let tops = verdict.tops.iter().map(|top| Top { zone: None, top: Some(*top) }).collect();
    let tops = Tops(parking_lot::Mutex::new(tops));
    let inner = Inner::new(Arc::clone(&handle), epoch, first, retired, options, tops);
    let keeper = keeper::run(Arc::downgrade(&inner), inner.work.clone());
    shared.driver.spawn("parallel-log", Box::pin(keeper));
    Ok((ParallelLog::new(inner), Replay::new(&handle, verdict, retired)))
}

/// Reads what the log holds, without changing anything.
pub(crate) async fn read(handle: Arc<Handle>) -> Result<Replay> {
    let verdict = found(&handle).await?;
    let retired = handle.file.content.read().log.retired;
    Ok(Replay::new(&handle, verdict, retired))
}

/// What recovery decides; fails where the log is damaged.
async fn found(handle: &Arc<Handle>) -> Result<Verdict> {
    let shared = &handle.shared;
    let (epochs, retired, segments) = {
        let log = &handle.file.content.read().log;
        (log.epochs.clone(), log.retired, log.segments.clone())
    };
    debug_assert!(handle.file.kind == FileKind::ParallelLog, "checked by who opened it");
    let (uuid, ino, rules) = (shared.superblock.uuid, handle.file.ino, shared.options.rules());
    let verdict = recover(&shared.dev, uuid, ino, &epochs, retired, &segments, rules).await?;
    if verdict.dropped > 0 {
        tracing::debug!(
            log = ino,
            dropped = verdict.dropped,
            "recovered a parallel log with entries that do not count"
        );
    }
    match verdict.missing {
        None => Ok(verdict),
        Some(missing) => Err(damaged(ino, missing)),
    }
}

/// What is said of a log that lost what was durable.
pub(crate) fn damaged(ino: u64, missing: u64) -> Error {
    Error::new(ErrorKind::Corrupt, "recovering a parallel log").because(format!(
        "log {ino} lost the record of ticket {missing}, which was durable: the medium lost it; restore the database from a \
         backup, or remove the log and lose what is only in it"
    ))
}
