//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches written.
    pub groups: u64,
    /// Pipelines that those batches held.
    pub pipelines: u64,
    /// Keys put and deleted.
    pub keys_written: u64,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Pipelines whose write failed.
    pub failed: u64,
    /// Expired keys that were deleted in the background.
    pub expired: u64,
    /// Read-only pipelines.
    pub reads: u64,
}

/// The keys of the database, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    /// Live keys.
    pub keys: u64,
    /// Live keys with an expiry.
    pub expires: u64,
    /// Mean time to live of those, in milliseconds.
    pub avg_ttl_ms: u64,
    /// Milliseconds since the keys were counted, one by one. None: they never were yet, and `keys` is the store's estimate, which
    /// counts a key again for each version of it that no compaction has removed.
    pub age_ms: Option<u64>,
}

/// [`Stats`] while they are counted.
#[derive(Default)]
pub(super) struct Counters {
    pub groups: AtomicU64,
    pub pipelines: AtomicU64,
    pub keys_written: AtomicU64,
    pub bytes_written: AtomicU64,
    pub failed: AtomicU64,
    pub expired: AtomicU64,
    pub reads: AtomicU64,
}

impl Counters {
    /// The counts so far.
    pub fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            groups: get(&self.groups),
            pipelines: get(&self.pipelines),
            keys_written: get(&self.keys_written),
            bytes_written: get(&self.bytes_written),
            failed: get(&self.failed),
            expired: get(&self.expired),
            reads: get(&self.reads),
        }
    }
}
