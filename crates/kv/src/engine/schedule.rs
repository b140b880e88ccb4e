//! Which pipelines go next, and together: no I/O, no threads.
//!
//! ```text
//!  push --> fresh --take--> a group: on its way, holds its keys --release--> done
//!             ^        \--> blocked: a key is held, or an earlier one waits for it
//!             |__________________/  all of them again, after a release
//! ```
//!
//! Of two pipelines that share a key, the one that came first goes first. Those of one group run one after another and
//! become one batch, so that they may share keys: whoever waited for a key goes with all others that did.

use std::collections::VecDeque;

use super::claims::{Claims, StripeBits};
use crate::{Batching, Work};

/// Pipelines of a group.
const GROUP_LIMIT: usize = 4096;

/// A pipeline with what it touches.
pub(super) struct Waiting {
    pub work: Box<dyn Work>,
    pub claims: Claims,
}

/// Pipelines that go together. Until they are [released](Schedule::release), nobody else's that share a key with them go.
#[derive(Default)]
pub(super) struct Group {
    pub works: Vec<Box<dyn Work>>,
    claims: Vec<Claims>,
}

/// What a group holds, apart from its pipelines.
pub(super) struct Held(Vec<Claims>);

impl Group {
    fn push(&mut self, waiting: Waiting) {
        self.works.push(waiting.work);
        self.claims.push(waiting.claims);
    }

    /// The `n`th pipeline, and what it claims.
    pub fn member(&mut self, n: usize) -> Option<(&mut Box<dyn Work>, &Claims)> {
        self.works.get_mut(n).zip(self.claims.get(n))
    }

    pub fn split(self) -> (Vec<Box<dyn Work>>, Held) {
        (self.works, Held(self.claims))
    }
}

pub(super) struct Schedule {
    batching: Batching,
    /// Not looked at since they came, or since the last release.
    fresh: VecDeque<Waiting>,
    /// Those that have to wait for a release, older than the fresh ones, and their keys.
    blocked: VecDeque<Waiting>,
    blocked_keys: StripeBits,
    blocked_all: bool,
    /// Keys of the group that is being made, where that matters. Empty otherwise.
    grouped: StripeBits,
    /// Keys of the groups on their way.
    held: StripeBits,
    held_all: bool,
    flying: usize,
}

impl Schedule {
    pub fn new(batching: Batching) -> Schedule {
        Schedule {
            batching,
            fresh: VecDeque::new(),
            blocked: VecDeque::new(),
            blocked_keys: StripeBits::new(),
            blocked_all: false,
            grouped: StripeBits::new(),
            held: StripeBits::new(),
            held_all: false,
            flying: 0,
        }
    }

    /// Pipelines that wait.
    pub fn len(&self) -> usize {
        self.fresh.len() + self.blocked.len()
    }

    /// Whether [`take`](Schedule::take) may give a group.
    pub fn is_worth_a_look(&self) -> bool {
        !self.fresh.is_empty() && (self.flying == 0 || self.batching != Batching::OneAtATime)
    }

    /// Groups on their way.
    pub fn flying(&self) -> usize {
        self.flying
    }

    /// Nothing waits, and nothing is on its way.
    pub fn is_idle(&self) -> bool {
        self.len() == 0 && self.flying == 0
    }

    /// One more waits.
    pub fn push(&mut self, waiting: Waiting) {
        self.fresh.push_back(waiting);
    }

    /// The next group, if there is one that may go. It holds its keys from here on.
    pub fn take(&mut self) -> Option<Group> {
        if !self.is_worth_a_look() {
            return None;
        }
        let alone = self.batching == Batching::Alone;
        let mut group = Group::default();
        // They may go, but not in this group.
        let mut later = VecDeque::new();
        while group.works.len() < GROUP_LIMIT
            && let Some(next) = self.fresh.pop_front()
        {
            if !self.may_go(&next.claims, !later.is_empty()) {
                self.block(&next.claims);
                self.blocked.push_back(next);
            } else if alone && !group.works.is_empty() && !self.shares(&group, &next.claims) {
                self.block(&next.claims);
                later.push_back(next);
            } else {
                if alone {
                    self.grouped.insert(&next.claims);
                }
                group.push(next);
            }
        }
        for claims in group.claims.iter().filter(|_| alone) {
            self.grouped.remove(claims);
        }
        if !later.is_empty() {
            // Those that are blocked share no key with them, or came after.
            self.look_again(later);
        }
        if group.works.is_empty() {
            return None;
        }
        self.flying += 1;
        self.hold(&group.claims);
        Some(group)
    }

    /// The pipelines of a group from the `from`th on wait again, before all others.
    pub fn put_back(&mut self, group: &mut Group, from: usize) {
        self.let_go(&group.claims);
        let works = group.works.split_off(from);
        let claims = group.claims.split_off(from);
        let back = works.into_iter().zip(claims).map(|(work, claims)| Waiting { work, claims }).collect();
        self.hold(&group.claims);
        self.look_again(back);
    }

    /// A group is over.
    pub fn release(&mut self, held: &Held) {
        self.let_go(&held.0);
        self.flying -= 1;
        self.look_again(VecDeque::new());
    }

    /// Takes out all that waits.
    pub fn drain(&mut self) -> Vec<Waiting> {
        self.look_again(VecDeque::new());
        self.fresh.drain(..).collect()
    }

    /// Whether nobody else's claims are in the way; `later`: there are some besides those of the blocked.
    fn may_go(&self, claims: &Claims, later: bool) -> bool {
        let wait = later || !self.blocked.is_empty();
        if claims.is_all() {
            return self.flying == 0 && !wait;
        }
        let all = self.held_all || self.blocked_all;
        !(all || self.held.meets(claims) || wait && self.blocked_keys.meets(claims))
    }

    /// Whether a pipeline shares a key with a group that may go alone.
    fn shares(&self, group: &Group, claims: &Claims) -> bool {
        let all = claims.is_all() || group.claims.iter().any(Claims::is_all);
        all || self.grouped.meets(claims)
    }

    fn block(&mut self, claims: &Claims) {
        self.blocked_keys.insert(claims);
        self.blocked_all |= claims.is_all();
    }

    /// Everything that waits is looked at again, `first` before the others.
    fn look_again(&mut self, mut first: VecDeque<Waiting>) {
        for waiting in first.iter().chain(&self.blocked) {
            self.blocked_keys.remove(&waiting.claims);
        }
        self.blocked_all = false;
        first.append(&mut self.blocked);
        first.append(&mut self.fresh);
        self.fresh = first;
    }

    fn hold(&mut self, claims: &[Claims]) {
        for claims in claims {
            self.held.insert(claims);
            self.held_all |= claims.is_all();
        }
    }

    fn let_go(&mut self, claims: &[Claims]) {
        for claims in claims {
            self.held.remove(claims);
            // Whoever claims everything is alone on its way.
            self.held_all &= !claims.is_all();
        }
    }
}

#[cfg(test)]
mod tests;
