//! A RocksDB database on a mounted file system.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use abi::{FurrowFs, LogReplay, Replays};
use fs::Fs;
use parking_lot::{RwLock, RwLockReadGuard};

use crate::batch::WriteBatch;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::{self, RocksDb, RocksOptions, RocksSlice};
use crate::flush_events::FlushHub;
use crate::options::DbOptions;
use crate::pinned::Pinned;

/// An open RocksDB database. All methods may be called from any thread.
///
/// Dropping a `Db` closes the database, like [`close`](Db::close), and discards the outcome.
#[derive(Debug)]
pub struct Db {
    pub(crate) inner: Arc<Inner>,
}

/// The C++ database; null after it is closed.
pub(crate) struct Handle(pub(crate) *mut RocksDb);

// SAFETY: rocksdb::DB may be used from any thread, by many threads at once.
unsafe impl Send for Handle {}
// SAFETY: rocksdb::DB may be used by many threads at once.
unsafe impl Sync for Handle {}

pub(crate) struct Inner {
    pub(crate) path: String,
    /// Read-locked by every call, so that a close waits for calls and no call meets a closed database.
    handle: RwLock<Handle>,
    /// The number of open cursors. Cursors use the database without the lock, so the database stays open while there
    /// are any.
    pub(crate) cursors: AtomicUsize,
    replays: Replays,
    /// The receiver of the database's flush events. RocksDB's threads call it until the database is closed.
    pub(crate) hub: Arc<FlushHub>,
}

/// Bytes that a compaction reads at a time where no page cache reads ahead. The file system reads as much ahead of an announced pass over a table; RocksDB's own
/// read-ahead also covers tables that are partly in its block cache, and compactions that begin in the middle of one.
const COMPACTION_READ: u64 = 256 << 10;

/// The database options for C++, on a device whose zones hold `zone` bytes. `has_page_cache`: something below reads ahead.
fn rocks_options(options: &DbOptions, zone: u64, has_page_cache: bool, hub: &Arc<FlushHub>) -> RocksOptions {
    RocksOptions {
        write_buffer: options.write_buffer as u64,
        block_cache: options.block_cache as u64,
        table_size: options.table_size_for(zone),
        compaction_read: if has_page_cache { 0 } else { COMPACTION_READ },
        write_buffers: options.write_buffers,
        background_jobs: options.background_jobs,
        compression: u8::from(options.compression),
        expiry: u8::from(options.expiry),
        create: u8::from(options.create),
        keep_recovered: u8::from(options.keep_recovered),
        unlogged: u8::from(options.unlogged),
        adds: u8::from(options.adds),
        families: options.families,
        prepopulate: u8::from(options.prepopulate),
        events: hub.callbacks(),
    }
}

impl Db {
    /// Opens the database in the directory `path` of the file system `fs`, or creates it. Replays RocksDB's log.
    pub fn open(fs: &Fs, path: &str, options: &DbOptions) -> Result<Db> {
        options.validate()?;
        let geometry = fs.device().geometry();
        let hub = Arc::new(FlushHub::default());
        let zone = geometry.zone_capacity.bytes(geometry.block_size).0;
        let has_page_cache = fs.cache_stats().capacity.0 > 0;
        let given = rocks_options(options, zone, has_page_cache, &hub);
        let mut db = ptr::null_mut();
        let replays = Replays::default();
        // SAFETY: C++ owns the handle from here on, on failure too; path and options live during the call.
        let status = unsafe {
            ffi::rocks_open(
                FurrowFs::borrowed(fs.clone(), replays.clone()),
                RocksSlice::of(path.as_bytes()),
                &raw const given,
                &raw mut db,
            )
        };
        status.check(|| format!("opening the database in {path}"))?;
        Ok(Db::wrap(db, path, replays, hub))
    }

    /// Opens or creates a database in the host's own directory `path`, with the same settings, as a baseline for
    /// measurements.
    pub fn open_on_host(path: &str, options: &DbOptions) -> Result<Db> {
        options.validate()?;
        let hub = Arc::new(FlushHub::default());
        let given = rocks_options(options, u64::MAX, true, &hub);
        let mut db = ptr::null_mut();
        // SAFETY: path and options live during the call.
        let status =
            unsafe { ffi::rocks_open_host(RocksSlice::of(path.as_bytes()), &raw const given, &raw mut db) };
        status.check(|| format!("opening the database in {path} of the host"))?;
        let (replays, mut nanos, mut bytes) = (Replays::default(), 0, 0);
        // SAFETY: the database was opened by rocks_open_host, and nothing else uses it yet.
        unsafe { ffi::rocks_host_replay(db, &raw mut nanos, &raw mut bytes) };
        if bytes > 0 {
            let stats = fs::wal::ReadStats { bytes: fs::Bytes(bytes), ..Default::default() };
            replays.add(LogReplay { took: Duration::from_nanos(nanos), stats });
        }
        Ok(Db::wrap(db, path, replays, hub))
    }

    fn wrap(db: *mut RocksDb, path: &str, replays: Replays, hub: Arc<FlushHub>) -> Db {
        let (handle, cursors) = (RwLock::new(Handle(db)), AtomicUsize::new(0));
        Db { inner: Arc::new(Inner { path: path.to_owned(), handle, cursors, replays, hub }) }
    }

    /// Wraps a database that the caller opened, for writing without RocksDB's log. The caller must drop this object
    /// before it closes the database.
    pub(crate) fn adopted(db: *mut RocksDb, path: &str, hub: Arc<FlushHub>) -> Db {
        Db::wrap(db, path, Replays::default(), hub)
    }

    /// The logs that opening the database replayed, in order. For a database on the host's own file system they are
    /// summed up in one element.
    pub fn replayed(&self) -> Vec<LogReplay> {
        self.inner.replays.all()
    }

    /// Applies a batch atomically. With `sync`, the batch and every earlier write are durable on return.
    pub fn write(&self, batch: &WriteBatch, sync: bool) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: database and batch are alive while the guard lives; RocksDB's Write only reads the batch.
        let status = unsafe { ffi::rocks_write(handle.0, batch.raw(), u8::from(sync)) };
        status.check(|| format!("writing {} changes to {}", batch.len(), self.inner.path))
    }

    /// The value of a key, or `None` if the key does not exist.
    pub fn get(&self, key: &[u8]) -> Result<Option<Pinned>> {
        let handle = self.inner.open_handle()?;
        let (mut pin, mut value) = (ptr::null_mut(), RocksSlice::EMPTY);
        // SAFETY: the database is open while the guard lives; the key lives during the call.
        let status = unsafe { ffi::rocks_get(handle.0, RocksSlice::of(key), &raw mut pin, &raw mut value) };
        status.check(|| format!("reading a key of {}", self.inner.path))?;
        // SAFETY: `pin` and `value` come from rocks_get, and nothing else owns them.
        Ok(unsafe { Pinned::from_raw(pin, value) })
    }

    /// The values of several keys, in the order of `keys`.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Pinned>>> {
        let handle = self.inner.open_handle()?;
        let names: Vec<RocksSlice> = keys.iter().map(|key| RocksSlice::of(key)).collect();
        let mut pins = vec![ptr::null_mut(); keys.len()];
        let mut values = vec![RocksSlice::EMPTY; keys.len()];
        // SAFETY: the database is open while the guard lives; keys, pins and values have `keys.len()` elements each.
        let status = unsafe {
            let (names, pins, values) = (names.as_ptr(), pins.as_mut_ptr(), values.as_mut_ptr());
            ffi::rocks_multi_get(handle.0, names, keys.len(), pins, values)
        };
        status.check(|| format!("reading {} keys of {}", keys.len(), self.inner.path))?;
        // SAFETY: each pin comes from rocks_multi_get with its value, and nothing else owns it.
        Ok(pins.into_iter().zip(values).map(|(pin, value)| unsafe { Pinned::from_raw(pin, value) }).collect())
    }

    /// The value of a property of RocksDB, such as `rocksdb.stats`. `None` if RocksDB has no such property or the
    /// database is closed.
    pub fn property(&self, name: &str) -> Option<String> {
        let handle = self.inner.open_handle().ok()?;
        let mut len = 0;
        // SAFETY: the database is open while the guard lives; the name lives during the call.
        let raw = unsafe { ffi::rocks_property(handle.0, RocksSlice::of(name.as_bytes()), &raw mut len) };
        if raw.is_null() {
            return None;
        }
        // SAFETY: rocks_property returned `len` bytes that live until they are freed below.
        let text = String::from_utf8_lossy(unsafe { RocksSlice { data: raw, len }.bytes() }).into_owned();
        // SAFETY: the property's text is freed once.
        unsafe { ffi::rocks_free(raw) };
        Some(text)
    }

    /// Writes the memtables to table files, and waits for the end of the flush.
    pub fn flush(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_flush(handle.0) }
            .check(|| format!("flushing the memtables of {}", self.inner.path))
    }

    /// Makes every earlier write durable, by a sync of RocksDB's log.
    pub fn sync_wal(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_sync_wal(handle.0) }.check(|| format!("syncing the log of {}", self.inner.path))
    }

    /// Compacts all tables to the last level, which drops deleted and expired entries, and waits for the end.
    pub fn compact(&self) -> Result<()> {
        self.compact_within(0)
    }

    /// Like [`compact`](Db::compact), in steps with an input of about `most` bytes each. Until a step is done, the
    /// drive holds both its input and its output. The tables of level 0 are one step. With 0, steps are as large as
    /// RocksDB makes them. During the call the limit applies to automatic compactions too.
    pub fn compact_within(&self, most: u64) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_compact(handle.0, most) }.check(|| format!("compacting {}", self.inner.path))
    }

    /// Whether the limit of [`compact_within`](Db::compact_within) on compactions is in force: during that call, and
    /// after a call that could not restore the former limit.
    pub fn is_bound(&self) -> bool {
        // SAFETY: the database is open while the guard lives.
        self.inner.open_handle().is_ok_and(|handle| unsafe { ffi::rocks_is_bound(handle.0) } != 0)
    }

    /// Restores the limit on compactions that held before [`compact_within`](Db::compact_within). May block on a write
    /// stall as a write does, so no task that writers wait for may call this.
    pub fn unbound(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_unbound(handle.0) }
            .check(|| format!("setting back the bound of compactions of {}", self.inner.path))
    }

    /// Closes the database: makes every write durable, waits for running calls, stops the background work. Later calls
    /// fail with [`ErrorKind::Closed`]. Fails with [`ErrorKind::Busy`], and closes nothing, while cursors are open. A
    /// second close does nothing.
    pub fn close(&self) -> Result<()> {
        let mut handle = self.inner.handle.write();
        self.check_unused()?;
        self.inner.close(&mut handle)
    }

    /// Checks that [`close`](Db::close) would close the database.
    ///
    /// # Errors
    /// `Busy` while cursors are open.
    pub fn check_unused(&self) -> Result<()> {
        let cursors = self.inner.cursors.load(Ordering::Acquire);
        if cursors > 0 {
            let text =
                format!("closing the database in {}: {cursors} cursors are open: drop them", self.inner.path);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(())
    }
}

impl Inner {
    pub(crate) fn open_handle(&self) -> Result<RwLockReadGuard<'_, Handle>> {
        let handle = self.handle.read();
        if handle.0.is_null() {
            return Err(Error::new(ErrorKind::Closed, format!("the database in {} is closed", self.path)));
        }
        Ok(handle)
    }

    fn close(&self, handle: &mut Handle) -> Result<()> {
        let db = std::mem::replace(&mut handle.0, ptr::null_mut());
        if db.is_null() {
            return Ok(());
        }
        // SAFETY: the write lock (or the last reference) excludes other calls, no cursor is left, and the database's
        // pointer was just taken out of the handle, so the database is closed once.
        unsafe { ffi::rocks_close(db) }.check(|| format!("closing the database in {}", self.path))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut handle = Handle(std::mem::replace(&mut self.handle.get_mut().0, ptr::null_mut()));
        if let Err(error) = self.close(&mut handle) {
            tracing::error!(%error, "a database was dropped without being closed");
        }
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "database in {}", self.path)
    }
}
