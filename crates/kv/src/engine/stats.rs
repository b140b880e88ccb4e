//! Counters of the engine.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::RecordRef;

/// The engine's counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches written.
    pub groups: u64,
    /// Pipelines in the written batches.
    pub pipelines: u64,
    /// Keys put and deleted by clients.
    pub keys_written: u64,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Pipelines whose write failed.
    pub failed: u64,
    /// Expired keys that the background task deleted.
    pub expired: u64,
    /// Read-only pipelines that ran.
    pub reads: u64,
}

/// The keys of the database, for INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceCounts {
    /// Live keys.
    pub keys: u64,
    /// Live keys with an expiry.
    pub expires: u64,
    /// Mean time to live of the keys with an expiry, in milliseconds.
    pub avg_ttl_ms: u64,
    /// Milliseconds since the keys were counted, one by one. `None`: the keys were never counted, and `keys`
    /// is the store's estimate, which counts a key again for each of its versions that no compaction has
    /// removed.
    pub age_ms: Option<u64>,
}

/// Counts of the keys that a walk over the database met.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyCount {
    keys: u64,
    expires: u64,
    ttl_ms: u128,
}

impl KeyCount {
    /// Counts a key. `record` is absent if the key has expired.
    pub fn add(&mut self, record: Option<RecordRef<'_>>, now_ms: u64) {
        let Some(record) = record else { return };
        self.keys += 1;
        if let Some(at) = record.expires.unix_ms() {
            self.expires += 1;
            self.ttl_ms += u128::from(at.saturating_sub(now_ms));
        }
    }

    /// The counts as INFO shows them, without the time of counting.
    pub fn keyspace_counts(&self) -> KeyspaceCounts {
        let avg_ttl_ms = self.ttl_ms / u128::from(self.expires.max(1));
        let avg_ttl_ms = u64::try_from(avg_ttl_ms).unwrap_or(u64::MAX);
        KeyspaceCounts { keys: self.keys, expires: self.expires, avg_ttl_ms, age_ms: None }
    }
}

/// The engine's counters as atomics; [`Stats`] is a copy.
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
    /// A copy of the counters.
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
