//! Whether a full cache takes in all pages that are written, or half of them.
//!
//! A level of tables larger than the cache is compacted round and round. Were each written page to push out the oldest one, it would push out
//! what the next compaction reads, and nothing would stay until its turn: half of the writes is better. Where clients read what was written last,
//! all of them is better. So two models of the cache, one for each rule, see the calls for a sample of the pages, and the cache follows the
//! one with the more hits.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use foldhash::fast::FixedState;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::cache::rules::{self, PageKey, has_room};

/// Pages of a file that are taken in together or not at all: what is left out is one device read.
const RUN_PAGES: u64 = 64;

/// Pages in a model's cache, as long as it is a sample of at most one page in [`MOST_PAGES_PER_SAMPLE`].
const MODEL_PAGES: usize = 2048;

/// The models see at least one page in this many.
const MOST_PAGES_PER_SAMPLE: usize = 32;

/// Reads of sampled pages between two decisions.
const READS_PER_DECISION: u64 = 2048;

/// The other rule must be better by this part of the reads, or the cache stays at the one that it has.
const MARGIN_DIVISOR: u64 = 128;

/// A cache of page names, and the number of its hits, which each decision halves.
#[derive(Debug)]
struct Model {
    pages: Cache<PageKey, (), UnitWeighter, FixedState>,
    hits: AtomicU64,
}

impl Model {
    fn new(room: usize) -> Model {
        let options = rules::options(1, room, room as u64);
        let pages =
            Cache::with_options(options, UnitWeighter, FixedState::default(), DefaultLifecycle::default());
        Model { pages, hits: AtomicU64::new(0) }
    }

    fn read(&self, key: PageKey) {
        if self.pages.get(&key).is_some() {
            self.hits.fetch_add(1, Ordering::Relaxed);
        } else {
            self.pages.insert(key, ());
        }
    }
}

/// The rule by which a full cache takes in written pages.
#[derive(Debug)]
pub(super) struct Admission {
    /// One page in this many is sampled.
    pages_per_sample: u64,
    takes_all: Model,
    takes_half: Model,
    /// Reads of sampled pages since the mount.
    reads: AtomicU64,
    /// Whether half of the writes was better at the last decision.
    half_is_better: AtomicBool,
}

impl Admission {
    /// The rule of a cache with room for `pages`.
    pub(super) fn new(pages: usize) -> Admission {
        let pages_per_sample = (pages / MODEL_PAGES).clamp(1, MOST_PAGES_PER_SAMPLE);
        let room = (pages / pages_per_sample).max(1);
        Admission {
            pages_per_sample: pages_per_sample as u64,
            takes_all: Model::new(room),
            takes_half: Model::new(room),
            reads: AtomicU64::new(0),
            half_is_better: AtomicBool::new(false),
        }
    }

    /// Whether a full cache takes in the page, which was written.
    pub(super) fn takes_in(&self, key: PageKey) -> bool {
        !self.half_is_better.load(Ordering::Relaxed) || is_in_half(key)
    }

    /// Notes that a page was read, from memory or not.
    pub(super) fn read(&self, key: PageKey) {
        if !self.is_sampled(key) {
            return;
        }
        self.takes_all.read(key);
        self.takes_half.read(key);
        if (self.reads.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(READS_PER_DECISION) {
            let [all, half] = [&self.takes_all, &self.takes_half].map(|model| {
                let hits = model.hits.load(Ordering::Relaxed);
                model.hits.fetch_sub(hits / 2, Ordering::Relaxed);
                hits
            });
            // With half of the older hits kept, `all` and `half` are the hits of some twice as many reads.
            let margin = 2 * READS_PER_DECISION / MARGIN_DIVISOR;
            let was_better = self.half_is_better.load(Ordering::Relaxed);
            let is_better = if was_better { half + margin > all } else { half > all + margin };
            self.half_is_better.store(is_better, Ordering::Relaxed);
        }
    }

    /// Notes that a page was written.
    pub(super) fn written(&self, key: PageKey) {
        if self.is_sampled(key) {
            self.takes_all.pages.insert(key, ());
            let half = &self.takes_half.pages;
            if has_room(half.weight(), half.capacity()) || is_in_half(key) {
                half.insert(key, ());
            }
        }
    }

    /// Notes that a page was removed.
    pub(super) fn removed(&self, key: PageKey) {
        if self.is_sampled(key) {
            self.takes_all.pages.remove(&key);
            self.takes_half.pages.remove(&key);
        }
    }

    /// Notes that all pages of a file were removed.
    pub(super) fn file_removed(&self, ino: u64) {
        for model in [&self.takes_all, &self.takes_half] {
            model.pages.retain(|key, ()| key.ino != ino);
        }
    }

    /// Pages are sampled one by one: those of a run hit or miss together.
    fn is_sampled(&self, key: PageKey) -> bool {
        FixedState::default().hash_one(key).is_multiple_of(self.pages_per_sample)
    }
}

/// Whether the run of a page is in the half of the writes that is taken in; the same on every machine.
fn is_in_half(key: PageKey) -> bool {
    FixedState::default().hash_one((key.ino, key.page / RUN_PAGES)) & 1 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 8192;

    fn key(ino: u64, page: u64) -> PageKey {
        PageKey { ino, page }
    }

    /// A file of a sixteenth of the room is written, in place of one that is read and removed: round and round `files` of them.
    fn compact(admission: &Admission, files: u64, rounds: u64) {
        let pages = ROOM as u64 / 16;
        for ino in 0..rounds {
            if let Some(oldest) = ino.checked_sub(files) {
                for page in 0..pages {
                    admission.read(key(oldest, page));
                    admission.removed(key(oldest, page));
                }
            }
            (0..pages).for_each(|page| admission.written(key(ino, page)));
        }
    }

    #[test]
    fn half_is_taken_in_of_a_level_larger_than_the_cache_and_all_of_a_smaller_one() {
        for (files, all) in [(8, true), (22, false)] {
            let admission = Admission::new(ROOM);
            compact(&admission, files, 200);
            let taken = (0..200).filter(|ino| admission.takes_in(key(*ino, 0))).count();
            assert_eq!(taken == 200, all, "{files} files: {taken} of 200");
            assert!(taken == 200 || (70..130).contains(&taken), "{taken} of 200");
        }
    }

    #[test]
    fn all_is_taken_in_where_what_was_written_last_is_read() {
        let admission = Admission::new(ROOM);
        compact(&admission, 22, 200);
        assert!((0..64).any(|ino| !admission.takes_in(key(ino, 0))));
        for ino in 1000..1200 {
            (0..512).for_each(|page| admission.written(key(ino, page)));
            (0..512).for_each(|page| admission.read(key(ino - ino % 2, page)));
        }
        assert!((0..64).all(|ino| admission.takes_in(key(ino, 0))));
    }

    #[test]
    fn a_run_of_pages_is_taken_in_together() {
        let admission = Admission::new(ROOM);
        admission.half_is_better.store(true, Ordering::Relaxed);
        for page in 0..4096 {
            let first = key(3, page - page % RUN_PAGES);
            assert_eq!(admission.takes_in(key(3, page)), admission.takes_in(first));
        }
    }
}
