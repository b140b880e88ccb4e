//! Flush events of a database, on their way from RocksDB's threads to the parallel WAL engine.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::ffi::FlushCalls;

/// A receiver of a database's flush events. Called from RocksDB's threads, perhaps several at once. Must not write to
/// the database, and must not panic.
pub trait FlushEvents: Send + Sync {
    /// A flush begins: its memtables are immutable from now on. The flush's tables are not durable before
    /// `family_flushed`.
    fn begins(&self);

    /// All records of a family up to the sequence number `largest` are durable in tables. `None` is the hidden
    /// family. A table may end before its family's last record, so `largest` may be too low but never too high.
    fn family_flushed(&self, family: Option<u32>, largest: u64);
}

/// Passes a database's flush events from C++ to the receiver, which is set after the database is opened.
#[derive(Default)]
pub(crate) struct FlushHub {
    pub(crate) events: OnceLock<Arc<dyn FlushEvents>>,
    /// The number of column families whose writes are delayed or stopped.
    stalled: AtomicI32,
    /// Whether a flush or a compaction failed and no write succeeded since.
    pub(crate) failing: AtomicBool,
}

/// Rust side of `FURROW_MARKS_FAMILY` in `cpp/unlogged.h`.
const MARKS_FAMILY: u32 = u32::MAX;

extern "C" fn begins(context: *mut c_void) {
    report_event(context, |events| events.begins());
}

extern "C" fn family_flushed(context: *mut c_void, family: u32, largest: u64) {
    report_event(context, |events| {
        events.family_flushed((family != MARKS_FAMILY).then_some(family), largest)
    });
}

extern "C" fn stalls(context: *mut c_void, more: i32) {
    // SAFETY: the context is the hub that the database was opened with, which outlives the database and its threads.
    let hub = unsafe { &*context.cast::<FlushHub>() };
    hub.stalls(more);
}

extern "C" fn fails(context: *mut c_void) {
    // SAFETY: the context is the hub that the database was opened with, which outlives the database and its threads.
    let hub = unsafe { &*context.cast::<FlushHub>() };
    hub.failing.store(true, Ordering::Release);
}

fn report_event(context: *mut c_void, event: impl FnOnce(&dyn FlushEvents)) {
    // SAFETY: the context is the hub that the database was opened with. The database's owner keeps the hub until the
    // database and its threads are gone.
    let hub = unsafe { &*context.cast::<FlushHub>() };
    if let Some(events) = hub.events.get()
        && catch_unwind(AssertUnwindSafe(|| event(&**events))).is_err()
    {
        tracing::error!("a listener of flushes panicked; this is a bug");
    }
}

impl FlushHub {
    /// Adds `more` to the number of families whose writes are delayed or stopped. RocksDB sends no further event for
    /// a family that is dropped while stalled, so the number may be too high: see [`is_stalled`](Hub::is_stalled).
    fn stalls(&self, more: i32) {
        let add = |stalled: i32| Some(stalled.saturating_add(more).max(0));
        let _always = self.stalled.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    /// Whether RocksDB delays or stops writes. If the counter of stalled families says so, `ask` asks RocksDB; if
    /// RocksDB denies it, the counter has drifted and is reset.
    pub(crate) fn is_stalled(&self, ask: impl FnOnce() -> bool) -> bool {
        let counted = self.stalled.load(Ordering::Acquire);
        if counted <= 0 {
            return false;
        }
        let stalled = ask();
        if !stalled {
            // The counter of stalled families is reset only if no event changed it during `ask`.
            let _changed = self.stalled.compare_exchange(counted, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        stalled
    }

    /// The flush callbacks for C++. The hub must live until the database is closed.
    pub(crate) fn callbacks(self: &Arc<FlushHub>) -> FlushCalls {
        FlushCalls { context: Arc::as_ptr(self).cast_mut().cast(), begins, family_flushed, stalls, fails }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_is_dropped_while_stalled_does_not_stall_the_others_for_good() {
        let hub = FlushHub::default();
        assert!(!hub.is_stalled(|| unreachable!("nobody is asked while nothing is stalled")));
        hub.stalls(1);
        hub.stalls(1);
        assert!(hub.is_stalled(|| true));
        // One family reports the end of its stall; the other family was dropped without a report.
        hub.stalls(-1);
        assert!(!hub.is_stalled(|| false), "RocksDB says that nothing is stalled");
        // A late end of a stall must not make the counter negative.
        hub.stalls(-1);
        hub.stalls(1);
        assert!(hub.is_stalled(|| true));
    }
}
