//! The state of a group at the index before its log's first entry.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 8 | index; little-endian, like all numbers |
//! | 8 | 8 | term of the entry at the index |
//! | 16 | 8 | index of the last change of members |
//! | 24 | 4 | bytes of the voters and learners |
//! | 28 | | voters and learners, as in an entry of kind 5, behind the kind |
//! | | 4 | bytes of the voters before the change under way |
//! | | | these voters, in the same form; no bytes while no change is under way |
//! | | 16 each | standing offices, oldest first: holder, term |
//!
//! From version 2 on these bytes lie behind:
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 8 | 255 each, which no index has |
//! | 8 | 2 | version, 2 or later; little-endian, like all numbers |
//! | 10 | 8 | the highest number that a replica of the group had since the version was raised |

use std::collections::VecDeque;

use raft::eraftpb::{ConfState, Snapshot};

use crate::entry::{decode_members, encode_members};
use crate::{Configuration, Index, Office, OfficeEntry, ReplicaId, Term, TooOld, Version};

/// The state of a group at an index of its log, as far as `replica` keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupState {
    /// The members that decide.
    pub members: Configuration,
    /// The index of the last change of members.
    pub since: Index,
    /// Committed offices whose holders are not relieved, oldest first.
    pub offices: Vec<Office>,
    /// The group's version.
    pub version: Version,
    /// From version 2 on: the highest number that a replica of the group had since the version was raised. 0 before.
    pub last_replica: ReplicaId,
}

impl GroupState {
    /// The state at version 1, with these members of the change at `since`, and these offices.
    pub fn first_version(members: Configuration, since: Index, offices: Vec<Office>) -> GroupState {
        GroupState { members, since, offices, version: Version::FIRST, last_replica: ReplicaId(0) }
    }

    /// Members have come, or the version was raised.
    fn note_last_replica(&mut self) {
        if self.version >= Version::LAST_REPLICA {
            self.last_replica = self.last_replica.max(self.members.last_replica());
        }
    }
}

/// The index before the first entry of a log, and the group's state there. Also what a snapshot says beside the tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Base {
    /// The index before the log's first entry: 1 for a new group's first members, 0 for a replica that joins.
    pub index: Index,
    /// The term of the entry at the index.
    pub term: Term,
    /// The group's state at the index.
    pub state: GroupState,
}

/// The begin of a base of version 2 or later.
const VERSIONED: [u8; 8] = [0xff; 8];

/// The reason why bytes are no base.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BaseError {
    /// The base is of a version that this program does not speak.
    #[error(transparent)]
    TooOld(#[from] TooOld),
    /// The bytes are no base's.
    #[error("its bytes are no base of a group's log")]
    Garbled,
}

/// The index of a new group's base.
const FIRST: Index = Index(1);

impl Base {
    /// The base of a new group's first members. The first of its witnesses is in office from the beginning on.
    ///
    /// Its index is 1, and that of [`Base::joining`] is 0: no log has the entry 1, so that a replica that joins begins with a snapshot, and knows the members by it.
    pub fn first(members: Configuration, primary: ReplicaId) -> Base {
        let offices = vec![Office { holder: primary, term: Term(0) }];
        let state = GroupState::first_version(members, FIRST, offices);
        Base { index: FIRST, term: Term(1), state }
    }

    /// The base of a replica that joins a group which is there already. The replica knows no members: it stands for no election, and votes for nobody until its leader has brought it up.
    pub fn joining() -> Base {
        let state = GroupState::first_version(Configuration::default(), Index(0), Vec::new());
        Base { index: Index(0), term: Term(0), state }
    }

    /// The bytes of the base: the table in this file.
    ///
    /// # Panics
    /// 65,536 members.
    pub fn encode(&self) -> Vec<u8> {
        let GroupState { members, since, offices, version, last_replica } = &self.state;
        let outgoing = Configuration::new(members.outgoing());
        let outgoing = if members.is_joint() { encode_members(&outgoing) } else { Vec::new() };
        let mut bytes = Vec::new();
        if *version > Version::FIRST {
            bytes.extend(VERSIONED);
            bytes.extend(version.0.to_le_bytes());
            bytes.extend(last_replica.0.to_le_bytes());
        }
        for number in [self.index.0, self.term.0, since.0] {
            bytes.extend(number.to_le_bytes());
        }
        for members in [encode_members(members), outgoing] {
            bytes.extend(u32::try_from(members.len()).expect("members are few").to_le_bytes());
            bytes.extend(members);
        }
        for office in offices {
            bytes.extend(office.holder.0.to_le_bytes());
            bytes.extend(office.term.0.to_le_bytes());
        }
        bytes
    }

    /// The base that the bytes encode.
    ///
    /// # Errors
    /// A base of a version that this program does not speak, whatever follows; bytes that are none.
    pub fn decode(bytes: &[u8]) -> Result<Base, BaseError> {
        let Some(versioned) = bytes.strip_prefix(&VERSIONED) else {
            return decode_first(bytes).ok_or(BaseError::Garbled);
        };
        let (version, rest) = versioned.split_first_chunk().ok_or(BaseError::Garbled)?;
        let version = Version(u16::from_le_bytes(*version));
        TooOld::check(version, Version::NEWEST)?;
        decode_versioned(version, rest).ok_or(BaseError::Garbled)
    }

    /// True if the replica holds an office, and so keeps every value.
    pub(crate) fn keeps_values(&self, replica: ReplicaId) -> bool {
        self.state.offices.iter().any(|office| office.holder == replica)
    }

    /// Raft's snapshot that stands for this base.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { data: self.encode().into(), ..Snapshot::default() };
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (self.index.0, self.term.0);
        metadata.set_conf_state(conf_state(&self.state.members));
        snapshot
    }

    /// The base that Raft's snapshot stands for; `None` if its parts contradict each other.
    pub fn of_snapshot(snapshot: &Snapshot) -> Option<Base> {
        let base = Base::decode(&snapshot.data).ok()?;
        (base.snapshot().get_metadata() == snapshot.get_metadata()).then_some(base)
    }
}

/// A base of version 1.
fn decode_first(bytes: &[u8]) -> Option<Base> {
    let (index, rest) = number(bytes)?;
    let (term, rest) = number(rest)?;
    let (since, rest) = number(rest)?;
    let (members, rest) = counted(rest)?;
    let (outgoing, rest) = counted(rest)?;
    let mut members = decode_members(members)?;
    if !outgoing.is_empty() {
        let outgoing = decode_members(outgoing)?;
        let has_learners = outgoing.learners().len() > 0;
        members = outgoing.joint_with(&members);
        if has_learners || !members.is_joint() {
            return None;
        }
    }
    let (offices, rest) = rest.as_chunks::<16>();
    let offices = offices.iter().filter_map(|bytes| {
        let (holder, rest) = number(bytes)?;
        let (term, _) = number(rest)?;
        Some(Office { holder: ReplicaId(holder), term: Term(term) })
    });
    let state = GroupState::first_version(members, Index(since), offices.collect());
    (rest.is_empty() && since <= index).then_some(Base { index: Index(index), term: Term(term), state })
}

/// A base of a later version, behind its version.
fn decode_versioned(version: Version, rest: &[u8]) -> Option<Base> {
    let (last_replica, rest) = number(rest)?;
    let mut base = decode_first(rest)?;
    base.state.version = version;
    base.state.last_replica = ReplicaId(last_replica);
    let is_last = base.state.members.last_replica() <= base.state.last_replica;
    (version > Version::FIRST && is_last).then_some(base)
}

/// Raft's form of the members.
pub(crate) fn conf_state(members: &Configuration) -> ConfState {
    let ids = |ids: &mut dyn Iterator<Item = ReplicaId>| ids.map(|id| id.0).collect();
    ConfState {
        voters: ids(&mut members.voters().map(|(id, _)| id)),
        voters_outgoing: ids(&mut members.outgoing().map(|(id, _)| id)),
        learners: ids(&mut members.learners().map(|(id, _)| id)),
        ..ConfState::default()
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// The group's state at each index from the log's base to the last applied entry: any of them may become the next base.
#[derive(Debug)]
pub(crate) struct StateHistory {
    base: GroupState,
    /// The states from an index on, behind the base.
    changes: VecDeque<(Index, GroupState)>,
}

impl StateHistory {
    pub(crate) fn new(base: GroupState) -> StateHistory {
        StateHistory { base, changes: VecDeque::new() }
    }

    fn latest(&self) -> &GroupState {
        self.changes.back().map_or(&self.base, |(_, state)| state)
    }

    /// The entry at `index` was applied, and is about offices.
    pub(crate) fn change_offices(&mut self, index: Index, entry: OfficeEntry) {
        let mut state = self.latest().clone();
        entry.change(&mut state.offices);
        self.changes.push_back((index, state));
    }

    /// The entry at `index` was applied, and led to these members.
    pub(crate) fn change_members(&mut self, index: Index, members: &Configuration) {
        let mut state = GroupState { members: members.clone(), since: index, ..self.latest().clone() };
        state.note_last_replica();
        self.changes.push_back((index, state));
    }

    /// The entry at `index` was applied, and raises the group to this version.
    pub(crate) fn change_version(&mut self, index: Index, version: Version) {
        let mut state = self.latest().clone();
        state.version = state.version.max(version);
        state.note_last_replica();
        self.changes.push_back((index, state));
    }

    /// The state at `index`, an applied one at or above the base.
    pub(crate) fn at(&self, index: Index) -> &GroupState {
        let last = self.changes.iter().rev().find(|(since, _)| *since <= index);
        last.map_or(&self.base, |(_, state)| state)
    }

    /// The log begins behind `index` from now on.
    pub(crate) fn retire(&mut self, index: Index) {
        self.base = self.at(index).clone();
        self.changes.retain(|(since, _)| *since > index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn members(ids: &[(u64, Role)]) -> Configuration {
        Configuration::new(ids.iter().map(|(id, role)| (ReplicaId(*id), *role)))
    }

    fn office(holder: u64, term: u64) -> Office {
        Office { holder: ReplicaId(holder), term: Term(term) }
    }

    fn three() -> Configuration {
        members(&[(1, Role::Witness), (2, Role::Backup), (3, Role::Witness)])
    }

    #[test]
    fn a_base_is_what_its_bytes_say_and_no_part_of_them_is_one() {
        let four = members(&[(1, Role::Witness), (2, Role::Backup), (4, Role::Witness)]);
        let learning = three().with_learners([(ReplicaId(4), Role::Witness)]);
        for members in [three(), learning, three().joint_with(&four)] {
            for offices in [vec![], vec![office(1, 0), office(3, 1 << 40)]] {
                let first = GroupState::first_version(members.clone(), Index(7), offices);
                let (version, last_replica) = (Version(2), ReplicaId(1 << 33));
                for state in [first.clone(), GroupState { version, last_replica, ..first }] {
                    let base = Base { index: Index(9), term: Term(3), state };
                    let bytes = base.encode();
                    assert_eq!(Base::decode(&bytes), Ok(base.clone()));
                    assert_eq!(Base::of_snapshot(&base.snapshot()), Some(base.clone()));
                    for len in 0..bytes.len() {
                        assert_ne!(Base::decode(&bytes[..len]), Ok(base.clone()), "{len} of {bytes:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_snapshot_that_contradicts_itself_is_none() {
        let mut snapshot = Base::first(three(), ReplicaId(1)).snapshot();
        snapshot.mut_metadata().index = 5;
        assert_eq!(Base::of_snapshot(&snapshot), None);
        let mut late = Base::first(three(), ReplicaId(1));
        late.state.since = Index(2);
        assert_eq!(Base::decode(&late.encode()), Err(BaseError::Garbled));
        let version = Version(2);
        let low =
            GroupState { version, last_replica: ReplicaId(2), ..Base::first(three(), ReplicaId(1)).state };
        let low = Base { state: low, ..Base::first(three(), ReplicaId(1)) };
        assert_eq!(Base::decode(&low.encode()), Err(BaseError::Garbled), "replica 3 is a member");
    }

    #[test]
    fn a_base_of_a_newer_version_is_named_whatever_follows() {
        let newer = Version(Version::NEWEST.0 + 1);
        let refused = TooOld { version: newer, speaks: Version::NEWEST };
        let bytes = [&VERSIONED[..], &newer.0.to_le_bytes(), b"what that version has"].concat();
        assert_eq!(Base::decode(&bytes), Err(BaseError::TooOld(refused)));
        let first = [&VERSIONED[..], &1_u16.to_le_bytes(), &[0; 40]].concat();
        assert_eq!(Base::decode(&first), Err(BaseError::Garbled), "version 1 has no number");
    }

    #[test]
    fn the_highest_number_of_a_replica_stays_when_that_replica_goes() {
        let mut history = StateHistory::new(Base::first(three(), ReplicaId(1)).state);
        history
            .change_members(Index(3), &members(&[(1, Role::Witness), (2, Role::Backup), (9, Role::Witness)]));
        history.change_members(Index(4), &three());
        assert_eq!(history.at(Index(4)).last_replica, ReplicaId(0), "version 1 has no such number");
        history.change_version(Index(5), Version(2));
        assert_eq!(history.at(Index(5)).last_replica, ReplicaId(3));
        history.change_members(Index(6), &three().with_learners([(ReplicaId(4), Role::Witness)]));
        history.change_members(Index(7), &three());
        history.change_version(Index(8), Version(1));
        assert_eq!(
            (history.at(Index(8)).version, history.at(Index(8)).last_replica),
            (Version(2), ReplicaId(4))
        );
    }

    #[test]
    fn the_state_at_an_index_is_that_of_the_last_change_before_it() {
        let first = Base::first(three(), ReplicaId(1)).state;
        let mut history = StateHistory::new(first.clone());
        history.change_offices(Index(4), OfficeEntry::Taken(office(3, 2)));
        history.change_members(Index(6), &members(&[(2, Role::Backup), (3, Role::Witness)]));
        history.change_offices(Index(8), OfficeEntry::Relieved(office(1, 0)));
        for _ in 0..2 {
            assert_eq!(history.at(Index(5)).offices, [office(1, 0), office(3, 2)]);
            assert_eq!(history.at(Index(7)).since, Index(6));
            assert_eq!(history.at(Index(9)).offices, [office(3, 2)]);
            history.retire(Index(5));
        }
        history.retire(Index(9));
        assert_eq!((history.at(Index(9)).since, history.changes.len()), (Index(6), 0));
    }
}
