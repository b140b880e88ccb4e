//! The counters of a parallel log's operations.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wal::stats::LogStats;

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) appends: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) blocks: AtomicU64,
    pub(super) records: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) voids: AtomicU64,
    pub(super) replaced: AtomicU64,
    pub(super) waits: AtomicU64,
}

impl Counters {
    /// The counts so far. `zones`: the number of zones that are written side by side now.
    pub(super) fn stats(&self, zones: usize) -> LogStats {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        LogStats {
            appends: get(&self.appends),
            writes: get(&self.writes),
            blocks: get(&self.blocks),
            records: get(&self.records),
            flushes: get(&self.flushes),
            voids: get(&self.voids),
            replaced: get(&self.replaced),
            waits: get(&self.waits),
            zones: zones as u64,
            window: 0,
        }
    }
}
