//! A record of the groups' log: a change of one group.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | kind: 1 the group's whole state, 2 a write, 3 the log was retired, 4 the replica was removed |
//! | 2 | 8 | group; little-endian, like all numbers |
//! | 10 | 1 | parts that follow: 1 vote, 2 base, 4 entries |
//! | | 24 | vote: term, replica, commit index |
//! | | 4 | base: its bytes; then these, as in `replica::Base` |
//! | | | entries: as in `entries.rs` |
//!
//! Kind 1 has a vote and a base, kind 3 a base, kind 4 no part. The parallel log's checksum covers a record.

use raft::eraftpb::{Entry, HardState};
use replica::{Base, BaseError, GroupId, TooOld};

use super::stored::StoredGroup;
use crate::entries::{entries, put_entries};
use crate::fields::{byte, counted, number, put_counted, put_number};

const VERSION: u8 = 1;
const STATE: u8 = 1;
const WRITE: u8 = 2;
const RETIRED: u8 = 3;
const REMOVED: u8 = 4;
const VOTE: u8 = 1;
const BASE: u8 = 2;
const ENTRIES: u8 = 4;

/// A change of a group: the contents of one record.
#[derive(Clone, PartialEq, Debug)]
pub enum Change {
    /// The group's whole state, for a new replica and where earlier records are to be retired.
    State(StoredGroup),
    /// The request of a `replica::Action::Persist`.
    Write {
        /// A snapshot took the log's place.
        base: Option<Base>,
        /// Entries; the first one replaces what the log has from there on.
        entries: Vec<Entry>,
        /// Term, vote and commit index.
        vote: Option<HardState>,
    },
    /// The request of a `replica::Action::Retire`: the log begins behind this base.
    Retired(Base),
    /// The process has no replica of the group any more.
    Removed,
}

impl Change {
    /// Changes a group's state, as a durable record of this change does.
    pub(crate) fn carry_out(self, stored: &mut StoredGroup) {
        match self {
            Change::State(state) => *stored = state,
            Change::Write { base, entries, vote } => {
                if let Some(base) = base {
                    *stored =
                        StoredGroup { base, entries: Vec::new(), vote: std::mem::take(&mut stored.vote) };
                }
                if let Some(first) = entries.first() {
                    stored.entries.truncate(stored.place(first.index));
                    stored.entries.extend(entries);
                }
                stored.vote = vote.unwrap_or_else(|| std::mem::take(&mut stored.vote));
            }
            Change::Retired(base) => {
                stored.entries.drain(..stored.place(base.index.0 + 1));
                stored.base = base;
            }
            Change::Removed => {}
        }
    }

    /// The record's bytes.
    pub(super) fn encode(&self, group: GroupId) -> Vec<u8> {
        match self {
            Change::State(StoredGroup { base, entries, vote }) => {
                encode(group, STATE, (Some(vote), Some(base), entries))
            }
            Change::Write { base, entries, vote } => {
                encode(group, WRITE, (vote.as_ref(), base.as_ref(), entries))
            }
            Change::Retired(base) => encode(group, RETIRED, (None, Some(base), &[])),
            Change::Removed => encode(group, REMOVED, (None, None, &[])),
        }
    }

    /// The group and the change that a record says.
    ///
    /// # Errors
    /// The fault of the record, for people.
    pub(super) fn decode(record: &[u8]) -> Result<(GroupId, Change), String> {
        match record.first() {
            Some(&VERSION) => {}
            Some(version) => {
                return Err(format!("it is of version {version}, and this program reads version {VERSION}"));
            }
            None => return Err("it is empty".into()),
        }
        let decoded = decode(record).ok_or_else(|| "its bytes are no record's".to_owned())?;
        decoded.map_err(|why| why.to_string())
    }
}

type Parts<'a> = (Option<&'a HardState>, Option<&'a Base>, &'a [Entry]);

fn encode(group: GroupId, kind: u8, (vote, base, entries): Parts<'_>) -> Vec<u8> {
    let mut bytes = vec![VERSION, kind];
    put_number(&mut bytes, group.0);
    let part = |there: bool, part: u8| if there { part } else { 0 };
    bytes.push(part(vote.is_some(), VOTE) | part(base.is_some(), BASE) | part(!entries.is_empty(), ENTRIES));
    if let Some(vote) = vote {
        [vote.term, vote.vote, vote.commit].iter().for_each(|number| put_number(&mut bytes, *number));
    }
    if let Some(base) = base {
        put_counted(&mut bytes, &base.encode());
    }
    put_entries(&mut bytes, entries);
    bytes
}

/// The group and the change of a record of this version; the reason why its base is not for this program; `None` for other bytes.
fn decode(record: &[u8]) -> Option<Result<(GroupId, Change), TooOld>> {
    let mut rest = record.get(1..)?;
    let kind = byte(&mut rest)?;
    let group = GroupId(number(&mut rest)?);
    let parts = byte(&mut rest)?;
    if parts & !(VOTE | BASE | ENTRIES) != 0 {
        return None;
    }
    let vote = if parts & VOTE == 0 {
        None
    } else {
        let (term, vote, commit) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
        Some(HardState { term, vote, commit, ..HardState::default() })
    };
    let base = match (parts & BASE != 0).then(|| counted(&mut rest).map(Base::decode)) {
        None => None,
        Some(base) => match base? {
            Ok(base) => Some(base),
            Err(BaseError::TooOld(why)) => return Some(Err(why)),
            Err(BaseError::Garbled) => return None,
        },
    };
    let entries = if parts & ENTRIES == 0 { Vec::new() } else { entries(&mut rest)? };
    let change = match (kind, vote, base) {
        (STATE, Some(vote), Some(base)) => Change::State(StoredGroup { base, entries, vote }),
        (WRITE, vote, base) => Change::Write { base, entries, vote },
        (RETIRED, None, Some(base)) if entries.is_empty() => Change::Retired(base),
        (REMOVED, None, None) if entries.is_empty() => Change::Removed,
        _ => return None,
    };
    rest.is_empty().then_some(Ok((group, change)))
}

/// A fuzz test of the decoder: bytes that decode to a record are the bytes of that record.
///
/// # Panics
/// Bytes decode to a record that encodes to other bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_record(bytes: &[u8]) {
    if let Ok((group, change)) = Change::decode(bytes) {
        assert_eq!(change.encode(group), bytes);
    }
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::EntryType;
    use replica::{Configuration, GroupState, Index, Office, ReplicaId, Role, Term, Version};

    use super::*;

    fn base(index: u64) -> Base {
        let members = Configuration::new([(ReplicaId(1), Role::Witness), (ReplicaId(2), Role::Backup)]);
        let offices = vec![Office { holder: ReplicaId(1), term: Term(2) }];
        let state = GroupState::first_version(members, Index(0), offices);
        Base { index: Index(index), term: Term(2), state }
    }

    fn entry(index: u64, data: &[u8]) -> Entry {
        let entry_type =
            if index.is_multiple_of(2) { EntryType::EntryNormal } else { EntryType::EntryConfChangeV2 };
        Entry { entry_type, index, term: 7, data: data.to_vec().into(), ..Entry::default() }
    }

    #[test]
    fn each_record_is_what_its_bytes_say_and_no_part_of_them_is_one() {
        let vote = HardState { term: 3, vote: 2, commit: 9, ..HardState::default() };
        let entries = vec![entry(8, b"value"), entry(9, b""), entry(10, &[0; 300])];
        let write = |base, entries, vote| Change::Write { base, entries, vote };
        for change in [
            Change::State(StoredGroup { base: base(7), entries: entries.clone(), vote: vote.clone() }),
            Change::State(StoredGroup { base: base(7), entries: Vec::new(), vote: vote.clone() }),
            write(None, entries.clone(), Some(vote.clone())),
            write(Some(base(7)), entries, Some(vote)),
            write(None, Vec::new(), None),
            Change::Retired(base(1 << 40)),
            Change::Removed,
        ] {
            let bytes = change.encode(GroupId(1 << 33));
            assert_eq!(Change::decode(&bytes), Ok((GroupId(1 << 33), change)));
            for len in 0..bytes.len() {
                assert!(Change::decode(&bytes[..len]).is_err(), "{len} of {bytes:?}");
            }
            assert!(Change::decode(&[&bytes[..], &[0]].concat()).is_err());
        }
        let of_newer_group = GroupState { version: Version(Version::NEWEST.0 + 1), ..base(7).state };
        let of_newer_group = Change::Retired(Base { state: of_newer_group, ..base(7) }).encode(GroupId(1));
        let refused = Change::decode(&of_newer_group).expect_err("of a newer version");
        assert!(refused.contains("start the newer program again"), "{refused}");
        let newer = Change::decode(&[2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect_err("newer");
        assert!(newer.contains("version 2"), "{newer}");
    }

    #[test]
    fn records_are_those_of_the_golden_files() {
        let vote = HardState { term: 3, vote: 2, commit: 9, ..HardState::default() };
        let entries = vec![entry(8, b"value"), entry(9, b"")];
        let state = StoredGroup { base: base(7), entries: entries.clone(), vote: vote.clone() };
        let golden = |name: &str, change: Change| {
            let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
            let file = format!("{directory}/{name}-v1.bin");
            if std::env::var_os("FURROW_BLESS").is_some() {
                std::fs::write(&file, change.encode(GroupId(5))).expect("writes");
            }
            let golden = std::fs::read(&file).expect("a golden file");
            assert_eq!(change.encode(GroupId(5)), golden, "{name}");
            assert_eq!(Change::decode(&golden), Ok((GroupId(5), change)), "{name}");
        };
        golden("state", Change::State(state));
        golden("write", Change::Write { base: None, entries, vote: Some(vote) });
        golden("retired", Change::Retired(base(12)));
        golden("removed", Change::Removed);
        let state = GroupState { version: Version(2), last_replica: ReplicaId(9), ..base(12).state };
        golden("retired-version-2", Change::Retired(Base { state, ..base(12) }));
    }

    /// A base in the middle of a change of members, with replicas that learn.
    fn joint_base() -> Base {
        let members = |ids: &[u64]| Configuration::new(ids.iter().map(|id| (ReplicaId(*id), Role::Backup)));
        let target = members(&[0x100, 0x203, 4]).with_learners([(ReplicaId(5), Role::Witness)]);
        let state = GroupState { members: members(&[1, 0x203]).joint_with(&target), ..base(7).state };
        Base { state, ..base(7) }
    }

    #[test]
    fn a_record_with_changed_bytes_is_another_record_or_none() {
        let entries = vec![entry(8, b"value"), entry(9, b"")];
        let state = StoredGroup { base: joint_base(), entries, vote: HardState::default() };
        let mut chance = units::SplitMix64::new(1);
        let mut below = |bound: usize| usize::try_from(chance.draw() % bound as u64).expect("small");
        let mut decoded = 0;
        for change in [Change::State(state), Change::Retired(joint_base()), Change::Retired(base(1))] {
            let record = change.encode(GroupId(5));
            for _ in 0..30_000 {
                let mut bytes = record.clone();
                for _ in 0..=below(3) {
                    let (from, to, len) = (below(bytes.len()), below(bytes.len()), 1 + below(9));
                    let part: Vec<u8> = match below(3) {
                        0 => bytes.iter().skip(from).take(len).copied().collect(),
                        1 => vec![u8::try_from(below(6)).expect("small")],
                        _ => vec![u8::try_from(below(256)).expect("a byte")],
                    };
                    bytes.iter_mut().skip(to).zip(part).for_each(|(byte, new)| *byte = new);
                }
                fuzz_record(&bytes);
                decoded += u32::from(Change::decode(&bytes).is_ok());
            }
        }
        assert!(decoded > 10_000, "{decoded}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(bytes: Vec<u8>) {
            fuzz_record(&bytes);
            fuzz_record(&[&[VERSION][..], &bytes].concat());
        }
    }
}
