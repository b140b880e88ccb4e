//! Reading log files: what recovery found, and what is wrong with it.

use std::sync::Arc;

use units::Bytes;

use crate::device::IoClass;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::shared::{Handle, Shared};
use crate::wal::index::{Check, LogIndex};
use crate::wal::ordered::recover::recover_with;
use crate::wal::ordered::recovered::{Cut, Recovered};
use crate::wal::ordered::stream::{LogStream, Unread, stream};
use crate::wal::segment::Segment;

impl Shared {
    /// Where a log's entries lie; recovers them once where nobody asked before.
    pub(crate) async fn log_index(&self, file: &Arc<File>) -> Result<Arc<LogIndex>> {
        let (cuts, segments) = {
            let content = file.content.read();
            if let Some(index) = &content.log.index {
                return Ok(Arc::clone(index));
            }
            (content.log.cuts.clone(), content.log.segments.clone())
        };
        let recovered = recover_log(self, file.ino, &cuts, &segments).await?;
        Ok(store(file, recovered))
    }

    /// A reading of a log from its beginning, ahead of who asks; `None` where it is being written: its writer reads.
    /// A log that was not recovered yet is recovered by the way.
    pub(crate) fn stream_log(&self, handle: &Arc<Handle>) -> Option<LogStream> {
        let (index, unread) = {
            let log = &handle.file.content.read().log;
            if log.writer.is_some() {
                return None;
            }
            let unread = Unread {
                uuid: self.superblock.uuid,
                log: handle.file.ino,
                cuts: log.cuts.clone(),
                segments: log.segments.clone(),
                rules: self.options.rules(),
            };
            (log.index.clone(), unread)
        };
        let check = Check { uuid: unread.uuid, log: unread.log };
        let (stream, mut filler) = stream(self.device.class(IoClass::Read), check);
        let handle = Arc::clone(handle);
        let fill = async move {
            let ended = match index {
                Some(index) => filler.follow(&index).await,
                None => filler.recover(&unread).await.map(|recovered| {
                    let unchanged = {
                        let log = &handle.file.content.read().log;
                        log.cuts == unread.cuts && log.segments == unread.segments
                    };
                    if unchanged {
                        store(&handle.file, recovered);
                    }
                }),
            };
            // The zones were held for the reading: whoever hears of its end may remove the file.
            drop(handle);
            filler.end(ended);
        };
        self.driver.spawn("log-reader", Box::pin(fill));
        Some(stream)
    }

    /// Reads a log: what its writer has, or what recovery found. A read that goes on into what is lost fails as a
    /// whole: to RocksDB a short one is the end of the log.
    pub(crate) async fn read_log(&self, file: &Arc<File>, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        let writer = file.content.read().log.writer.clone();
        if let Some(writer) = writer {
            return writer.read_at(offset, into).await;
        }
        let index = self.log_index(file).await?;
        let damage = file.content.read().log.damage.clone();
        if let Some(damage) = damage {
            let end = offset.0.saturating_add(into.len() as u64).min(file.size());
            if offset.0 < end && end > index.size().0 {
                return Err(damage);
            }
        }
        let check = Check { uuid: self.superblock.uuid, log: file.ino };
        index.read_at(self.device.class(IoClass::Read), check, offset, into).await
    }
}

/// Keeps what a recovery found, unless another one was faster.
fn store(file: &File, recovered: Recovered) -> Arc<LogIndex> {
    let mut content = file.content.write();
    if let Some(index) = &content.log.index {
        return Arc::clone(index);
    }
    content.log.damage = damage(file.ino, content.log.sealed.map(|(size, _)| size), &recovered);
    let index = Arc::new(recovered.index);
    if content.log.sealed.is_none() && content.log.writer.is_none() {
        let size = recovered.size.saturating_add(lost(recovered.missing, recovered.behind));
        content.log.sealed = Some((size, recovered.next_sequence));
        content.size = size;
    }
    content.log.index = Some(Arc::clone(&index));
    index
}

/// Bytes of a log that are known to be lost, where its size is not recorded: those of the missing entry are at least
/// one.
pub(crate) fn lost(missing: Option<u64>, behind: u64) -> u64 {
    if missing.is_some() { behind + 1 } else { 0 }
}

/// What is wrong with a log that should have `sealed` bytes, if that is recorded.
pub(crate) fn damage(ino: u64, sealed: Option<u64>, found: &Recovered) -> Option<Error> {
    let readable = found.size;
    let size = match sealed {
        Some(size) if readable < size => format!("{size}"),
        Some(_) => return None,
        None => format!("at least {}", readable + lost(Some(found.missing?), found.behind)),
    };
    let (next, end) = (found.missing.unwrap_or(found.next_sequence), found.index.end());
    let behind = end.map_or_else(String::new, |lba| format!(", behind the one at {lba:?}"));
    Some(Error::new(ErrorKind::Corrupt, "reading a log").because(format!(
        "log {ino} lost entry {next}{behind}: its first {readable} bytes of {size} are readable; the medium lost what \
         was durable: copy those bytes or restore the file from a backup, then remove it"
    )))
}

async fn recover_log(shared: &Shared, ino: u64, cuts: &[Cut], segments: &[Segment]) -> Result<Recovered> {
    let rules = shared.options.rules();
    recover_with(shared.device.class(IoClass::Log), shared.superblock.uuid, ino, cuts, segments, rules).await
}
