//! The recovery of a group from the records of the groups' log.

use std::collections::BTreeMap;

use raft::eraftpb::{Entry, HardState};
use replica::Base;

use super::record::Change;
use super::stored::StoredGroup;

/// A group's state, as far as the records say that were read. Earlier records may be retired: what was needed of them is said again later.
#[derive(Debug, Default)]
pub(super) struct FoundGroup {
    base: Option<Base>,
    entries: BTreeMap<u64, Entry>,
    vote: Option<HardState>,
}

impl FoundGroup {
    /// The next record of the group.
    pub(super) fn take(&mut self, change: Change) {
        match change {
            Change::State(StoredGroup { base, entries, vote }) => {
                *self = FoundGroup { base: Some(base), vote: Some(vote), entries: BTreeMap::new() };
                self.append(entries);
            }
            Change::Write { base, entries, vote } => {
                if base.is_some() {
                    (self.base, self.entries) = (base, BTreeMap::new());
                }
                self.vote = vote.or(self.vote.take());
                self.append(entries);
            }
            Change::Retired(base) => {
                self.entries = self.entries.split_off(&(base.index.0 + 1));
                self.base = Some(base);
            }
            Change::Removed => *self = FoundGroup::default(),
        }
    }

    fn append(&mut self, entries: Vec<Entry>) {
        if let Some(first) = entries.first() {
            self.entries.split_off(&first.index);
        }
        self.entries.extend(entries.into_iter().map(|entry| (entry.index, entry)));
    }

    /// The group's state after the last record; `None` if the replica was removed.
    ///
    /// # Errors
    /// The part of the group's state that no record has, for people.
    pub(super) fn end(self) -> Result<Option<StoredGroup>, String> {
        let FoundGroup { base, entries, vote } = self;
        let (base, vote) = match (base, vote) {
            (Some(base), Some(vote)) => (base, vote),
            (None, None) if entries.is_empty() => return Ok(None),
            _ => return Err("no record says the log's begin, or the vote".into()),
        };
        let wanted = base.index.0 + 1..=base.index.0 + entries.len() as u64;
        if !entries.keys().copied().eq(wanted.clone()) {
            let (first, last) = (entries.keys().next(), entries.keys().next_back());
            return Err(format!("entries {first:?} to {last:?} were found where {wanted:?} are wanted"));
        }
        Ok(Some(StoredGroup { base, entries: entries.into_values().collect(), vote }))
    }
}
