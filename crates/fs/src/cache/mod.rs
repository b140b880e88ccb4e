//! The page cache: copies of file data that lies on the device, in memory.
//!
//! ```text
//!   files/read   --copy--> hit: a look-up and a copy, without a lock of the file
//!                --load--> miss: one reader reads the page from the device, the others wait for it
//!   writeback    --store-> pages that were written and that an extent names; a full cache may take half of them (admission)
//!   truncation, last name and handle gone, behind a compaction's pass --remove-> frees the pages at once
//! ```
//!
//! A page is named by its file and its number in the file. Inodes are not used twice, and a page's bytes change by a truncation
//! only, and by the growth of the file's last, shorter page. Reclaim, which moves blocks between zones, does not touch the cache. Pages that no extent names yet are not here: see
//! [`files::pages`](crate::files::pages).

mod admission;
mod counters;
mod rules;
#[cfg(feature = "cache-trace")]
mod trace;

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle, GuardResult, PlaceholderGuard};
use sys::{Page, PageMemory};
use units::Bytes;

use self::admission::Admission;
pub use self::counters::CacheStats;
use self::counters::Counters;
use self::rules::{PageKey, has_room};
#[cfg(feature = "cache-trace")]
pub use self::trace::{CacheEvent, take_cache_events};
use crate::error::{Error, ErrorKind, Result};

/// The least length of a page in bytes. On a device with longer blocks a page is a block.
const LEAST_PAGE_BYTES: usize = 4096;

/// The least size of a cache other than 0.
const LEAST_CACHE: Bytes = Bytes(4 << 20);

/// The default size of a program's page cache is the memory that it may have, divided by this number.
const MEMORY_DIVISOR: u64 = 16;

/// The least and the greatest default size.
const DEFAULT_SIZES: RangeInclusive<u64> = 32 << 20..=1 << 30;

/// The most bytes that are read ahead of a sequential read.
const LONGEST_WINDOW: u64 = 1 << 20;

/// The pages' part of the cache changes in steps of the cache's size divided by this number.
const LEFT_STEPS: u64 = 64;

/// Bytes of memory that a page needs beside its data: its key and links in the cache, its counts, and the share of
/// the names of pages that have left the cache.
const BYTES_BESIDE_A_PAGE: usize = 160;

/// Number of parts of the cache, each under a lock of its own; fewer where a part would have room for less than 32 pages. Fixed, so that the same run evicts the same pages on every
/// machine.
const SHARDS: usize = 16;

/// Fails with `Invalid` where a page cache of `size` bytes is too small to be of use, or larger than the memory that this process may have.
/// 0 is no cache.
pub fn check_cache_size(size: Bytes) -> Result<()> {
    let refuse = |why: String| Err(Error::new(ErrorKind::Invalid, "making a page cache").because(why));
    if size != Bytes::ZERO && size < LEAST_CACHE {
        let least = LEAST_CACHE.0 >> 20;
        return refuse(format!("{} bytes are too few: 0 for none, or {least} MiB and more", size.0));
    }
    if size == Bytes::ZERO {
        return Ok(());
    }
    match sys::memory::limit() {
        Some(limit) if size.0 > limit => refuse(format!(
            "{} MiB are larger than the {} MiB of memory that this process may have",
            size.0 >> 20,
            limit >> 20
        )),
        _ => Ok(()),
    }
}

/// The page cache's size in a program whose user gives no size: a sixteenth of the memory that this process may have, 32 MiB to 1 GiB. No more
/// than half of that memory; no cache where that would be less than 4 MiB.
pub fn default_cache_size() -> Bytes {
    default_size_within(sys::memory::limit())
}

/// The default size for a process that may have `memory` bytes; `None` where the kernel does not say.
fn default_size_within(memory: Option<u64>) -> Bytes {
    let (least, greatest) = DEFAULT_SIZES.into_inner();
    let Some(memory) = memory else { return Bytes(least) };
    let size = Bytes((memory / MEMORY_DIVISOR).clamp(least, greatest).min(memory / 2));
    if size < LEAST_CACHE { Bytes::ZERO } else { size }
}

/// Weighs a page by the memory that it takes, which does not depend on its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageWeight {
    page_bytes: usize,
}

impl Weighter<PageKey, Page> for PageWeight {
    fn weight(&self, _: &PageKey, _: &Page) -> u64 {
        (self.page_bytes + BYTES_BESIDE_A_PAGE) as u64
    }
}

/// The right to read one page from the device. Readers of the same page wait until the page is stored, or the guard dropped.
pub(crate) type LoadGuard<'a> =
    PlaceholderGuard<'a, PageKey, Page, PageWeight, FixedState, DefaultLifecycle<PageKey, Page>>;

/// Whether a page is in memory.
pub(crate) enum TryLoad<'a> {
    /// The page is not, and the caller may read it.
    Absent(LoadGuard<'a>),
    InMemory,
    /// The page is not in memory yet.
    ReadByAnother,
}

/// The page cache of one mount.
#[derive(Debug)]
pub(crate) struct PageCache {
    /// The size in bytes, of which bytes outside of the cache may take a part.
    size: u64,
    /// Number of bytes of `size` that are left to others.
    left: Mutex<u64>,
    page_bytes: usize,
    memory: Arc<PageMemory>,
    pages: Cache<PageKey, Page, PageWeight, FixedState>,
    admission: Admission,
    counters: Counters,
}

impl PageCache {
    /// A page cache of `size` bytes, which hold the pages and what the cache needs to find them, on a device with blocks of
    /// `block` bytes. `None` for the size 0.
    pub(crate) fn new(size: Bytes, block: usize) -> Option<PageCache> {
        if size == Bytes::ZERO {
            return None;
        }
        let page_bytes = block.max(LEAST_PAGE_BYTES);
        let items = usize::try_from(size.0).unwrap_or(usize::MAX) / (page_bytes + BYTES_BESIDE_A_PAGE);
        let options = rules::options(SHARDS, items, size.0);
        let weight = PageWeight { page_bytes };
        let pages = Cache::with_options(options, weight, FixedState::default(), DefaultLifecycle::default());
        let memory = PageMemory::new(page_bytes, items);
        let left = Mutex::new(0);
        let admission = Admission::new(items);
        let counters = Counters::default();
        Some(PageCache { size: size.0, left, page_bytes, memory, pages, admission, counters })
    }

    /// The most bytes that are read ahead: a window is a small part of the cache.
    pub(crate) fn longest_window(&self) -> u64 {
        (self.size / 16).min(LONGEST_WINDOW)
    }

    /// Leaves `bytes` of the cache's size to bytes outside of the cache, rounded up to a step.
    ///
    /// A step stays left when `bytes` become fewer: otherwise each write of a few bytes would push a step of pages out of memory.
    pub(crate) fn leave(&self, bytes: u64) {
        let step = (self.size / LEFT_STEPS).max(1);
        let needed = bytes.div_ceil(step) * step;
        let mut left = self.left.lock();
        if needed > *left || needed + 2 * step <= *left {
            *left = if needed > *left { needed } else { needed + step };
            let capacity = self.size.saturating_sub(*left).max(step);
            self.pages.set_capacity(capacity);
            let page = self.page_bytes() + BYTES_BESIDE_A_PAGE as u64;
            self.memory.set_limit(usize::try_from(capacity / page).unwrap_or(usize::MAX));
        }
    }

    /// Bytes in a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes as u64
    }

    fn key(&self, ino: u64, offset: u64) -> PageKey {
        PageKey { ino, page: offset / self.page_bytes() }
    }

    /// Copies bytes of file `ino` at `offset` to the front of `into`, as far as one page holds them. Returns the number of bytes
    /// copied; 0 where no page in memory holds the byte at `offset`.
    pub(crate) fn copy(&self, ino: u64, offset: u64, into: &mut [u8]) -> usize {
        let key = self.key(ino, offset);
        #[cfg(feature = "cache-trace")]
        trace::record(CacheEvent::Read(ino, key.page));
        self.admission.read(key);
        let copied = self.pages.get(&key).map_or(0, |page| self.copy_from(&page, offset, into));
        if copied > 0 {
            self.counters.count_hit(key.page);
        }
        copied
    }

    fn copy_from(&self, page: &[u8], offset: u64, into: &mut [u8]) -> usize {
        let skip = usize::try_from(offset % self.page_bytes()).expect("a page fits into memory");
        let held = page.get(skip..).unwrap_or_default();
        let len = held.len().min(into.len());
        if let (Some(to), Some(from)) = (into.get_mut(..len), held.get(..len)) {
            to.copy_from_slice(from);
        }
        len
    }

    /// The right to read the page with the byte at `offset` of file `ino` from the device. Waits while another reader reads the
    /// page, after a call of `before_waiting`; `None` if the page is in memory then.
    pub(crate) async fn load(
        &self,
        ino: u64,
        offset: u64,
        before_waiting: impl FnOnce(),
    ) -> Option<LoadGuard<'_>> {
        let key = self.key(ino, offset);
        match self.pages.get_value_or_guard(&key, Some(std::time::Duration::ZERO)) {
            GuardResult::Guard(guard) => return Some(guard),
            GuardResult::Timeout => before_waiting(),
            GuardResult::Value(_) => {}
        }
        loop {
            match self.pages.get_value_or_guard_async(&key).await {
                Err(guard) => return Some(guard),
                Ok(page) if self.copy_from(&page, offset, &mut [0]) > 0 => return None,
                // The file has grown since the page was stored: the page ends before `offset`.
                Ok(page) => {
                    self.pages.remove_if(&key, |stored| stored.is_same(&page));
                }
            }
        }
    }

    /// As [`load`](PageCache::load), for the page that begins at `offset`, without waiting for another reader.
    pub(crate) fn try_load(&self, ino: u64, offset: u64) -> TryLoad<'_> {
        let key = self.key(ino, offset);
        // A look-up ahead of the reader is no use of the page.
        if self.pages.peek(&key).is_some() {
            return TryLoad::InMemory;
        }
        match self.pages.get_value_or_guard(&key, Some(std::time::Duration::ZERO)) {
            GuardResult::Guard(guard) => {
                #[cfg(feature = "cache-trace")]
                trace::record(CacheEvent::Read(ino, key.page));
                TryLoad::Absent(guard)
            }
            GuardResult::Value(_) => TryLoad::InMemory,
            GuardResult::Timeout => TryLoad::ReadByAnother,
        }
    }

    fn page(&self, bytes: &[u8]) -> Page {
        self.memory.page(bytes)
    }

    /// Stores the bytes that the holder of `guard` read from the device. A page that was removed meanwhile is not stored.
    pub(crate) fn loaded(&self, guard: LoadGuard<'_>, bytes: &[u8]) {
        self.counters.count_miss();
        let _removed_meanwhile = guard.insert(self.page(bytes));
    }

    /// Stores the pages that begin within `bytes`, the bytes of file `ino` at `offset` that extents name, which were just written. A full cache
    /// may take in a part of them alone.
    pub(crate) fn store(&self, ino: u64, offset: u64, bytes: &[u8]) {
        let Some(first_page) = offset.checked_next_multiple_of(self.page_bytes()) else { return };
        let before = first_page - offset;
        let whole = usize::try_from(before).ok().and_then(|before| bytes.get(before..)).unwrap_or_default();
        let first = first_page / self.page_bytes();
        let has_room = has_room(self.pages.weight(), self.pages.capacity());
        for (page, bytes) in (first..).zip(whole.chunks(self.page_bytes)) {
            #[cfg(feature = "cache-trace")]
            trace::record(CacheEvent::Stored(ino, page));
            let key = PageKey { ino, page };
            self.admission.written(key);
            if has_room || self.admission.takes_in(key) {
                self.pages.insert(key, self.page(bytes));
            }
        }
    }

    /// Removes the pages of file `ino` with bytes of `ranges`.
    pub(crate) fn remove(&self, ino: u64, ranges: &[Range<u64>]) {
        for range in ranges {
            let pages = range.start / self.page_bytes()..range.end.div_ceil(self.page_bytes());
            #[cfg(feature = "cache-trace")]
            trace::record(CacheEvent::Removed(ino, pages.clone()));
            for page in pages {
                let key = PageKey { ino, page };
                self.admission.removed(key);
                self.pages.remove(&key);
            }
        }
    }

    /// Removes the pages of a file that nobody can read any more, which had bytes in `ranges`.
    pub(crate) fn remove_released(&self, ino: u64, ranges: &[Range<u64>]) {
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if bytes / self.page_bytes() <= self.pages.len() as u64 {
            return self.remove(ino, ranges);
        }
        // The file has more pages than the cache. No reader is left, so that no page of the file is being read.
        #[cfg(feature = "cache-trace")]
        for range in ranges {
            let pages = range.start / self.page_bytes()..range.end.div_ceil(self.page_bytes());
            trace::record(CacheEvent::Removed(ino, pages));
        }
        self.admission.file_removed(ino);
        self.pages.retain(|key, _| key.ino != ino);
    }

    /// What the cache holds, and what it did since the mount.
    pub(crate) fn stats(&self) -> CacheStats {
        let (hits, misses) = self.counters.sums();
        CacheStats {
            capacity: Bytes(self.size),
            used: Bytes(self.pages.weight()),
            pages: self.pages.len() as u64,
            hits,
            misses,
            dirty: Bytes::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
