//! A record of what a page cache is asked for, to compare policies of replacement. With the feature `cache-trace` only.

use std::ops::Range;

use parking_lot::Mutex;

/// A call of the page cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheEvent {
    /// A read looked for a page: the file's inode, and the page's number in the file.
    Read(u64, u64),
    /// A page that was written is in memory.
    Stored(u64, u64),
    /// The pages of a file were removed.
    Removed(u64, Range<u64>),
}

static EVENTS: Mutex<Vec<CacheEvent>> = Mutex::new(Vec::new());

pub(super) fn record(event: CacheEvent) {
    EVENTS.lock().push(event);
}

/// The calls of all page caches of the process since the last call of this function.
pub fn take_cache_events() -> Vec<CacheEvent> {
    std::mem::take(&mut EVENTS.lock())
}
