//! A database written with RocksDB's log off, beneath a log that the caller keeps: docs/adr/0013.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::ffi::{self, FlushCalls, RocksMark, RocksSlice};

/// A receiver of a database's flush events. Called from RocksDB's threads, perhaps several at once. Must not write to
/// the database, and must not panic.
pub trait FlushEvents: Send + Sync {
    /// A flush begins: its memtables are immutable from now on. Its tables are not durable before `family_flushed`.
    fn begins(&self);

    /// All records of a family up to the sequence number `largest` are durable in tables. `None` is the hidden
    /// family. A table may end before its family's last record, so `largest` may be too low but never too high.
    fn family_flushed(&self, family: Option<u32>, largest: u64);
}

/// The entry that the hidden family gets along with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedMark {
    /// The batch's ticket.
    pub ticket: u64,
    /// A new floor: written as well, and the marks below it are removed.
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

/// Passes flush events from C++ to the listener, which is set after the database is opened.
#[derive(Default)]
pub(crate) struct Hub {
    events: OnceLock<Arc<dyn FlushEvents>>,
    /// The number of families whose writes are delayed or stopped.
    stalled: AtomicI32,
    /// True if a flush or a compaction failed and no write succeeded since.
    failing: AtomicBool,
}

/// Rust side of `FURROW_MARKS_FAMILY` in `cpp/unlogged.h`.
const MARKS_FAMILY: u32 = u32::MAX;

/// RocksDB's serialisation of an empty batch.
const EMPTY: [u8; 12] = [0; 12];

extern "C" fn begins(context: *mut c_void) {
    report(context, |events| events.begins());
}

extern "C" fn family_flushed(context: *mut c_void, family: u32, largest: u64) {
    report(context, |events| events.family_flushed((family != MARKS_FAMILY).then_some(family), largest));
}

extern "C" fn stalls(context: *mut c_void, more: i32) {
    // SAFETY: as in `report`.
    let hub = unsafe { &*context.cast::<Hub>() };
    hub.stalls(more);
}

extern "C" fn fails(context: *mut c_void) {
    // SAFETY: as in `report`.
    let hub = unsafe { &*context.cast::<Hub>() };
    hub.failing.store(true, Ordering::Release);
}

fn report(context: *mut c_void, event: impl FnOnce(&dyn FlushEvents)) {
    // SAFETY: the context is the hub that the database was opened with. The database's owner keeps the hub until the
    // database and its threads are gone.
    let hub = unsafe { &*context.cast::<Hub>() };
    if let Some(events) = hub.events.get()
        && catch_unwind(AssertUnwindSafe(|| event(&**events))).is_err()
    {
        tracing::error!("a listener of flushes panicked; this is a bug");
    }
}

impl Hub {
    /// Adds `more` to the number of families whose writes are delayed or stopped. RocksDB sends no further event for
    /// a family that is dropped while stalled, so the number may be too high: see [`is_stalled`](Hub::is_stalled).
    fn stalls(&self, more: i32) {
        let add = |stalled: i32| Some(stalled.saturating_add(more).max(0));
        let _always = self.stalled.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// True if writes are delayed or stopped. If the counter says so, `ask` asks RocksDB; if RocksDB denies it, the
    /// counter has drifted and is reset.
    fn is_stalled(&self, ask: impl FnOnce() -> bool) -> bool {
        let counted = self.stalled.load(Ordering::Acquire);
        if counted <= 0 {
            return false;
        }
        let stalled = ask();
        if !stalled {
            // The counter is reset only if no event changed it during `ask`.
            let _changed = self.stalled.compare_exchange(counted, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        stalled
    }

    /// The callbacks for C++. The hub must live until the database is closed.
    pub(crate) fn calls(self: &Arc<Hub>) -> FlushCalls {
        FlushCalls { context: Arc::as_ptr(self).cast_mut().cast(), begins, family_flushed, stalls, fails }
    }
}

impl Db {
    /// Sets the receiver of flush events. Calls after the first have no effect.
    pub fn set_flush_events(&self, events: Arc<dyn FlushEvents>) {
        let _only_the_first = self.inner.hub.events.set(events);
    }

    /// Applies a batch in RocksDB's serialisation, with the log off. Returns the sequence number of the batch's last
    /// record. `ignore_missing` skips records of column families that do not exist. As all methods in this file, only
    /// for a database that was opened [`unlogged`](crate::DbOptions::unlogged).
    pub fn apply(&self, batch: &[u8], ignore_missing: bool, mark: Option<AppliedMark>) -> Result<u64> {
        let flags = if ignore_missing { ffi::ROCKS_IGNORE_MISSING } else { 0 };
        self.apply_with(batch, flags, mark)
    }

    /// As [`apply`](Db::apply), but without waiting: returns `None`, with nothing applied, if RocksDB would delay the
    /// write or stop it until a flush or a compaction is done.
    pub fn try_apply(&self, batch: &[u8], mark: Option<AppliedMark>) -> Result<Option<u64>> {
        match self.apply_with(batch, ffi::ROCKS_NO_WAIT, mark) {
            Ok(last) => Ok(Some(last)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if RocksDB delays or stops writes. The answer may be slightly out of date.
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
        // The flag is cleared before the trial write, so that a failure during that write sets it again.
        failing.store(false, Ordering::Release);
        match self.try_apply(&EMPTY, None) {
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

    /// Writes all memtables to tables, the hidden family's too. No batch may be applied meanwhile. Success means that
    /// everything applied before is in tables.
    pub fn empty_memtables(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_empty_memtables(handle.0) }
            .check(|| format!("flushing the memtables of {}", self.inner.path))
    }

    /// Writes all memtables to tables, the hidden family's too, and waits for the tables. Success does not prove that
    /// a particular batch is in tables: [`FlushEvents`] does.
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

    /// True if the database has the mark of a ticket.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_is_dropped_while_stalled_does_not_stall_the_others_for_good() {
        let hub = Hub::default();
        assert!(!hub.is_stalled(|| unreachable!("nobody is asked while nothing is stalled")));
        hub.stalls(1);
        hub.stalls(1);
        assert!(hub.is_stalled(|| true));
        // One family reported its end of the stall; the other one was dropped.
        hub.stalls(-1);
        assert!(!hub.is_stalled(|| false), "RocksDB says that nothing is stalled");
        // A late event must not make the counter negative.
        hub.stalls(-1);
        hub.stalls(1);
        assert!(hub.is_stalled(|| true));
    }
}
