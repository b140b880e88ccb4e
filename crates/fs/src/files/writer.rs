//! The writer of a file.

use std::sync::Arc;

use parking_lot::Mutex;
use units::Bytes;
use units::sync::Turnstile;
use zoned::Buf;

use crate::error::{Error, ErrorKind, Result};
use crate::files::extents::Extent;
use crate::files::pages::{FIRST_BUFFER_BYTES, Pages};
use crate::files::reader::Reader;
use crate::metadata::format::record::{MAX_EXTENTS, Record};
use crate::options::{CacheMode, Lifetime};
use crate::shared::Handle;
use crate::wal::ordered::file::LogFile;
use crate::zones::place::PlaceAmount;

/// A writer may add one block of padding per so many blocks written. An array logs parity for a `sync` that ends within a
/// stripe; at this bound, the padding that avoids such parity is about as long as the parity.
const MIN_DATA_BLOCKS_PER_PADDING_BLOCK: u64 = 512;

/// Writes a file at its end. A file has one writer at a time, which several threads may call.
///
/// A failed write or flush poisons the writer: every later call returns the first error until the file is opened again.
#[derive(Debug)]
pub struct Writer {
    inner: Inner,
}

#[derive(Debug, Clone)]
enum Inner {
    Data(Arc<DataWriter>),
    Log(Arc<LogFile>),
}

/// The writer of a data file. Writes whole blocks; a partial last block is written again later.
#[derive(Debug)]
pub(crate) struct DataWriter {
    handle: Arc<Handle>,
    /// Held during a write to a data file, so that the file has one write at a time.
    turn: Turnstile,
    status: Mutex<Status>,
}

#[derive(Debug)]
struct Status {
    closed: bool,
    poison: Option<Error>,
    lifetime: Lifetime,
    /// Number of blocks of file data written, and of padding blocks behind them.
    blocks: (u64, u64),
}

impl Writer {
    pub(crate) fn data(handle: Arc<Handle>) -> Writer {
        let lifetime = handle.file.content.read().lifetime;
        let status = Mutex::new(Status { closed: false, poison: None, lifetime, blocks: (0, 0) });
        Writer { inner: Inner::Data(Arc::new(DataWriter { handle, turn: Turnstile::new(), status })) }
    }

    pub(crate) fn log(log: Arc<LogFile>) -> Writer {
        Writer { inner: Inner::Log(log) }
    }

    /// Appends a copy of `data`, and writes each full buffer. Until a `sync`, a power cut may lose the bytes.
    pub async fn append(&self, data: &[u8]) -> Result<()> {
        match &self.inner {
            Inner::Data(writer) => writer.append(data).await,
            Inner::Log(log) => log.append(data).await,
        }
    }

    /// Submits a log's buffered data to the device. Until a `sync`, a power cut may lose the bytes.
    pub async fn flush(&self) -> Result<()> {
        match &self.inner {
            // A data file's full buffer was already written by `append`, and a partial block would have to be
            // written twice.
            Inner::Data(writer) => writer.check(),
            Inner::Log(log) => log.flush().await,
        }
    }

    /// Makes all bytes appended before the call durable, first the data, then the metadata. Concurrent callers share one flush.
    pub async fn sync(&self) -> Result<()> {
        match &self.inner {
            Inner::Data(writer) => writer.sync().await,
            Inner::Log(log) => log.sync().await,
        }
    }

    /// The file's length in bytes so far, buffered data included.
    pub fn size(&self) -> Bytes {
        match &self.inner {
            Inner::Data(writer) => Bytes(writer.handle.file.size()),
            Inner::Log(log) => log.size(),
        }
    }

    /// Cuts the file to `size`, or extends it with zeros. For a log, any size but the current one is `Invalid`.
    pub async fn truncate(&self, size: Bytes) -> Result<()> {
        match &self.inner {
            Inner::Data(writer) => writer.truncate(size.0).await,
            Inner::Log(log) if log.size() == size => Ok(()),
            Inner::Log(_) => {
                Err(Error::new(ErrorKind::Invalid, "truncating a log")
                    .because("logs only grow; write a new one"))
            }
        }
    }

    /// Changes the expected lifetime of bytes appended to the file from now on.
    pub fn set_lifetime(&self, lifetime: Lifetime) {
        if let Inner::Data(writer) = &self.inner {
            writer.status.lock().lifetime = lifetime;
        }
    }

    /// Writes the file's buffered bytes and ends writing. A second call does nothing.
    pub async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

impl Inner {
    async fn close(&self) -> Result<()> {
        match self {
            Inner::Data(writer) => writer.close().await,
            Inner::Log(log) => log.close().await,
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Inner::Data(writer) => writer.status.lock().closed,
            Inner::Log(log) => log.is_settled(),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.inner.is_closed() {
            return;
        }
        // After this step the file can be opened for writing again: the buffered bytes are written.
        let inner = self.inner.clone();
        let driver = match &inner {
            Inner::Data(writer) => Arc::clone(&writer.handle.shared.driver),
            Inner::Log(log) => Arc::clone(log.driver()),
        };
        driver.drive(Box::pin(async move {
            if let Err(error) = inner.close().await {
                tracing::warn!(%error, "closing a file whose writer was dropped failed");
            }
        }));
    }
}

impl DataWriter {
    fn check(&self) -> Result<()> {
        let status = self.status.lock();
        if let Some(cause) = &status.poison {
            return Err(Error::new(ErrorKind::Poisoned, "writing a file").caused_by(cause.clone()));
        }
        if status.closed {
            return Err(Error::new(ErrorKind::Closed, "writing a file").because("its writer is closed"));
        }
        self.handle.shared.check_open()
    }

    fn poison(&self, error: Error) -> Error {
        self.status.lock().poison.get_or_insert(error).clone()
    }

    /// Bytes of a data file's full buffer: as many of the device's optimal writes as fit, at least one.
    fn full_buffer_bytes(&self) -> usize {
        let shared = &self.handle.shared;
        let optimal = shared.device.geometry().optimal_write.0.max(1) * shared.block();
        let optimal = usize::try_from(optimal).expect("what a device takes at a time fits into memory");
        (shared.options.write_buffer / optimal).max(1) * optimal
    }

    async fn append(&self, data: &[u8]) -> Result<()> {
        let _turn = self.turn.acquire().await;
        self.check()?;
        self.handle.shared.metadata.check()?;
        let full = self.full_buffer_bytes();
        let mut rest = data;
        while !rest.is_empty() {
            let out = {
                let mut content = self.handle.file.content.write();
                let (taken, out) = content.pages.append(rest, full);
                content.size += taken as u64;
                rest = rest.get(taken..).unwrap_or_default();
                out
            };
            let Some((at, data)) = out else { break };
            let len = data.len() as u64;
            self.write_data(at, &data, len, PlaceAmount::Whole).await.map_err(|e| self.poison(e))?;
        }
        Ok(())
    }

    /// Writes `bytes` bytes at file offset `from`, or as much of them as `amount` says, and commits their
    /// extents: the file ends behind the bytes written. `data` is the bytes, padded to whole blocks. Bytes
    /// that are not written return to the file's tail.
    async fn write_data(&self, from: u64, data: &Buf, bytes: u64, amount: PlaceAmount) -> Result<()> {
        let shared = &self.handle.shared;
        let lifetime = self.status.lock().lifetime;
        let placed = shared.place(lifetime, data, amount, false).await?;
        {
            let (written, padded) = &mut self.status.lock().blocks;
            *written += placed.runs.iter().map(|(_, _, blocks)| blocks).sum::<u64>();
            *padded += placed.padding;
        }
        let block = shared.block();
        let mut extents = Vec::with_capacity(placed.runs.len());
        let mut at = from;
        for &(zone, start, blocks) in &placed.runs {
            let bytes = (blocks * block).min(from + bytes - at);
            extents.push(Extent { offset: at, bytes, start, zone });
            at += bytes;
        }
        let modified_ms = shared.driver.unix_millis();
        {
            let mut state = shared.state.lock();
            shared.metadata.check_room(&state, extents.len() as u64 * 72)?;
            for part in extents.chunks(MAX_EXTENTS) {
                let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
                let (ino, from, size) = (self.handle.file.ino, first.offset, last.end());
                state.commit(Record::Extents { ino, from, size, modified_ms, extents: part.to_vec() })?;
            }
            // Pages and extents change under one lock: a reader finds each byte in a page or in an extent.
            self.handle.file.content.write().pages.written(from, at, self.full_buffer_bytes());
        }
        if let Some(cache) =
            shared.cache.as_ref().filter(|_| shared.options.cache_mode == CacheMode::Buffered)
        {
            let stored = usize::try_from(at - from).ok().and_then(|stored| data.get(..stored));
            cache.store(self.handle.file.ino, from, stored.unwrap_or_default());
        }
        drop(placed);
        shared.metadata.bound_pending().await
    }

    /// Writes the file's tail, its last block padded. A partial last block stays in the tail as well. The
    /// caller holds the file's write turn.
    async fn write_tail(&self) -> Result<()> {
        let block = usize::try_from(self.handle.shared.block()).expect("a block fits into memory");
        let (at, padded, len) = {
            let content = self.handle.file.content.read();
            match content.pages.padded_tail(block) {
                Some(out) if out.0 + out.2 as u64 > content.stored => out,
                _ => return Ok(()),
            }
        };
        let padding = {
            let (written, padding) = self.status.lock().blocks;
            ((written + (padded.len() / block) as u64) / MIN_DATA_BLOCKS_PER_PADDING_BLOCK)
                .saturating_sub(padding)
        };
        self.write_data(at, &padded, len as u64, PlaceAmount::All { padding }).await?;
        self.handle.file.content.write().pages.tail_written(len, block, self.full_buffer_bytes());
        Ok(())
    }

    async fn sync(&self) -> Result<()> {
        let upto = {
            let _turn = self.turn.acquire().await;
            self.check()?;
            self.write_tail().await.map_err(|e| self.poison(e))?;
            self.handle.shared.state.lock().journal.applied
        };
        // The commit runs without the file's write turn: appends continue meanwhile, and concurrent syncs
        // share the commit.
        self.handle.shared.metadata.commit_upto(upto).await.map_err(|e| self.poison(e))
    }

    async fn truncate(&self, size: u64) -> Result<()> {
        let _turn = self.turn.acquire().await;
        self.check()?;
        self.write_tail().await.map_err(|e| self.poison(e))?;
        let shared = &self.handle.shared;
        let (ino, modified_ms) = (self.handle.file.ino, shared.driver.unix_millis());
        let cut = {
            let mut state = shared.state.lock();
            self.handle.file.content.write().pages = Pages::default();
            let (stored, cut) = {
                let content = self.handle.file.content.read();
                (content.stored, content.extents.ranges_from(size))
            };
            let from = stored.min(size);
            state.commit(Record::Extents { ino, from, size, modified_ms, extents: Vec::new() })?;
            cut
        };
        if let Some(cache) = shared.cache.as_ref().filter(|_| !shared.options.rules().keeps_truncated_pages())
        {
            cache.remove(ino, &cut);
        }
        self.load_tail().await.map_err(|e| self.poison(e))
    }

    /// Reads a file's partial last block into the tail: the next write repeats the block.
    pub(crate) async fn load_tail(&self) -> Result<()> {
        let block = self.handle.shared.block();
        let size = self.handle.file.content.read().size;
        let partial = usize::try_from(size % block).expect("a block fits into memory");
        let mut bytes = vec![0; partial];
        if partial > 0 {
            Reader::new(Arc::clone(&self.handle)).read_at(Bytes(size - size % block), &mut bytes).await?;
        }
        let room = FIRST_BUFFER_BYTES.min(self.full_buffer_bytes());
        self.handle.file.content.write().pages.begin_tail(size - size % block, &bytes, room);
        Ok(())
    }

    async fn close(&self) -> Result<()> {
        let _turn = self.turn.acquire().await;
        if self.status.lock().closed {
            return Ok(());
        }
        let poisoned = self.status.lock().poison.is_some();
        let result =
            if poisoned { self.check() } else { self.write_tail().await.map_err(|e| self.poison(e)) };
        self.status.lock().closed = true;
        let mut state = self.handle.shared.state.lock();
        let mut content = self.handle.file.content.write();
        content.pages = Pages::default();
        content.size = content.stored;
        drop(content);
        if let Some(node) = state.file_node(self.handle.file.ino) {
            node.writing = false;
        }
        result
    }
}

impl Writer {
    /// Prepares a writer to append to an existing data file.
    pub(crate) async fn resume(&self) -> Result<()> {
        match &self.inner {
            Inner::Data(writer) => writer.load_tail().await,
            Inner::Log(_) => Ok(()),
        }
    }
}
