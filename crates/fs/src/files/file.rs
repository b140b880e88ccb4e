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
    /// Locked after the file system's state, never the other way round.
    pub content: RwLock<Content>,
}

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// Length that readers see: pages in memory included.
    pub size: u64,
    /// Length in the metadata.
    pub stored: u64,
    pub modified_ms: u64,
    pub lifetime: Lifetime,
    pub extents: ExtentMap,
    /// Appended bytes that are not in `extents` yet.
    pub pages: Pages,
    pub log: LogContent,
}

/// The content of a log.
#[derive(Debug, Default)]
pub(crate) struct LogContent {
    pub segments: Vec<Segment>,
    pub cuts: Vec<Cut>,
    /// Length and next sequence of a closed log.
    pub sealed: Option<(u64, u64)>,
    /// Where the entries lie, once a reader or a writer has asked.
    pub index: Option<Arc<LogIndex>>,
    /// The error of a log whose `index` ends before the log does.
    pub damage: Option<Error>,
    pub writer: Option<Arc<LogWriter>>,
    /// Of a parallel log: the epochs, the newest last.
    pub epochs: Vec<Epoch>,
    /// Of a parallel log: tickets below this one are not needed.
    pub retired: u64,
}

impl File {
    pub(crate) fn new(ino: u64, kind: FileKind, lifetime: Lifetime, modified_ms: u64) -> Arc<File> {
        let content = Content { lifetime, modified_ms, ..Content::default() };
        Arc::new(File { ino, kind, content: RwLock::new(content) })
    }

    /// The length that readers see.
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
