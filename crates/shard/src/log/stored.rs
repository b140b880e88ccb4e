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
}
