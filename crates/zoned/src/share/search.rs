//! The search for zones whose operations do not slow the log: on a drive whose zones lie on a die each, most do not. Pure.
//!
//! ```text
//!   limited zones --halves--> trial: one set goes at once, the other limited zones wait
//!                               |-- the log stays within its target: the set's zones are free from then on
//!                               `-- it does not: each half of the set is tried later; one zone alone is slow
//! ```
//!
//! A drive whose zones share a buffer fails both halves of the first division, or more than a third of its zones are slow. It is left alone for a time that grows.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use units::{Instant, ZoneId};

/// The time until the next search after one that found nothing, at first, and how it grows.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_GROWTH: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// What is known of a drive's zones.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// Zones that do not slow the log.
    free: BTreeSet<ZoneId>,
    /// Zones that slow the log by themselves.
    slow: BTreeSet<ZoneId>,
    /// The zones of the trial.
    tried: BTreeSet<ZoneId>,
    /// Sets to try, the largest ones first.
    sets: VecDeque<BTreeSet<ZoneId>>,
    /// Number of zones that are limited.
    limited: usize,
    /// True once a set passed, and the number of sets that did not, in this search.
    has_passed: bool,
    failures: u32,
    /// The time before which no search begins, and the pause before it.
    next_at: Option<Instant>,
    pause: Duration,
}

impl Search {
    /// True if `zone` does not slow the log.
    pub(super) fn is_free(&self, zone: ZoneId) -> bool {
        self.free.contains(&zone)
    }

    /// True if `zone` is in the trial.
    pub(super) fn is_tried(&self, zone: ZoneId) -> bool {
        self.tried.contains(&zone)
    }

    /// True if some zones are free.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Begins a trial, if it is time for one and zones among those that are `held` back were not tried yet.
    pub(super) fn begin_trial(&mut self, now: Instant, held: impl Iterator<Item = ZoneId>) -> bool {
        if self.next_at.is_some_and(|at| now < at) {
            return false;
        }
        if self.sets.is_empty() {
            let limited: Vec<ZoneId> = held.filter(|zone| !self.free.contains(zone)).collect();
            let new: Vec<ZoneId> = limited.iter().copied().filter(|zone| !self.slow.contains(zone)).collect();
            // A zone alone has the whole rate.
            if new.is_empty() || limited.len() + self.free.len() < 2 {
                return false;
            }
            (self.limited, self.has_passed, self.failures) = (limited.len(), false, 0);
            self.push_halves(&new);
        }
        self.tried = self.sets.pop_front().unwrap_or_default();
        true
    }

    fn push_halves(&mut self, zones: &[ZoneId]) {
        let (first, second) = zones.split_at(zones.len() / 2);
        let halves = [first, second].into_iter().filter(|half| !half.is_empty());
        self.sets.extend(halves.map(|half| half.iter().copied().collect()));
    }

    /// Ends the trial. Returns the number of limited zones by that before.
    pub(super) fn end_trial(&mut self, now: Instant, passed: bool) -> f64 {
        let tried = std::mem::take(&mut self.tried);
        let before = self.limited.max(tried.len()).max(1);
        let mut left = before;
        if passed {
            left -= tried.len();
            self.has_passed = true;
            self.free.extend(tried);
        } else {
            self.failures += 1;
            if tried.len() > 1 {
                let zones: Vec<ZoneId> = tried.into_iter().collect();
                self.push_halves(&zones);
            } else {
                self.slow.extend(tried);
            }
        }
        let shares_all = !self.has_passed && self.failures >= 2 && !self.has_free();
        let shares_much = self.sets.is_empty() && self.slow.len() * 2 > self.free.len();
        if shares_all || shares_much {
            self.limited = left;
            return self.give_up(now) * left as f64 / before as f64;
        }
        self.limited = left;
        if self.sets.is_empty() {
            self.pause = Duration::ZERO;
        }
        left as f64 / before as f64
    }

    /// All zones are limited again: the log is slow while only free zones go, or many zones slow it. The next search begins after a pause. Returns the number of limited zones by that before.
    pub(super) fn give_up(&mut self, now: Instant) -> f64 {
        if self.failures == 0 && !self.has_free() {
            return 1.0;
        }
        let limited = self.limited.max(1);
        let more = (limited + self.free.len()) as f64 / limited as f64;
        let pause = (self.pause * PAUSE_GROWTH).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        *self = Search { pause, next_at: Some(now.after(pause)), ..Search::default() };
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches among `zones` until all are known, with a trial each 40 ms that passes unless a zone of it is in `slow`, or if `shared`. Returns the search and its trials.
    fn search(zones: u32, slow: &[u32], shared: bool) -> (Search, u32) {
        let (mut search, mut now, mut trials) = (Search::default(), Instant::ORIGIN, 0);
        while search.begin_trial(now, (0..zones).map(ZoneId)) {
            trials += 1;
            now = now.after(Duration::from_millis(40));
            let is_slow = shared || slow.iter().any(|zone| search.is_tried(ZoneId(*zone)));
            search.end_trial(now, !is_slow);
        }
        (search, trials)
    }

    #[test]
    fn one_zone_of_many_is_found_in_few_trials() {
        for slow in [0, 17, 63] {
            let (search, trials) = search(64, &[slow], false);
            let free: Vec<u32> = (0..64).filter(|zone| search.is_free(ZoneId(*zone))).collect();
            assert_eq!(free, (0..64).filter(|zone| *zone != slow).collect::<Vec<_>>());
            assert!(trials <= 12, "{trials}");
        }
    }

    #[test]
    fn a_new_zone_is_tried_alone_and_what_is_known_stays() {
        let (mut search, _) = search(8, &[3], false);
        let now = Instant(1 << 40);
        assert!(search.begin_trial(now, [3, 9].map(ZoneId).into_iter()));
        assert!(search.is_tried(ZoneId(9)) && !search.is_tried(ZoneId(3)));
        assert!((search.end_trial(now, true) - 0.5).abs() < 1e-9);
        assert!(search.is_free(ZoneId(9)) && !search.begin_trial(now, [ZoneId(3)].into_iter()));
    }

    #[test]
    fn where_more_than_a_third_of_the_zones_are_slow_none_is_free() {
        let (search, _) = search(8, &[1, 4, 6], false);
        assert!(!search.has_free() && search.next_at.is_some());
    }

    #[test]
    fn zones_that_share_a_buffer_are_left_alone_for_longer_each_time() {
        let (mut search, trials) = search(8, &[], true);
        assert!(trials == 2 && !search.has_free());
        let first = search.next_at.expect("a pause");
        let begins = |search: &mut Search, at| search.begin_trial(at, (0..8).map(ZoneId));
        assert!(!begins(&mut search, Instant(first.0 - 1)));
        for _ in 0..2 {
            assert!(begins(&mut search, first));
            search.end_trial(first, false);
        }
        let pause = search.next_at.expect("a longer one").since(first);
        assert_eq!(pause, FIRST_PAUSE * PAUSE_GROWTH);
    }
}
