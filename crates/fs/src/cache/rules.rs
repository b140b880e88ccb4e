//! The rules that the page cache and its models follow.

use quick_cache::{Options, OptionsBuilder};

/// The name of a page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PageKey {
    pub(super) ino: u64,
    /// The page's number in the file, counted from 0.
    pub(super) page: u64,
}

/// The share of the cache for pages that were used more than once while in memory.
///
/// A table is written once and read once, by its compaction: such pages need more room than the 3 % that `quick_cache` leaves them by
/// default. Measured by `bench/benches/cache_policies.rs` (ADR 0030).
const HOT_SHARE: f64 = 0.5;

/// The settings of a cache in `shards` parts with room for some `pages`, which weigh `weight` together.
pub(super) fn options(shards: usize, pages: usize, weight: u64) -> Options {
    OptionsBuilder::new()
        .shards(shards)
        .hot_allocation(HOT_SHARE)
        .estimated_items_capacity(pages)
        .weight_capacity(weight)
        .build()
        .expect("capacity and number of items are set")
}

/// A cache is full when less than its capacity divided by this number is free. The parts of the cache never fill up alike.
const FULL_DIVISOR: u64 = 50;

/// True if a cache of the given weight takes in pages without the loss of others.
pub(super) fn has_room(weight: u64, capacity: u64) -> bool {
    weight < capacity - capacity / FULL_DIVISOR
}
