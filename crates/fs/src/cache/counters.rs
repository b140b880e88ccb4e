//! Counts of a page cache.

use std::sync::atomic::{AtomicU64, Ordering};

use units::Bytes;

/// What a page cache holds, and what it did since the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// The cache's size; 0 without a cache.
    pub capacity: Bytes,
    /// Memory that the pages take, with what the cache needs to find them.
    pub used: Bytes,
    /// Number of pages in memory.
    pub pages: u64,
    /// Number of copies out of a page in memory: a read has one for each page that it finds.
    pub hits: u64,
    /// Number of pages that were read from the device and stored.
    pub misses: u64,
    /// Bytes of data files that are in memory only. They take a part of `capacity` beside `used`.
    pub dirty: Bytes,
}

/// Number of counters of hits: threads that read different pages seldom count in the same cache line.
const PARTS: usize = 8;

/// Hits of the pages with one remainder, in a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Hits(AtomicU64);

/// Hits and misses.
#[derive(Debug, Default)]
pub(super) struct Counters {
    hits: [Hits; PARTS],
    misses: AtomicU64,
}

impl Counters {
    pub(super) fn count_hit(&self, page: u64) {
        let part = usize::try_from(page % PARTS as u64).ok().and_then(|part| self.hits.get(part));
        if let Some(Hits(hits)) = part {
            hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of hits and of misses.
    pub(super) fn sums(&self) -> (u64, u64) {
        let hits = self.hits.iter().map(|Hits(hits)| hits.load(Ordering::Relaxed)).sum();
        (hits, self.misses.load(Ordering::Relaxed))
    }
}
