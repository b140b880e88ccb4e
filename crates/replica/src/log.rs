//! A group's log in memory, as Raft reads it.

use std::collections::BTreeSet;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use crate::base::{Base, GroupState, StateHistory, conf_state};
use crate::entry::{Body, lacks_value};
use crate::{Configuration, Index, OfficeEntry, Term, Version};

/// The entries of a log behind its base, with the vote and the group's state. What is durable is the caller's matter.
#[derive(Debug)]
pub(crate) struct GroupLog {
    /// The index before the first entry, and its term.
    base: (u64, u64),
    entries: Vec<Entry>,
    /// Bytes of the entries.
    bytes: u64,
    /// The indexes of commands without their values.
    lacking: BTreeSet<u64>,
    /// The last retired entry that lacked its value: 0 if there is none.
    retired_lacking: u64,
    vote: HardState,
    voters: ConfState,
    states: StateHistory,
    /// The index up to which the state is known: Raft gave the entries to apply.
    applied: Index,
}

impl GroupLog {
    /// A log with these entries behind `base`.
    pub(crate) fn new(base: &Base, entries: &[Entry], vote: HardState) -> GroupLog {
        let mut log = GroupLog {
            base: (base.index.0, base.term.0),
            entries: Vec::new(),
            bytes: 0,
            lacking: BTreeSet::new(),
            retired_lacking: 0,
            vote,
            voters: conf_state(&base.state.members),
            states: StateHistory::new(base.state.clone()),
            applied: base.index,
        };
        log.append(entries);
        log
    }

    /// Replaces the whole log by nothing behind `base`.
    pub(crate) fn begin_behind(&mut self, base: &Base) {
        let vote = std::mem::take(&mut self.vote);
        *self = GroupLog::new(base, &[], vote);
    }

    /// Drops the entries up to `index`, an applied one. Returns the base behind which the log begins from now on.
    pub(crate) fn retire(&mut self, index: Index) -> Base {
        let base = self.state_at(index);
        self.bytes -= bytes_of(self.entries.drain(..self.place(index.0 + 1)).as_slice());
        self.base = (index.0, base.term.0);
        let kept = self.lacking.split_off(&(index.0 + 1));
        let retired = std::mem::replace(&mut self.lacking, kept);
        self.retired_lacking = retired.last().copied().unwrap_or(self.retired_lacking);
        self.states.retire(index);
        base
    }

    /// Replaces the entries from the first of `entries` on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let place = self.place(first.index);
        self.bytes -= bytes_of(self.entries.get(place..).unwrap_or_default());
        self.bytes += bytes_of(entries);
        self.entries.truncate(place);
        self.lacking.split_off(&first.index);
        let lacking = entries.iter().filter(|entry| lacks_value(entry)).map(|entry| entry.index);
        self.lacking.extend(lacking);
        self.entries.extend_from_slice(entries);
    }

    /// The entry at `index` was applied, and led to these members, and this form of Raft's.
    pub(crate) fn change_members(&mut self, index: Index, members: &Configuration, voters: ConfState) {
        self.voters = voters;
        self.states.change_members(index, members);
    }

    /// The entry at `index` was applied, and is about offices.
    pub(crate) fn change_offices(&mut self, index: Index, entry: OfficeEntry) {
        self.states.change_offices(index, entry);
    }

    /// The entry at `index` was applied, and raises the version.
    pub(crate) fn change_version(&mut self, index: Index, version: Version) {
        self.states.change_version(index, version);
    }

    /// Raft gave the entries up to `index` to apply, and the group's state is that behind them.
    pub(crate) fn applied(&mut self, index: Index) {
        self.applied = index;
    }

    pub(crate) fn vote(&self) -> &HardState {
        &self.vote
    }

    pub(crate) fn set_vote(&mut self, vote: HardState) {
        self.vote = vote;
    }

    /// An entry's term, and what it says.
    pub(crate) fn entry(&self, index: Index) -> Option<(Term, Body)> {
        let entry = self.entries.get(self.place(index.0)).filter(|entry| entry.index == index.0)?;
        Some((Term(entry.term), Body::of(entry)?))
    }

    /// Drops the values of the entries from `first` to `last`.
    pub(crate) fn drop_values(&mut self, first: Index, last: Index) {
        let places = self.place(first.0)..self.place(last.0 + 1);
        for entry in self.entries.get_mut(places).unwrap_or_default() {
            if let Some(Body::Command(mut command)) = Body::of(entry)
                && command.value.take().is_some()
            {
                let whole = entry.data.len();
                entry.data = Body::Command(command).encode().into();
                self.bytes -= (whole - entry.data.len()) as u64;
                self.lacking.insert(entry.index);
            }
        }
    }

    /// Makes the commands of entries of earlier terms from `first` on empty, for the rule that is broken so.
    pub(crate) fn discard(&mut self, first: Index, term: Term) {
        let place = self.place(first.0);
        for entry in self.entries.get_mut(place..).unwrap_or_default() {
            if entry.term < term.0 && matches!(Body::of(entry), Some(Body::Command(_))) {
                self.bytes -= entry.data.len() as u64;
                self.lacking.remove(&entry.index);
                entry.data = Body::Empty.encode().into();
            }
        }
    }

    /// Bytes of the entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The index before the first entry.
    pub(crate) fn base(&self) -> Index {
        Index(self.base.0)
    }

    /// The last entry that lacks its value.
    pub(crate) fn last_lacking(&self) -> Option<Index> {
        self.lacking.last().copied().map(Index)
    }

    /// The last entry that the tables may have got without its value: it lacks the value, or lacked it when it was retired.
    pub(crate) fn last_given_without(&self) -> Option<Index> {
        let retired = Some(self.retired_lacking).filter(|index| *index > 0).map(Index);
        self.last_lacking().or(retired)
    }

    /// The base of a replica that needs entries which the log does not have any more, or not with their values. Its state names the replicas that joined last: Raft's snapshots name their receivers. Entries behind it have their values, once everything that lacks one is applied.
    pub(crate) fn snapshot_base(&self) -> Base {
        let lacking = self.last_lacking().unwrap_or_default().min(self.applied);
        let joined = self.states.at(self.applied).since;
        self.state_at(lacking.max(joined).max(self.base()))
    }

    /// The group's state behind the last entry that was applied.
    pub(crate) fn state(&self) -> Base {
        self.state_at(self.applied)
    }

    fn state_at(&self, index: Index) -> Base {
        let state: GroupState = self.states.at(index).clone();
        Base { index, term: Term(self.term(index.0).unwrap_or(self.base.1)), state }
    }

    /// The place of an entry in the list, which ends there if it has no such entry.
    fn place(&self, index: u64) -> usize {
        let place = index.saturating_sub(self.base.0 + 1);
        usize::try_from(place).unwrap_or(usize::MAX).min(self.entries.len())
    }
}

fn bytes_of(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| entry.data.len() as u64).sum()
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
        _context: GetEntriesContext,
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

    fn snapshot(&self, least: u64, _to: u64) -> raft::Result<Snapshot> {
        let base = self.snapshot_base();
        if base.index.0 < least.max(1) {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(base.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;

    fn command(index: u64, value: Option<&[u8]>) -> Entry {
        let command = Command { record: b"key".to_vec(), value: value.map(<[u8]>::to_vec) };
        Entry { index, term: 1, data: Body::Command(command).encode().into(), ..Entry::default() }
    }

    #[test]
    fn the_log_knows_its_bytes_and_which_value_the_tables_may_lack() {
        let base = Base::joining();
        let entries = [command(1, Some(b"one")), command(2, None), command(3, Some(b"three"))];
        let mut log = GroupLog::new(&base, &entries, HardState::default());
        assert_eq!((log.bytes(), log.last_given_without()), (3 * 8 + 8, Some(Index(2))));
        log.append(&[command(3, Some(b"3"))]);
        assert_eq!(log.bytes(), 3 * 8 + 4);
        log.applied(Index(3));
        log.retire(Index(2));
        // The tables have the entry without its value, although the log has it no more.
        assert_eq!((log.bytes(), log.last_lacking(), log.last_given_without()), (9, None, Some(Index(2))));
        log.drop_values(Index(3), Index(3));
        assert_eq!((log.bytes(), log.last_given_without()), (8, Some(Index(3))));
        log.begin_behind(&base);
        assert_eq!((log.bytes(), log.last_given_without()), (0, None));
    }
}
