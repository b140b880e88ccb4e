//! The contents of an entry of a group's log, and their bytes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | kind: 1 an office taken, 2 a holder relieved, 3 a command with its value, 4 a command without, 5 members, 6 a version |
//! | 1 | 8, 8 | kinds 1 and 2: the holder, the term of its office; little-endian |
//! | 1 | 4 | kinds 3 and 4: bytes of the record; little-endian |
//! | 5 | | kinds 3 and 4: the record; kind 3: the value behind it |
//!
//! | 1 | 2, 2 | kind 5: number of voters, of learners; little-endian |
//! | 5 | 9 each | kind 5: voters, then learners: number, little-endian; role: 1 backup, 2 witness |
//! | 1 | 2 | kind 6: the version; little-endian |
//!
//! Raft's empty entry has no bytes. Members lie in the context of Raft's entry that changes its configuration; the entry that ends a change has none.

use protobuf::Message as _;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType};

use crate::{Configuration, Office, OfficeEntry, ReplicaId, Role, Term, Version};

const TAKEN: u8 = 1;
const RELIEVED: u8 = 2;
const WITH_VALUE: u8 = 3;
const WITHOUT_VALUE: u8 = 4;
const MEMBERS: u8 = 5;
const VERSION: u8 = 6;

const BACKUP: u8 = 1;
const WITNESS: u8 = 2;

/// A command: what it changes.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Command {
    /// The command without its value: keys, kinds, expiry. Every replica keeps the record. `replica` does not read it.
    pub record: Vec<u8>,
    /// The command's value, which witnesses drop once the entry is stable. `None` where the value was dropped.
    pub value: Option<Vec<u8>>,
}

/// The contents of an entry of a group's log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// Raft's entry at the begin of a term.
    Empty,
    /// An office is taken, or its holder relieved.
    Office(OfficeEntry),
    /// A command.
    Command(Command),
    /// The group begins to change to these members: until the change ends, those before decide too.
    Members(Configuration),
    /// The change of members ends.
    Settled,
    /// The group is at this version from here on, or stays at a later one.
    Version(Version),
}

impl Body {
    /// The contents of a Raft entry; `None` if its bytes are no entry's.
    pub fn of(entry: &Entry) -> Option<Body> {
        if entry.entry_type == EntryType::EntryNormal {
            return Body::decode(&entry.data);
        }
        match Body::decode(&change(entry)?.context)? {
            Body::Empty => Some(Body::Settled),
            members @ Body::Members(_) => Some(members),
            _ => None,
        }
    }

    /// The entry's bytes.
    ///
    /// # Panics
    /// A record of 4 GiB or more, 65,536 members.
    pub fn encode(&self) -> Vec<u8> {
        let office = |kind: u8, office: &Office| {
            [&[kind][..], &office.holder.0.to_le_bytes(), &office.term.0.to_le_bytes()].concat()
        };
        match self {
            Body::Empty | Body::Settled => Vec::new(),
            Body::Members(members) => [&[MEMBERS][..], &encode_members(members)].concat(),
            Body::Version(version) => [&[VERSION][..], &version.0.to_le_bytes()].concat(),
            Body::Office(OfficeEntry::Taken(taken)) => office(TAKEN, taken),
            Body::Office(OfficeEntry::Relieved(relieved)) => office(RELIEVED, relieved),
            Body::Command(Command { record, value }) => {
                let len = u32::try_from(record.len()).expect("a record is shorter than 4 GiB");
                let kind = if value.is_some() { WITH_VALUE } else { WITHOUT_VALUE };
                [&[kind][..], &len.to_le_bytes(), record, value.as_deref().unwrap_or_default()].concat()
            }
        }
    }

    /// The contents that the bytes encode; `None` if they encode none.
    pub fn decode(bytes: &[u8]) -> Option<Body> {
        let Some((kind, rest)) = bytes.split_first() else { return Some(Body::Empty) };
        if let TAKEN | RELIEVED = *kind {
            let (holder, rest) = rest.split_first_chunk()?;
            let (term, rest) = rest.split_first_chunk()?;
            let office = Office {
                holder: ReplicaId(u64::from_le_bytes(*holder)),
                term: Term(u64::from_le_bytes(*term)),
            };
            let entry =
                if *kind == TAKEN { OfficeEntry::Taken(office) } else { OfficeEntry::Relieved(office) };
            return rest.is_empty().then_some(Body::Office(entry));
        }
        if *kind == MEMBERS {
            return decode_members(rest).map(Body::Members);
        }
        if *kind == VERSION {
            let version = u16::from_le_bytes(rest.try_into().ok()?);
            return Some(Body::Version(Version(version)));
        }
        let (len, rest) = rest.split_first_chunk()?;
        let (record, value) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        let value = match *kind {
            WITH_VALUE => Some(value.to_vec()),
            WITHOUT_VALUE if value.is_empty() => None,
            _ => return None,
        };
        Some(Body::Command(Command { record: record.to_vec(), value }))
    }

    /// True unless the entry's value was dropped.
    pub fn has_value(&self) -> bool {
        !matches!(self, Body::Command(Command { value: None, .. }))
    }
}

/// True if the entry's value was dropped. Looks at the kind alone, since entries pass here on the path of a write.
pub(crate) fn lacks_value(entry: &Entry) -> bool {
    entry.entry_type == EntryType::EntryNormal && entry.data.first() == Some(&WITHOUT_VALUE)
}

/// True if the entry changes the group's state: offices, members or the version.
pub(crate) fn changes_state(entry: &Entry) -> bool {
    entry.entry_type != EntryType::EntryNormal
        || matches!(entry.data.first(), Some(&(TAKEN | RELIEVED | VERSION)))
}

/// The version to which the entry raises the group.
pub(crate) fn raises_to(entry: &Entry) -> Option<Version> {
    if !changes_state(entry) {
        return None;
    }
    if let Some(Body::Version(version)) = Body::of(entry) { Some(version) } else { None }
}

/// The change of Raft's configuration that the entry holds.
pub(crate) fn change(entry: &Entry) -> Option<ConfChangeV2> {
    let mut change = ConfChangeV2::default();
    change.merge_from_bytes(&entry.data).ok()?;
    Some(change)
}

pub(crate) fn encode_members(members: &Configuration) -> Vec<u8> {
    let count = |len: usize| u16::try_from(len).expect("fewer than 65,536 members").to_le_bytes();
    let mut bytes = Vec::new();
    bytes.extend(count(members.voters().len()));
    bytes.extend(count(members.learners().len()));
    for (id, role) in members.voters().chain(members.learners()) {
        bytes.extend(id.0.to_le_bytes());
        bytes.push(if role == Role::Backup { BACKUP } else { WITNESS });
    }
    bytes
}

pub(crate) fn decode_members(bytes: &[u8]) -> Option<Configuration> {
    let (voters, rest) = bytes.split_first_chunk()?;
    let (learners, mut rest) = rest.split_first_chunk()?;
    let (voters, learners) = (u16::from_le_bytes(*voters), u16::from_le_bytes(*learners));
    let mut members = Vec::new();
    while let Some((id, (role, behind))) =
        rest.split_first_chunk().and_then(|(id, behind)| Some((id, behind.split_first()?)))
    {
        let role = match *role {
            BACKUP => Role::Backup,
            WITNESS => Role::Witness,
            _ => return None,
        };
        members.push((ReplicaId(u64::from_le_bytes(*id)), role));
        rest = behind;
    }
    let behind = members.split_off(usize::from(voters).min(members.len()));
    // The order of numbers is the only one: no replica is named twice, and equal members have equal bytes.
    let is_ordered =
        [&members, &behind].iter().all(|part| part.is_sorted_by(|(one, _), (next, _)| one < next));
    let decoded = Configuration::new(members).with_learners(behind);
    let counts = (decoded.voters().len(), decoded.learners().len());
    let is_whole = rest.is_empty()
        && is_ordered
        && counts == (voters.into(), learners.into())
        && decoded.learners().all(|(id, _)| decoded.role(id).is_none());
    is_whole.then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_what_its_bytes_say_and_no_part_of_them_is_one() {
        let office = Office { holder: ReplicaId(7), term: Term(300) };
        let command = |value| Body::Command(Command { record: b"key".to_vec(), value });
        for body in [
            Body::Empty,
            Body::Office(OfficeEntry::Taken(office)),
            Body::Office(OfficeEntry::Relieved(office)),
            Body::Version(Version(0x0102)),
            command(Some(b"value".to_vec())),
            command(Some(Vec::new())),
            command(None),
            Body::Members(Configuration::new([
                (ReplicaId(1), Role::Witness),
                (ReplicaId(1 << 40), Role::Backup),
            ])),
            Body::Members(
                Configuration::new([(ReplicaId(1), Role::Witness)])
                    .with_learners([(ReplicaId(2), Role::Backup)]),
            ),
        ] {
            let bytes = body.encode();
            assert_eq!(Body::decode(&bytes), Some(body.clone()), "{bytes:?}");
            let entry = Entry { data: bytes.clone().into(), ..Entry::default() };
            assert_eq!(lacks_value(&entry), !body.has_value(), "{body:?}");
            assert_eq!(changes_state(&entry), matches!(body, Body::Office(_) | Body::Version(_)), "{body:?}");
            for len in 1..bytes.len() {
                assert_ne!(Body::decode(&bytes[..len]), Some(body.clone()), "{len} of {bytes:?}");
            }
        }
        let member = |id: u8| [id, 0, 0, 0, 0, 0, 0, 0, BACKUP];
        let twice = [&[MEMBERS, 2, 0, 0, 0][..], &[7, 0, 0, 0, 0, 0, 0, 0, BACKUP].repeat(2)].concat();
        let second_first = [&[MEMBERS, 2, 0, 0, 0][..], &member(8), &member(7)].concat();
        let both = [&[MEMBERS, 1, 0, 1, 0][..], &member(7), &member(7)].concat();
        for bad in [
            &[0][..],
            &[7, 0, 0, 0, 0],
            &[6, 0],
            &[6, 0, 0, 0],
            &[5, 1, 0, 0, 0],
            &twice,
            &second_first,
            &both,
            &[4, 0, 0, 0, 0, 1],
            &[1, 0],
            &[3, 255, 255, 255, 255, 1],
        ] {
            assert_eq!(Body::decode(bad), None, "{bad:?}");
        }
    }
}
