//! A database written with RocksDB's log off, under a log that is somebody else's: docs/adr/0013.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::db::Db;
use crate::error::{ErrorKind, Result};
use crate::ffi::{self, FlushCalls, RocksMark, RocksSlice};

/// Whom a database's flushes are told to. Called from RocksDB's threads, perhaps several at once; must not write to the
/// database, and must not panic.
pub trait FlushEvents: Send + Sync {
    /// Memtables are closed; none of their tables counts yet.
    fn begins(&self);

    /// Everything of a family up to the sequence `largest` is in tables, durably; of the hidden one where none is named. A
    /// table may end before its family's last record: `largest` is never too high.
    fn family_flushed(&self, family: Option<u32>, largest: u64);

    /// Everything of all families up to the sequence `largest` is in tables, durably: the memtables were seen to be empty.
    fn all_flushed(&self, largest: u64);
}

/// What goes into the hidden family along with a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppliedMark {
    /// The batch's ticket.
    pub ticket: u64,
    /// A new floor, and the marks below it go.
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

/// Where C++ finds the listener, which comes later than the database.
#[derive(Default)]
pub(crate) struct Hub {
    events: OnceLock<Arc<dyn FlushEvents>>,
    /// Families whose writes are delayed or stopped.
    stalled: AtomicI32,
    /// A flush or a compaction failed, and no write was seen to succeed since.
    failing: AtomicBool,
}

/// `FURROW_MARKS_FAMILY`.
const MARKS_FAMILY: u32 = u32::MAX;

/// A batch of nothing, as RocksDB serialises it.
const EMPTY: [u8; 12] = [0; 12];

extern "C" fn begins(context: *mut c_void) {
    tell(context, |events| events.begins());
}

extern "C" fn family_flushed(context: *mut c_void, family: u32, largest: u64) {
    tell(context, |events| events.family_flushed((family != MARKS_FAMILY).then_some(family), largest));
}

extern "C" fn all_flushed(context: *mut c_void, largest: u64) {
    tell(context, |events| events.all_flushed(largest));
}

extern "C" fn stalls(context: *mut c_void, more: i32) {
    // SAFETY: as in `tell`.
    let hub = unsafe { &*context.cast::<Hub>() };
    hub.stalls(more);
}

extern "C" fn fails(context: *mut c_void) {
    // SAFETY: as in `tell`.
    let hub = unsafe { &*context.cast::<Hub>() };
    hub.failing.store(true, Ordering::Release);
}

fn tell(context: *mut c_void, what: impl FnOnce(&dyn FlushEvents)) {
    // SAFETY: the context is the hub that the database was opened with, and the database's owner keeps it until the
    // database, and with it its threads, are gone.
    let hub = unsafe { &*context.cast::<Hub>() };
    if let Some(events) = hub.events.get()
        && catch_unwind(AssertUnwindSafe(|| what(&**events))).is_err()
    {
        tracing::error!("a listener of flushes panicked; this is a bug");
    }
}

impl Hub {
    /// So many families more, or fewer, have their writes delayed or stopped. A family that is dropped meanwhile is not told of
    /// again: see [`is_stalled`](Hub::is_stalled).
    fn stalls(&self, more: i32) {
        let add = |stalled: i32| Some(stalled.saturating_add(more).max(0));
        let _always = self.stalled.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Whether writes are delayed or stopped. `look` asks RocksDB, where the counter says so: it has drifted if not.
    fn is_stalled(&self, look: impl FnOnce() -> bool) -> bool {
        let counted = self.stalled.load(Ordering::Acquire);
        if counted <= 0 {
            return false;
        }
        let stalled = look();
        if !stalled {
            // Unless it was told something meanwhile.
            let _changed = self.stalled.compare_exchange(counted, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        stalled
    }

    /// What C++ is given. The hub must stay until the database is closed.
    pub(crate) fn calls(self: &Arc<Hub>) -> FlushCalls {
        FlushCalls {
            context: Arc::as_ptr(self).cast_mut().cast(),
            begins,
            family_flushed,
            all_flushed,
            stalls,
            fails,
        }
    }
}

impl Db {
    /// Says whom to tell of flushes from now on. Only the first call counts.
    pub fn tell_flushes(&self, events: Arc<dyn FlushEvents>) {
        let _only_the_first = self.inner.hub.events.set(events);
    }

    /// Applies a batch in RocksDB's serialisation, with the log off; gives the sequence of its last record.
    /// `ignore_missing` leaves out records of column families that do not exist. For a database that was opened
    /// [`unlogged`](crate::DbOptions::unlogged), as all calls here.
    pub fn apply(&self, batch: &[u8], ignore_missing: bool, mark: Option<AppliedMark>) -> Result<u64> {
        let flags = if ignore_missing { ffi::ROCKS_IGNORE_MISSING } else { 0 };
        self.apply_with(batch, flags, mark)
    }

    /// [`apply`](Db::apply) where RocksDB takes the batch at once; none, and nothing applied, where it would delay the write or
    /// stop it until a flush or a compaction is done.
    pub fn try_apply(&self, batch: &[u8], mark: Option<AppliedMark>) -> Result<Option<u64>> {
        match self.apply_with(batch, ffi::ROCKS_NO_WAIT, mark) {
            Ok(last) => Ok(Some(last)),
            Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether RocksDB delays or stops writes, as far as it has said: a moment late, perhaps.
    pub fn is_stalled(&self) -> bool {
        let none = |name| self.property(name).is_none_or(|number| number == "0");
        self.inner
            .hub
            .is_stalled(|| !none("rocksdb.is-write-stopped") || !none("rocksdb.actual-delayed-write-rate"))
    }

    /// Fails while RocksDB refuses writes, after a flush or a compaction failed: with what it says. It goes on by itself, or does
    /// not; this looks.
    pub fn check_writable(&self) -> Result<()> {
        let failing = &self.inner.hub.failing;
        if !failing.load(Ordering::Acquire) {
            return Ok(());
        }
        // Before the look: what fails meanwhile is not to be overlooked.
        failing.store(false, Ordering::Release);
        match self.try_apply(&EMPTY, None) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.was_refused();
                Err(error)
            }
        }
    }

    /// A batch was refused: [`check_writable`](Db::check_writable) is to look. RocksDB tells of a failure before it refuses
    /// batches for it, and not again.
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

    /// Writes all memtables to tables, the hidden family's too, while no batch is being applied. Success means that
    /// everything applied before is in tables.
    pub fn empty_memtables(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_empty_memtables(handle.0) }
            .check(|| format!("flushing the memtables of {}", self.inner.path))
    }

    /// Writes all memtables to tables, the hidden family's too, and waits for it. Success proves nothing about one batch:
    /// [`FlushEvents`] says what is in tables.
    pub fn flush_all(&self) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_flush_all(handle.0) }
            .check(|| format!("flushing the memtables of {}", self.inner.path))
    }

    /// The floor of the marks; none if there are no marks.
    pub fn marks_floor(&self) -> Result<Option<u64>> {
        let handle = self.inner.open_handle()?;
        let (mut has, mut floor) = (0, 0);
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_marks_floor(handle.0, &raw mut has, &raw mut floor) }
            .check(|| format!("reading the marks of {}", self.inner.path))?;
        Ok((has != 0).then_some(floor))
    }

    /// Whether the tables have a ticket's mark.
    pub fn is_marked(&self, ticket: u64) -> Result<bool> {
        let handle = self.inner.open_handle()?;
        let mut marked = 0;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_is_marked(handle.0, ticket, &raw mut marked) }
            .check(|| format!("reading the marks of {}", self.inner.path))?;
        Ok(marked != 0)
    }

    /// Writes the floor of the marks, and makes their family if there is none. The next flush makes it durable. Nobody
    /// may be applying batches.
    pub fn set_marks_floor(&self, floor: u64) -> Result<()> {
        let handle = self.inner.open_handle()?;
        // SAFETY: the database is open while the guard lives.
        unsafe { ffi::rocks_set_marks_floor(handle.0, floor) }
            .check(|| format!("writing the marks of {}", self.inner.path))
    }

    /// Removes the marks and their family. Nobody may be applying batches.
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
        // One was told of again, the other one dropped.
        hub.stalls(-1);
        assert!(!hub.is_stalled(|| false), "RocksDB says that nothing is stalled");
        // Nor does it go below zero by what is told late.
        hub.stalls(-1);
        hub.stalls(1);
        assert!(hub.is_stalled(|| true));
    }
}
