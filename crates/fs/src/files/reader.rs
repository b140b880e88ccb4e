//! Readers of a file: at any offset, and from the beginning to the end.

use std::sync::Arc;

use units::Bytes;

use crate::cache::PageCache;
use crate::error::{Error, ErrorKind, Result};
use crate::files::read;
use crate::files::streams::{AccessPattern, Streams};
use crate::options::FileKind;
use crate::shared::Handle;
use crate::wal::ordered::stream::{LogStream, ReadStats};

/// The part of the page cache that one call of [`Reader::read_ahead`] may fill.
const READ_AHEAD_DIVISOR: u64 = 4;

/// Reads a file at any offset. A read sees all bytes appended so far, and works after the file's removal.
///
/// Cheap to clone. Any number of reads may be in flight.
#[derive(Clone, Debug)]
pub struct Reader {
    handle: Arc<Handle>,
    streams: Arc<Streams>,
    /// Whether pages that this reader reads from the device are kept in the page cache.
    admits: bool,
}

impl Reader {
    pub(crate) fn new(handle: Arc<Handle>) -> Reader {
        Reader { handle, streams: Arc::default(), admits: true }
    }

    /// Makes this a reader that leaves the page cache as it is, as direct I/O does: pages in memory are read there, others from the device
    /// without keeping them.
    #[must_use]
    pub fn without_admission(self) -> Reader {
        Reader { admits: false, ..self }
    }

    /// Drops the file's pages in the page cache that have no bytes but of the `length` bytes at `offset`. Bytes that are not written to the device
    /// yet stay in memory. Does nothing without a page cache.
    pub fn drop_cached(&self, offset: Bytes, length: Bytes) {
        let file = &self.handle.file;
        if let Some(cache) = &self.handle.shared.cache {
            let (size, page) = (file.size(), cache.page_bytes());
            let end = offset.0.saturating_add(length.0);
            // The last page of a file has no bytes behind its end.
            let end = if end >= size { size } else { end - end % page };
            let from = offset.0.checked_next_multiple_of(page).unwrap_or(u64::MAX);
            if from < end {
                cache.remove(file.ino, std::slice::from_ref(&(from..end)));
            }
        }
    }

    /// Begins to read the `length` bytes at `offset` into the page cache, at most a quarter of the cache. Returns without waiting for the device.
    /// False where nothing is read ahead: without a page cache, of a log, of a reader that leaves the cache as it is, and after an unmount.
    pub fn read_ahead(&self, offset: Bytes, length: Bytes) -> bool {
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        let Some(cache) = shared.cache.as_ref().filter(|_| self.admits && file.kind == FileKind::Data) else {
            return false;
        };
        let most = cache.stats().capacity.0 / READ_AHEAD_DIVISOR;
        let end = offset.0.saturating_add(length.0.min(most)).min(file.size());
        let (handle, class) = (Arc::clone(&self.handle), self.streams.class(offset.0));
        let task = shared.background.begin();
        // The task is counted first: an unmount that begins now waits for it.
        if shared.check_open().is_err() {
            return false;
        }
        shared.driver.drive(Box::pin(async move {
            if let Err(error) = read::read_ahead(&handle.shared, &handle.file, class, offset.0..end).await {
                tracing::debug!(%error, ino = handle.file.ino, "a read ahead of the reader failed");
            }
            drop(handle);
            drop(task);
        }));
        true
    }

    /// Announces the order in which this reader and its clones will read the file: how far the page cache reads ahead of them, and which pages
    /// it need not keep.
    pub fn expect(&self, pattern: AccessPattern) {
        self.streams.expect(pattern);
    }

    /// Reads the file at `offset`. Returns the number of bytes read: fewer than asked only at the end of the
    /// file.
    ///
    /// # Errors
    ///
    /// The device's; `Corrupt` where a log lost durable bytes; `Invalid` for a parallel log; `Closed` after
    /// an unmount.
    pub async fn read_at(&self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        self.handle.shared.check_open()?;
        if self.handle.file.kind == FileKind::ParallelLog {
            return Err(Error::new(ErrorKind::Invalid, "reading a file")
                .because("it is a parallel log: `read_parallel_log` gives its records"));
        }
        if self.handle.file.kind == FileKind::Log {
            return self.handle.shared.read_log(&self.handle.file, offset, into).await;
        }
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        let streams = self.admits.then_some(&*self.streams);
        let read = read::read(shared, file, streams, offset.0, into).await?;
        let page = shared.cache.as_ref().map_or_else(|| shared.block(), PageCache::page_bytes);
        if let Some(passed) = streams.and_then(|streams| streams.passed(offset.0, read, page))
            && let Some(cache) = &shared.cache
        {
            cache.remove(file.ino, &[passed]);
        }
        Ok(read)
    }

    /// The length so far.
    pub fn size(&self) -> Bytes {
        Bytes(self.handle.file.size())
    }
}

/// Reads a file from its beginning to its end, for one task at a time. A log is read ahead of the caller, and a log that was
/// not recovered yet is recovered by the same reads.
#[derive(Debug)]
pub struct SequentialReader {
    reader: Reader,
    stream: Option<LogStream>,
    begun: bool,
    stats: ReadStats,
}

impl SequentialReader {
    /// A sequential reader of the file of `reader`.
    pub fn new(reader: Reader) -> SequentialReader {
        SequentialReader { reader, stream: None, begun: false, stats: ReadStats::default() }
    }

    /// As [`Reader::read_at`]; faster where each read begins where the last one ended.
    pub async fn read_at(&mut self, offset: Bytes, into: &mut [u8]) -> Result<usize> {
        let handle = &self.reader.handle;
        handle.shared.check_open()?;
        if !std::mem::replace(&mut self.begun, true)
            && offset == Bytes::ZERO
            && handle.file.kind == FileKind::Log
        {
            self.stream = handle.shared.stream_log(handle);
        }
        let mut done = 0;
        if let Some(mut stream) = self.stream.take_if(|stream| stream.position() == offset.0) {
            done = stream.read(into).await?;
            self.stats = stream.stats();
            if done == into.len() {
                self.stream = Some(stream);
                return Ok(done);
            }
        }
        // The log's stream has ended. A random read also finds bytes appended since the stream began, and
        // reports lost entries.
        let rest = into.get_mut(done..).unwrap_or_default();
        Ok(done + self.reader.read_at(Bytes(offset.0.saturating_add(done as u64)), rest).await?)
    }

    /// Time this reader spent reading the log ahead, by phase.
    pub fn stats(&self) -> ReadStats {
        self.stream.as_ref().map_or(self.stats, LogStream::stats)
    }

    /// The length so far.
    pub fn size(&self) -> Bytes {
        self.reader.size()
    }
}
