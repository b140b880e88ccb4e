//! The order in which pipelines run, and which pipelines form a group: no I/O, no threads.
//!
//! ```text
//!  push --> fresh --take--> a group: in flight, holds its keys --release--> done
//!             ^        \--> blocked: a key is held, or an earlier pipeline waits for the key
//!             |__________________/  all of them again, after a release
//! ```
//!
//! Of two pipelines that share a key, the one that came first runs first. The pipelines of a group run one after another and
//! become one batch, so that they may share keys: all pipelines that waited for one key go in one group.

use std::collections::VecDeque;

use super::claims::{Claims, StripeBits};
use super::work::Work;
use crate::parallel_wal::WalMode;

/// Largest number of pipelines in a group.
const GROUP_LIMIT: usize = 4096;

/// A pipeline that waits, with the keys that it claims.
pub(super) struct WaitingPipeline {
    pub work: Box<dyn Work>,
    pub claims: Claims,
}

/// Pipelines that run together. Until the group is [released](Schedule::release), no other pipeline runs that shares a key
/// with one of them.
#[derive(Default)]
pub(super) struct Group {
    pub works: Vec<Box<dyn Work>>,
    claims: Vec<Claims>,
}

/// The keys that a group in flight holds.
pub(super) struct HeldKeys(Vec<Claims>);

impl Group {
    fn push(&mut self, waiting: WaitingPipeline) {
        self.works.push(waiting.work);
        self.claims.push(waiting.claims);
    }

    /// The group's `n`th pipeline, and its claims.
    pub fn pipeline_at(&mut self, n: usize) -> Option<(&mut Box<dyn Work>, &Claims)> {
        self.works.get_mut(n).zip(self.claims.get(n))
    }

    /// The group's pipelines, and the keys to release when they are done.
    pub fn into_pipelines(self) -> (Vec<Box<dyn Work>>, HeldKeys) {
        (self.works, HeldKeys(self.claims))
    }
}

/// The pipelines that wait, and the keys of the groups in flight.
///
/// The store's log decides how pipelines make groups:
///
/// | log | groups in flight | pipelines of a group |
/// |---|---|---|
/// | `group` | one | all that wait |
/// | `auto` | one, and more while the store takes more batches | all that wait and whose keys are free |
/// | `waltz` | as `auto` | one, and those that share a key with the group |
pub(super) struct Schedule {
    wal: WalMode,
    /// Pipelines not examined since they came, or since the last release.
    fresh: VecDeque<WaitingPipeline>,
    /// Pipelines that wait for a release, older than the fresh ones, and their keys.
    blocked: VecDeque<WaitingPipeline>,
    blocked_keys: StripeBits,
    blocked_all: bool,
    /// Keys of the group that is being formed, for `waltz`; empty for other logs.
    grouped: StripeBits,
    /// Keys of the groups in flight.
    held: StripeBits,
    held_all: bool,
    in_flight: usize,
}

impl Schedule {
    /// An empty schedule for a store with the log `wal`.
    pub fn new(wal: WalMode) -> Schedule {
        Schedule {
            wal,
            fresh: VecDeque::new(),
            blocked: VecDeque::new(),
            blocked_keys: StripeBits::new(),
            blocked_all: false,
            grouped: StripeBits::new(),
            held: StripeBits::new(),
            held_all: false,
            in_flight: 0,
        }
    }

    /// Number of pipelines that wait.
    pub fn len(&self) -> usize {
        self.fresh.len() + self.blocked.len()
    }

    /// Whether [`take`](Schedule::take) may give a group. `takes_more`: whether the store takes one more batch in flight.
    pub fn may_take(&self, takes_more: impl FnOnce() -> bool) -> bool {
        // A batch that lands after `takes_more` was asked leaves the schedule later, and then its writer asks again.
        !self.fresh.is_empty() && (self.in_flight == 0 || self.wal.is_parallel() && takes_more())
    }

    /// Whether no pipeline waits and no group is in flight.
    pub fn is_idle(&self) -> bool {
        self.len() == 0 && self.in_flight == 0
    }

    /// Adds a pipeline to the fresh ones.
    pub fn push(&mut self, waiting: WaitingPipeline) {
        self.fresh.push_back(waiting);
    }

    /// The next group, if one may run. The group holds its keys until it is released. `takes_more`: as for
    /// [`may_take`](Schedule::may_take).
    pub fn take(&mut self, takes_more: impl FnOnce() -> bool) -> Option<Group> {
        if !self.may_take(takes_more) {
            return None;
        }
        let single = self.wal == WalMode::Waltz;
        let mut group = Group::default();
        // Pipelines whose keys are free, but which do not belong in the new group.
        let mut later = VecDeque::new();
        while group.works.len() < GROUP_LIMIT
            && let Some(next) = self.fresh.pop_front()
        {
            if !self.may_run(&next.claims, !later.is_empty()) {
                self.note_blocked(&next.claims);
                self.blocked.push_back(next);
            } else if single && !group.works.is_empty() && !self.shares_key(&group, &next.claims) {
                self.note_blocked(&next.claims);
                later.push_back(next);
            } else {
                if single {
                    self.grouped.insert(&next.claims);
                }
                group.push(next);
            }
        }
        for claims in group.claims.iter().filter(|_| single) {
            self.grouped.remove(claims);
        }
        if !later.is_empty() {
            // The blocked pipelines share no key with `later`, or came after it.
            self.requeue(later);
        }
        if group.works.is_empty() {
            return None;
        }
        self.in_flight += 1;
        self.hold_keys(&group.claims);
        Some(group)
    }

    /// Makes the pipelines of `group` from the `from`th on wait again, before all other pipelines.
    pub fn put_back(&mut self, group: &mut Group, from: usize) {
        self.free_keys(&group.claims);
        let works = group.works.split_off(from);
        let claims = group.claims.split_off(from);
        let back =
            works.into_iter().zip(claims).map(|(work, claims)| WaitingPipeline { work, claims }).collect();
        self.hold_keys(&group.claims);
        self.requeue(back);
    }

    /// Ends a group: its keys are free.
    pub fn release(&mut self, held: &HeldKeys) {
        self.free_keys(&held.0);
        self.in_flight -= 1;
        self.requeue(VecDeque::new());
    }

    /// Removes all waiting pipelines and gives them.
    pub fn drain(&mut self) -> Vec<WaitingPipeline> {
        self.requeue(VecDeque::new());
        self.fresh.drain(..).collect()
    }

    /// Whether a pipeline with `claims` may run: it shares no key with a group in flight or with a pipeline
    /// that waits longer. `later`: pipelines that wait longer are not only the blocked ones.
    fn may_run(&self, claims: &Claims, later: bool) -> bool {
        let wait = later || !self.blocked.is_empty();
        if claims.covers_all_keys() {
            return self.in_flight == 0 && !wait;
        }
        let all = self.held_all || self.blocked_all;
        !(all || self.held.overlaps(claims) || wait && self.blocked_keys.overlaps(claims))
    }

    /// Whether a pipeline with `claims` shares a key with `group`, for the log `waltz`.
    fn shares_key(&self, group: &Group, claims: &Claims) -> bool {
        let all = claims.covers_all_keys() || group.claims.iter().any(Claims::covers_all_keys);
        all || self.grouped.overlaps(claims)
    }

    fn note_blocked(&mut self, claims: &Claims) {
        self.blocked_keys.insert(claims);
        self.blocked_all |= claims.covers_all_keys();
    }

    /// Makes all waiting pipelines fresh again, `first` before the others.
    fn requeue(&mut self, mut first: VecDeque<WaitingPipeline>) {
        for waiting in first.iter().chain(&self.blocked) {
            self.blocked_keys.remove(&waiting.claims);
        }
        self.blocked_all = false;
        first.append(&mut self.blocked);
        first.append(&mut self.fresh);
        self.fresh = first;
    }

    fn hold_keys(&mut self, claims: &[Claims]) {
        for claims in claims {
            self.held.insert(claims);
            self.held_all |= claims.covers_all_keys();
        }
    }

    fn free_keys(&mut self, claims: &[Claims]) {
        for claims in claims {
            self.held.remove(claims);
            // A pipeline that claims all keys is alone in flight, so its release frees all keys.
            self.held_all &= !claims.covers_all_keys();
        }
    }
}

#[cfg(test)]
mod tests;
