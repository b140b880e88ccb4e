//! A database written with RocksDB's log off, beneath a parallel log that the caller keeps: docs/adr/0013.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::ffi::{self, RocksMark, RocksSlice};
use crate::flush_events::FlushEvents;

/// The mark that the hidden family gets along with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedMark {
    /// The ticket of the marked batch.
    pub ticket: u64,
    /// A new floor of the marks: it is written as well, and the marks below it are removed.
    pub floor: Option<u64>,
}

impl From<AppliedMark> for RocksMark {
    fn from(mark: AppliedMark) -> RocksMark {
        RocksMark {
            ticket: mark.ticket,
            floor: mark.floor.unwrap_or(0),
            raise: u8::from(mark.floor.is_some()),
            reserved: [0; 7],
        }
    }
}

/// RocksDB's serialisation of an empty batch.
const EMPTY_BATCH: [u8; 12] = [0; 12];

impl Db {
    /// Sets the receiver of the database's flush events. Calls after the first have no effect.
    pub fn set_flush_events(&self, events: Arc<dyn FlushEvents>) {
        let _only_the_first = self.inner.hub.events.set(events);
    }

    /// Applies a batch in RocksDB's serialisation, with RocksDB's log off. Returns the sequence number of the batch's
    /// last record. `ignore_missing` skips records of column families that do not exist. Like all methods in this file,
    /// only for a database that was opened [`unlogged`](crate::DbOptions::unlogged).
    pub fn apply(&self, batch: &[u8], ignore_missing: bool, mark: Option<AppliedMark>) -> Result<u64> {
        let flags = if ignore_missing { ffi::ROCKS_IGNORE_MISSING } else { 0 };
        self.apply_with(batch, flags, mark)
    }

    /// Like [`apply`](Db::apply), but without waiting: returns `None`, with nothing applied, if RocksDB would delay the
    /// write or stop it until a flush or a compaction is done.
    pub fn try_apply(&self, batch: &[u8], mark: Option<AppliedMark>) -> Result<Option<u64>> {
        match self.apply_with(batch, ffi::ROCKS_NO_WAIT, mark) {
            Ok(last) => Ok(Some(last)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether RocksDB delays or stops writes. The answer may be slightly out of date.
    pub fn is_stalled(&self) -> bool {
        let none = |name| self.property(name).is_none_or(|number| number == "0");
        self.inner
            .hub
            .is_stalled(|| !none("rocksdb.is-write-stopped") || !none("rocksdb.actual-delayed-write-rate"))
    }

    /// Fails with RocksDB's error while RocksDB refuses writes after a failed flush or compaction. RocksDB may or may
    /// not recover by itself; this call tries an empty write to find out.
    pub fn check_writable(&self) -> Result<()> {
        let failing = &self.inner.hub.failing;
        if !failing.load(Ordering::Acquire) {
            return Ok(());
        }
        // `failing` is cleared before the trial write, so that a failure during the write sets it again.
        failing.store(false, Ordering::Release);
        match self.try_apply(&EMPTY_BATCH, None) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.was_refused();
                Err(error)
            }
        }
    }

    /// Reports that RocksDB refused a batch, so that [`check_writable`](Db::check_writable) tries a write. RocksDB
    /// reports a background failure once, before it refuses batches for that failure.
    pub fn was_refused(&self) {
        self.inner.hub.failing.store(true, Ordering::Release);
    }

    fn apply_with(&self, batch: &[u8], flags: u8, mark: Option<AppliedMark>) -> Result<u64> {
        let handle = self.inner.open_handle()?;
        let mark = mark.map(RocksMark::from);
        let mark_at = mark.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut last = 0;
        // SAFETY: the database is open while the guard lives; batch and mark live during the call, which copies them.
        let status =
            unsafe { ffi::rocks_apply(handle.0, RocksSlice::of(batch), flags, mark_at, &raw mut last) };
        status.check(|| format!("applying a batch of {} bytes to {}", batch.len(), self.inner.path))?;
        Ok(last)
    }

    /// Writes all memtables to tables, the hidden family's too. No batch may be applied meanwhile. On success every
    /// batch applied earlier is in tables.
    pub fn empty_memtables(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_empty_memtables(handle.0) }
            .check(|| format!("flushing the memtables of {}", self.inner.path))
    }

    /// Writes all memtables to tables, the hidden family's too, and waits for the end of the flush. Success does not
    /// prove that a particular batch is in tables: [`FlushEvents`] does.
    pub fn flush_all(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_flush_all(handle.0) }
            .check(|| format!("flushing the memtables of {}", self.inner.path))
    }

    /// The floor of the marks; `None` if there are no marks.
    pub fn marks_floor(&self) -> Result<Option<u64>> {
        let handle = self.inner.open_handle()?;
        let (mut has, mut floor) = (0, 0);
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_marks_floor(handle.0, &raw mut has, &raw mut floor) }
            .check(|| format!("reading the marks of {}", self.inner.path))?;
        Ok((has != 0).then_some(floor))
    }

    /// Whether the database has the mark of a ticket.
    pub fn is_marked(&self, ticket: u64) -> Result<bool> {
        let handle = self.inner.open_handle()?;
        let mut marked = 0;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_is_marked(handle.0, ticket, &raw mut marked) }
            .check(|| format!("reading the marks of {}", self.inner.path))?;
        Ok(marked != 0)
    }

    /// Writes the floor of the marks, and creates the hidden family if it does not exist. The next flush makes the
    /// floor durable. No batch may be applied meanwhile.
    pub fn set_marks_floor(&self, floor: u64) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_set_marks_floor(handle.0, floor) }
            .check(|| format!("writing the marks of {}", self.inner.path))
    }

    /// Removes the marks and the hidden family. No batch may be applied meanwhile.
    pub fn drop_marks(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_drop_marks(handle.0) }
            .check(|| format!("dropping the marks of {}", self.inner.path))
    }
}
