//! A group's state, as the groups' log holds it.

use raft::eraftpb::{Entry, HardState};
use replica::Base;

/// The durable state of one replica of a group, but for its tables.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredGroup {
    /// The log's begin.
    pub base: Base,
    /// The log's entries, from the one behind the base on.
    pub entries: Vec<Entry>,
    /// Term, vote and commit index.
    pub vote: HardState,
}

impl StoredGroup {
    /// The state of a replica that has nothing yet.
    pub fn new(base: Base) -> StoredGroup {
        StoredGroup { base, entries: Vec::new(), vote: HardState::default() }
    }

    /// The place of the entry of that index in the list, which ends there if it has no such entry.
    pub(super) fn place(&self, index: u64) -> usize {
        let place = index.saturating_sub(self.base.index.0 + 1);
        usize::try_from(place).unwrap_or(usize::MAX).min(self.entries.len())
    }
}
