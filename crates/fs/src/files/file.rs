//! A file in memory: shared by its readers, its writer and the name space.

use std::sync::Arc;

use parking_lot::RwLock;
use zoned::{Buf, BufMut};

use crate::error::Error;
use crate::files::extents::ExtentMap;
use crate::options::{FileKind, Lifetime};
use crate::wal::index::LogIndex;
use crate::wal::ordered::recovered::Cut;
use crate::wal::ordered::writer::LogWriter;
use crate::wal::parallel::ticket::Epoch;
use crate::wal::segment::Segment;

/// One inode of a file.
#[derive(Debug)]
pub(crate) struct File {
    pub ino: u64,
    pub kind: FileKind,
    /// Locked after the file system's state, never the other way round.
    pub content: RwLock<Content>,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Length as readers see it: buffered data included.
    pub size: u64,
    /// Length in the metadata.
    pub stored: u64,
    pub modified_ms: u64,
    pub lifetime: Lifetime,
    pub extents: ExtentMap,
    /// Written towards the device, not yet in `extents`: file offset and bytes, in order.
    pub in_flight: Vec<(u64, Buf)>,
    /// Not yet written: begins at file offset `tail_at`, a multiple of the block size.
    pub tail: BufMut,
    pub tail_at: u64,
    pub log: LogContent,
}

/// The log's part of a file.
#[derive(Debug, Default)]
pub(crate) struct LogContent {
    pub segments: Vec<Segment>,
    pub cuts: Vec<Cut>,
    /// Length and next sequence of a log that nobody writes.
    pub sealed: Option<(u64, u64)>,
    /// Where its entries lie, once somebody asked.
    pub index: Option<Arc<LogIndex>>,
    /// Why `index` ends before the log does, if it does.
    pub damage: Option<Error>,
    pub writer: Option<Arc<LogWriter>>,
    /// Of a parallel log: its epochs, the newest last, and the mark below which tickets are not needed.
    pub epochs: Vec<Epoch>,
    pub retired: u64,
}

impl File {
    pub(crate) fn new(ino: u64, kind: FileKind, lifetime: Lifetime, modified_ms: u64) -> Arc<File> {
        let content = Content { lifetime, modified_ms, ..Content::default() };
        Arc::new(File { ino, kind, content: RwLock::new(content) })
    }

    /// The length as readers see it.
    pub(crate) fn size(&self) -> u64 {
        let content = self.content.read();
        if self.kind == FileKind::ParallelLog {
            return content.size;
        }
        match (&content.log.writer, content.log.sealed) {
            (Some(writer), _) => writer.size().0,
            (None, Some((size, _))) if self.kind == FileKind::Log => size,
            _ => content.size,
        }
    }
}
