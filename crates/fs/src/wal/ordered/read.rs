//! Reading log files: recovery on the first read, and the error for a damaged log.

use std::sync::Arc;

use units::Bytes;

use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::shared::{Handle, Shared};
use crate::wal::index::{Check, LogIndex};
use crate::wal::ordered::recover::recover_with;
use crate::wal::ordered::recovered::Recovered;
use crate::wal::ordered::stream::{LogStream, UnrecoveredLog, stream};

impl Shared {
    /// The index of a log's entries. The first call recovers the log from the device.
    pub(crate) async fn log_index(&self, file: &Arc<File>) -> Result<Arc<LogIndex>> {
        let (cuts, segments) = {
            let content = file.content.read();
            if let Some(index) = &content.log.index {
                return Ok(Arc::clone(index));
            }
            (content.log.cuts.clone(), content.log.segments.clone())
        };
        let (device, rules) = (self.device.purpose(Purpose::Log), self.options.rules());
        let recovered = recover_with(device, self.superblock.uuid, file.ino, &cuts, &segments, rules).await?;
        Ok(store_recovery(file, recovered))
    }

    /// A stream of a log from its beginning, with read-ahead; `None` while the log has a writer, which serves reads itself. A
    /// log that is not recovered yet is recovered in the same pass.
    pub(crate) fn stream_log(&self, handle: &Arc<Handle>) -> Option<LogStream> {
        let (index, unrecovered) = {
            let log = &handle.file.content.read().log;
            if log.writer.is_some() {
                return None;
            }
            let unrecovered = UnrecoveredLog {
                uuid: self.superblock.uuid,
                log: handle.file.ino,
                cuts: log.cuts.clone(),
                segments: log.segments.clone(),
                rules: self.options.rules(),
            };
            (log.index.clone(), unrecovered)
        };
        let check = Check { uuid: unrecovered.uuid, log: unrecovered.log };
        let (stream, mut filler) = stream(self.device.purpose(Purpose::Read), check, &self.background);
        let handle = Arc::clone(handle);
        let fill = async move {
            let ended = match index {
                Some(index) => filler.follow(&index).await,
                None => filler.recover(&unrecovered).await.map(|recovered| {
                    let unchanged = {
                        let log = &handle.file.content.read().log;
                        log.cuts == unrecovered.cuts && log.segments == unrecovered.segments
                    };
                    if unchanged {
                        store_recovery(&handle.file, recovered);
                    }
                }),
            };
            // The handle keeps the zones from being reset. The reader may remove the file once the stream has ended.
            drop(handle);
            filler.end(ended);
        };
        self.driver.spawn("log-reader", Box::pin(fill));
        Some(stream)
    }

    /// Reads a log, from its writer or from the device. A read that reaches into lost bytes fails as a whole: RocksDB takes
    /// a short read for the end of the log.
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
        index.read_at(self.device.purpose(Purpose::Read), check, offset, into).await
    }
}

/// Keeps the result of a log's recovery, unless another recovery stored one before.
fn store_recovery(file: &File, recovered: Recovered) -> Arc<LogIndex> {
    let mut content = file.content.write();
    if let Some(index) = &content.log.index {
        return Arc::clone(index);
    }
    content.log.damage = damaged_log_error(file.ino, content.log.sealed.map(|(size, _)| size), &recovered);
    let index = Arc::new(recovered.index);
    if content.log.sealed.is_none() && content.log.writer.is_none() {
        let size =
            recovered.size.saturating_add(least_lost_bytes(recovered.missing, recovered.dropped_bytes));
        content.log.sealed = Some((size, recovered.next_sequence));
        content.size = size;
    }
    content.log.index = Some(Arc::clone(&index));
    index
}

/// The least number of bytes that a log without a recorded size has lost: the dropped ones, and one of the
/// missing entry.
pub(crate) fn least_lost_bytes(missing: Option<u64>, dropped_bytes: u64) -> u64 {
    if missing.is_some() { dropped_bytes + 1 } else { 0 }
}

/// The error of a log that has lost durable bytes; `None` where the log is whole. `sealed`: the log's recorded size.
pub(crate) fn damaged_log_error(ino: u64, sealed: Option<u64>, found: &Recovered) -> Option<Error> {
    let readable = found.size;
    let size = match sealed {
        Some(size) if readable < size => format!("{size}"),
        Some(_) => return None,
        None => {
            format!("at least {}", readable + least_lost_bytes(Some(found.missing?), found.dropped_bytes))
        }
    };
    let (next, end) = (found.missing.unwrap_or(found.next_sequence), found.index.end());
    let after = end.map_or_else(String::new, |lba| format!(", after the one at {lba:?}"));
    Some(Error::new(ErrorKind::Corrupt, "reading a log").because(format!(
        "log {ino} lost entry {next}{after}: its first {readable} bytes of {size} are readable; the medium lost what \
         was durable: copy those bytes or restore the file from a backup, then remove it"
    )))
}
