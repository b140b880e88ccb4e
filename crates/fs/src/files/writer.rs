//! The writer of a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use units::Bytes;
use units::sync::Turnstile;
use zoned::{BufMut, IoClass};

use crate::device::Purpose;
use crate::error::{Error, ErrorKind, Result};
use crate::files::file::File;
use crate::files::pages::{FIRST_BUFFER_BYTES, Pages};
use crate::files::reader::Reader;
use crate::files::writes::WriteOut;
use crate::metadata::format::record::Record;
use crate::options::Lifetime;
use crate::shared::Handle;
use crate::wal::ordered::file::LogFile;

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
    /// Held during an append, a truncation and the end of writing, so that each is done as a whole.
    turn: Turnstile,
    is_closed: AtomicBool,
}

impl Writer {
    pub(crate) fn data(handle: Arc<Handle>) -> Writer {
        let writer = DataWriter { handle, turn: Turnstile::new(), is_closed: AtomicBool::new(false) };
        Writer { inner: Inner::Data(Arc::new(writer)) }
    }

    pub(crate) fn log(log: Arc<LogFile>) -> Writer {
        Writer { inner: Inner::Log(log) }
    }

    /// Appends a copy of `data`. Until a `sync`, a power cut may lose the bytes.
    ///
    /// With a page cache, the bytes of a data file stay in memory until a task of the mount writes them; until a `sync` the end of the process loses
    /// those too. The call waits while a quarter of the cache is unwritten. `NoSpace` appends nothing.
    pub async fn append(&self, data: &[u8]) -> Result<()> {
        match &self.inner {
            Inner::Data(writer) => writer.append(data).await,
            Inner::Log(log) => log.append(data).await,
        }
    }

    /// Submits a log's buffered data to the device. Until a `sync`, a power cut may lose the bytes.
    pub async fn flush(&self) -> Result<()> {
        match &self.inner {
            // A data file's full buffer was already written by `append`, or will be, and a partial block would have to be written twice.
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
            writer.handle.file.writes.status.lock().lifetime = lifetime;
        }
    }

    /// Sets the class of the file's writes for the drive's scheduler: [`IoClass::Flush`] or a lower one for a writer that nobody waits for, or [`IoClass::Read`]. Without
    /// a class, writes in the background are `Flush`, and those that the writer waits for are `Read`. A log's class is its own.
    ///
    /// `Read` also says that the program's own writes wait for its background work, as RocksDB's do in a write stall (also in one for full memtables, for which no compaction is needed): until a writer of the mount is given another class, all compactions of the mount go as reads.
    pub fn set_class(&self, class: IoClass) {
        if let Inner::Data(writer) = &self.inner {
            writer.handle.shared.device.set_writers_await_compactions(class <= IoClass::Read);
            writer.handle.file.writes.status.lock().class = Some(class.max(IoClass::Read));
        }
    }

    /// Ends writing. A second call does nothing. The file's buffered bytes are written, or with a page cache will be.
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
            Inner::Data(writer) => writer.is_closed.load(Ordering::Acquire),
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

/// An append, with or without its blocks reserved. Dropping it ends the append, also where it failed.
struct AppendUnderWay<'a>(&'a File);

impl Drop for AppendUnderWay<'_> {
    fn drop(&mut self) {
        self.0.content.write().append_upto = 0;
    }
}

impl DataWriter {
    fn check(&self) -> Result<()> {
        self.handle.file.writes.check()?;
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "writing a file").because("its writer is closed"));
        }
        self.handle.shared.check_open()
    }

    async fn append(&self, data: &[u8]) -> Result<()> {
        let _turn = self.turn.acquire().await;
        self.check()?;
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        shared.metadata.check()?;
        if shared.dirty.is_none() {
            return self.append_reserved(data).await;
        }
        let _under_way = AppendUnderWay(file);
        shared.reserve(file, data.len() as u64).await?;
        self.append_reserved(data).await
    }

    /// Appends `data`, for which blocks are reserved where the mount writes back.
    async fn append_reserved(&self, data: &[u8]) -> Result<()> {
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        let full = shared.write_buffer_bytes();
        let mut rest = data;
        while !rest.is_empty() {
            let (now, _) = rest.split_at(rest.len().min(full));
            if let Some(dirty) = &shared.dirty {
                let check = || self.check().and_then(|()| shared.metadata.check());
                dirty.admit(file, now.len() as u64, shared.driver.now(), check).await?;
            }
            let is_full = {
                let mut content = file.content.write();
                let taken = content.pages.append(now, full, |bytes| match &shared.dirty {
                    Some(dirty) => dirty.buffer(bytes, full),
                    None => BufMut::with_capacity(bytes),
                });
                content.size += taken as u64;
                rest = rest.get(taken..).unwrap_or_default();
                shared.count_dirty(file, &content);
                content.pages.has_full_buffer(full)
            };
            if is_full && shared.dirty.is_none() {
                shared.write_out(file, WriteOut::Buffers).await?;
            }
        }
        Ok(())
    }

    /// Writes all of the file's bytes. The caller of the writer hears of a failure.
    async fn write_out(&self, what: WriteOut) -> Result<()> {
        let file = &self.handle.file;
        let written = self.handle.shared.write_out(file, what).await;
        written.inspect_err(|_| file.writes.note_told())
    }

    async fn sync(&self) -> Result<()> {
        self.check()?;
        let shared = &self.handle.shared;
        let forgets_tail = shared.options.rules().forgets_tails();
        self.write_out(if forgets_tail { WriteOut::Buffers } else { WriteOut::Everything }).await?;
        // Appends continue during the commit, and concurrent syncs share it.
        let upto = shared.state.lock().journal.applied;
        let committed = shared.metadata.commit_upto(upto).await;
        committed.map_err(|error| self.handle.file.writes.fail(error, true))
    }

    async fn truncate(&self, size: u64) -> Result<()> {
        let _turn = self.turn.acquire().await;
        self.check()?;
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        let class = file.writes.class_of_waiter();
        let _write_turn = file.writes.acquire_as(class, &**shared.device.purpose(Purpose::Write)).await;
        let written = shared.write_out_in_turn(class, file, WriteOut::Everything).await;
        written.inspect_err(|_| file.writes.note_told())?;
        let modified_ms = shared.driver.unix_millis();
        let keeps_pages = shared.options.rules().keeps_truncated_pages();
        let cut = {
            let mut state = shared.state.lock();
            let (stored, cut) = {
                let mut content = file.content.write();
                content.pages = Pages::default();
                shared.give_up_reserved(&mut state, &mut content);
                (content.stored, content.extents.ranges_from(size))
            };
            let from = stored.min(size);
            state.commit(Record::Extents { ino: file.ino, from, size, modified_ms, extents: Vec::new() })?;
            // Counted behind the cut: a reader that looked up the extents before has the older number.
            file.content.write().truncations += u64::from(!keeps_pages);
            cut
        };
        if let Some(cache) = shared.cache.as_ref().filter(|_| !keeps_pages) {
            cache.remove(file.ino, &cut);
        }
        self.load_tail().await.map_err(|error| file.writes.fail(error, true))
    }

    /// Reads a file's partial last block into the tail: the next write repeats the block. The caller holds the turn of the file's writes.
    async fn load_tail(&self) -> Result<()> {
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        let (size, are_loaded) = {
            let content = file.content.read();
            (content.size, !content.pages.is_empty() && content.pages.end() == content.size)
        };
        if are_loaded {
            return Ok(());
        }
        let block = shared.block();
        let partial = usize::try_from(size % block).expect("a block fits into memory");
        let mut bytes = vec![0; partial];
        if partial > 0 {
            Reader::new(Arc::clone(&self.handle)).read_at(Bytes(size - size % block), &mut bytes).await?;
        }
        let room = FIRST_BUFFER_BYTES.min(shared.write_buffer_bytes());
        file.content.write().pages.begin_tail(size - size % block, &bytes, room);
        Ok(())
    }

    /// Begins to append to the file, where an earlier writer ended or where it lost bytes.
    async fn resume(&self) -> Result<()> {
        let file = &self.handle.file;
        let _write_turn = file.writes.turn.acquire().await;
        if let Some(error) = file.writes.take_untold() {
            return Err(error);
        }
        file.drop_lost_pages();
        file.writes.begin(file.content.read().lifetime);
        self.load_tail().await
    }

    async fn close(&self) -> Result<()> {
        let _turn = self.turn.acquire().await;
        if self.is_closed.load(Ordering::Acquire) {
            return Ok(());
        }
        let (shared, file) = (&self.handle.shared, &self.handle.file);
        let mut result = file.writes.check();
        if result.is_ok() && shared.dirty.is_none() {
            result = self.write_out(WriteOut::Everything).await;
        }
        // With write-back the end of writing waits for no write.
        let _write_turn = match &shared.dirty {
            None => Some(file.writes.turn.acquire().await),
            Some(_) => None,
        };
        self.is_closed.store(true, Ordering::Release);
        let mut state = shared.state.lock();
        let mut content = file.content.write();
        if shared.dirty.is_none() {
            content.pages = Pages::default();
            content.size = content.stored;
        } else if file.writes.has_failed() {
            shared.give_up_reserved(&mut state, &mut content);
        } else {
            if content.dirty_bytes() == 0 {
                content.pages = Pages::default();
            }
            shared.settle_reserved(&mut state, &mut content, 0);
        }
        drop(content);
        if let Some(node) = state.file_node(file.ino) {
            node.writing = false;
        }
        drop(state);
        shared.release_own_zone(file);
        result
    }
}

impl Writer {
    /// Prepares a writer to append to an existing data file.
    pub(crate) async fn resume(&self) -> Result<()> {
        match &self.inner {
            Inner::Data(writer) => {
                // A writer that does not begin has nothing to end: another one may begin before it is dropped.
                writer.resume().await.inspect_err(|_| writer.is_closed.store(true, Ordering::Release))
            }
            Inner::Log(_) => Ok(()),
        }
    }
}
