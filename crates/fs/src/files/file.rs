//! A file in memory, shared by its readers, its writer and the name space.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::error::Error;
use crate::files::extents::ExtentMap;
use crate::files::pages::Pages;
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
    /// The file's appended bytes that are not in `extents` yet.
    pub pages: Pages,
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

impl File {
    pub(crate) fn new(ino: u64, kind: FileKind, lifetime: Lifetime, modified_ms: u64) -> Arc<File> {
        let content = Content { lifetime, modified_ms, ..Content::default() };
        Arc::new(File { ino, kind, content: RwLock::new(content) })
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
