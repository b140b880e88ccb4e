//! A file in memory, shared by its readers, its writer and the name space.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::Error;
use crate::files::extents::ExtentMap;
use crate::files::pages::Pages;
use crate::files::writes::FileWrites;
use crate::options::{FileKind, Lifetime};
use crate::wal::index::LogIndex;
use crate::wal::ordered::recovered::Cut;
use crate::wal::ordered::writer::LogWriter;
use crate::wal::parallel::ticket::Epoch;
use crate::wal::segment::Segment;

/// The inode of a file that is no directory.
#[derive(Debug)]
pub(crate) struct File {
    pub ino: u64,
    pub kind: FileKind,
    /// The lock of a file's content is taken after the lock of the file system's state, never before.
    pub content: RwLock<Content>,
    /// The writing of a data file.
    pub writes: FileWrites,
}

/// The content of a data file or of a log.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The file's length for readers: bytes in memory included.
    pub size: u64,
    /// The file's length in the metadata.
    pub stored: u64,
    pub modified_ms: u64,
    pub lifetime: Lifetime,
    pub extents: ExtentMap,
    /// Number of truncations since the mount. Bytes that were read by extents of before a truncation are not the file's content any more.
    pub truncations: u64,
    /// The file's appended bytes that are not in `extents` yet.
    pub pages: Pages,
    /// Number of blocks reserved for the bytes from `stored` up to `promised`. Changes under the lock of the file system's state.
    pub reserved: u64,
    /// The file offset up to which blocks are reserved.
    pub promised: u64,
    /// The file offset at which the append under way will end; 0 without one.
    pub append_upto: u64,
    pub log: LogContent,
}

/// The content of a log.
#[derive(Debug, Default)]
pub(crate) struct LogContent {
    pub segments: Vec<Segment>,
    pub cuts: Vec<Cut>,
    /// Length in bytes and next sequence of a closed log.
    pub sealed: Option<(u64, u64)>,
    /// Where the log's entries lie, once a reader or a writer has asked.
    pub index: Option<Arc<LogIndex>>,
    /// The error of a log whose `index` ends before the log does, because the medium lost entries.
    pub damage: Option<Error>,
    pub writer: Option<Arc<LogWriter>>,
    /// The epochs of a parallel log, the newest last.
    pub epochs: Vec<Epoch>,
    /// Every ticket of a parallel log below this one is retired.
    pub retired: u64,
}

impl Content {
    /// Number of the file's bytes that are in memory only.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.size.saturating_sub(self.stored)
    }

    /// Number of blocks to reserve for the bytes from the stored ones up to file offset `end`. One is for a write-back that ends within a block while bytes
    /// are appended behind: the next one writes that block again.
    pub(crate) fn blocks_to_reserve(&self, end: u64, block: u64) -> u64 {
        if end <= self.stored { 0 } else { (end - self.stored / block * block).div_ceil(block) + 1 }
    }
}

impl File {
    pub(crate) fn new(ino: u64, kind: FileKind, lifetime: Lifetime, modified_ms: u64) -> Arc<File> {
        let content = Content { lifetime, modified_ms, ..Content::default() };
        let writes = FileWrites::new(lifetime);
        Arc::new(File { ino, kind, content: RwLock::new(content), writes })
    }

    /// Drops the pages that a failed write has lost: nobody has the file open any more.
    pub(crate) fn drop_lost_pages(&self) {
        if self.kind == FileKind::Data && self.writes.has_failed() {
            let mut content = self.content.write();
            content.pages = Pages::default();
            (content.size, content.promised) = (content.stored, 0);
        }
    }

    /// The length of a file in bytes as readers see it.
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
