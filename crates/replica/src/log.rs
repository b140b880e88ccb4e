//! A group's log in memory, as Raft reads it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::entry::{Body, lacks_value};
use crate::{Configuration, Index, ReplicaId, Term};

/// Entries that Raft wants to send, and that lack values.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub context: GetEntriesContext,
    entries: Range<u64>,
    /// The caller was asked to get the values.
    is_told: bool,
}

/// The entries of a log above the index up to which tables hold everything, with the vote and the voters. What is durable is the caller's matter.
#[derive(Debug)]
pub(crate) struct GroupLog {
    /// The index before the first entry, and its term.
    base: (u64, u64),
    entries: Vec<Entry>,
    /// The indexes of commands without their values.
    lacking: BTreeSet<u64>,
    vote: HardState,
    voters: ConfState,
    wanted: RefCell<Vec<Wanted>>,
}

impl GroupLog {
    /// A log with these entries behind `base`.
    pub(crate) fn new(
        voters: &Configuration,
        base: (Index, Term),
        entries: &[Entry],
        vote: HardState,
    ) -> GroupLog {
        let ids = |ids: &mut dyn Iterator<Item = ReplicaId>| ids.map(|id| id.0).collect();
        let voters = ConfState {
            voters: ids(&mut voters.voters().map(|(id, _)| id)),
            voters_outgoing: ids(&mut voters.outgoing()),
            learners: ids(&mut voters.learners().map(|(id, _)| id)),
            ..ConfState::default()
        };
        let mut log = GroupLog {
            base: (base.0.0, base.1.0),
            entries: Vec::new(),
            lacking: BTreeSet::new(),
            vote,
            voters,
            wanted: RefCell::default(),
        };
        log.append(entries);
        log
    }

    /// Replaces the entries from the first of `entries` on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        self.entries.truncate(self.place(first.index));
        self.lacking.split_off(&first.index);
        let lacking = entries.iter().filter(|entry| lacks_value(entry)).map(|entry| entry.index);
        self.lacking.extend(lacking);
        self.entries.extend_from_slice(entries);
    }

    /// Raft's configuration after an applied change of members.
    pub(crate) fn set_voters(&mut self, voters: ConfState) {
        self.voters = voters;
    }

    pub(crate) fn set_vote(&mut self, vote: HardState) {
        self.vote = vote;
    }

    /// An entry's term, and what it says.
    pub(crate) fn entry(&self, index: Index) -> Option<(Term, Body)> {
        let entry = self.entries.get(self.place(index.0)).filter(|entry| entry.index == index.0)?;
        Some((Term(entry.term), Body::of(entry)?))
    }

    /// Drops the values of the entries from `first` to `last`. True if there was one.
    pub(crate) fn drop_values(&mut self, first: Index, last: Index) -> bool {
        let places = self.place(first.0)..self.place(last.0 + 1);
        let mut dropped = false;
        for entry in self.entries.get_mut(places).unwrap_or_default() {
            if let Some(Body::Command(mut command)) = Body::of(entry)
                && command.value.take().is_some()
            {
                entry.data = Body::Command(command).encode().into();
                self.lacking.insert(entry.index);
                dropped = true;
            }
        }
        dropped
    }

    /// Gives an entry its value, if the entry is of that term and lacks one.
    pub(crate) fn restore_value(&mut self, (index, term): (Index, Term), value: Vec<u8>) {
        let place = self.place(index.0);
        let is_asked = |entry: &&mut Entry| (entry.index, entry.term) == (index.0, term.0);
        if let Some(entry) = self.entries.get_mut(place).filter(is_asked)
            && let Some(Body::Command(mut command)) = Body::of(entry)
        {
            command.value.get_or_insert(value);
            entry.data = Body::Command(command).encode().into();
            self.lacking.remove(&index.0);
        }
    }

    /// The entries that Raft wanted to send, lacking values, since the last call.
    pub(crate) fn take_wanted(&self) -> Vec<Wanted> {
        std::mem::take(&mut self.wanted.borrow_mut())
    }

    /// The entries that Raft wants to send and that lack their values: each once, until values come.
    pub(crate) fn wanted_entries(&self) -> Vec<(Index, Term)> {
        let mut wanted = self.wanted.borrow_mut();
        let mut lacking = BTreeSet::new();
        for asked in wanted.iter_mut().filter(|asked| !asked.is_told) {
            asked.is_told = true;
            lacking.extend(self.lacking.range(asked.entries.clone()));
        }
        let entries = lacking.into_iter().filter_map(|index| self.entries.get(self.place(index)));
        entries.map(|entry| (Index(entry.index), Term(entry.term))).collect()
    }

    /// The index before the first entry.
    pub(crate) fn base(&self) -> Index {
        Index(self.base.0)
    }

    /// True if each entry has its value.
    pub(crate) fn has_all_values(&self) -> bool {
        self.lacking.is_empty()
    }

    /// The place of an entry in the list, which ends there if it has no such entry.
    fn place(&self, index: u64) -> usize {
        let place = index.saturating_sub(self.base.0 + 1);
        usize::try_from(place).unwrap_or(usize::MAX).min(self.entries.len())
    }
}

impl Storage for GroupLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.vote.clone(), self.voters.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let asked = self.entries.get(self.place(low)..self.place(high)).unwrap_or_default();
        let (mut found, mut bytes) = (Vec::new(), 0);
        let most = max_size.into().unwrap_or(u64::MAX);
        for entry in asked {
            bytes += entry.data.len() as u64;
            if bytes > most && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        let entries = low..low + found.len() as u64;
        if context.can_async() && self.lacking.range(entries.clone()).next().is_some() {
            let mut wanted = self.wanted.borrow_mut();
            // Raft asks for the same replica again with each proposal and heartbeat. The context's text names the replica.
            let same = |asked: &Wanted| {
                asked.entries == entries && format!("{:?}", asked.context) == format!("{context:?}")
            };
            if !wanted.iter().any(same) {
                wanted.push(Wanted { context, entries, is_told: false });
            }
            return Err(Error::Store(StorageError::LogTemporarilyUnavailable));
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match index {
            _ if index == self.base.0 => Ok(self.base.1),
            _ if index < self.base.0 => Err(Error::Store(StorageError::Compacted)),
            _ => {
                let entry = self.entries.get(self.place(index));
                entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
            }
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + self.entries.len() as u64)
    }

    fn snapshot(&self, _index: u64, _to: u64) -> raft::Result<Snapshot> {
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}
