//! The bytes of a message of the replicated log, behind its kind and its addresses.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 1 | flags: 1 Raft rejects, 2 a vote for whom the leader hands over to, 4 the sender's tables are whole, 8 `sent` follows, 16 entries follow, 32 a question for the commit index, or its answer, follows, 64 the sender's drive nears full |
//! | 1 | 8 | term; little-endian, like all numbers |
//! | 9 | 8 | stable index |
//! | 17 | 8 each | the numbers of this kind of message, in the order of the second table |
//! | | 2 | kind 8: the group's version; kind 9: the newest version that the sender speaks; 0 for none |
//! | | 8 | flag 8: when the heartbeat was sent |
//! | | 8 | flag 32: the question's number |
//! | | 8 | flag 32 in a heartbeat: the answer, an index |
//! | | | flag 16: entries, as in `entries.rs` |
//! | | 4 | a snapshot: bytes of its base; then these, as in `replica::Base` |
//!
//! | kind | | numbers | flags besides 4 and 8 |
//! |---|---|---|---|
//! | 1 | entries | index and term of the entry before them, commit | 16 |
//! | 2 | answer to 1 and 7 | index, its term, commit, the index to go on from | 1 |
//! | 3 | request for a vote | last index and term, commit and its term | 2 |
//! | 4 | answer to 3 | commit and its term | 1 |
//! | 5 | request before a vote | as 3 | |
//! | 6 | answer to 5 | commit and its term | 1 |
//! | 7 | snapshot | | |
//! | 8 | heartbeat | commit | 32 |
//! | 9 | answer to 8 | commit | 32, 64 |
//! | 10 | stand for election now | | |
//!
//! Replicas send no other messages of Raft, and no other fields.

use ::raft::CAMPAIGN_TRANSFER;
use ::raft::eraftpb::{Entry, EntryType, Message as RaftMessage, MessageType};
use replica::{Base, Index, Inquiry, Message, ReplicaId, Version};
use units::Instant;

use super::members::is_change_of_members;
use crate::entries::{entries, put_entries};
use crate::fields::{byte, counted, number, put_counted, put_number};

/// The flags.
const REJECTS: u8 = 1;
const HANDED_OVER: u8 = 2;
const WHOLE: u8 = 4;
const SENT: u8 = 8;
const ENTRIES: u8 = 16;
const INQUIRY: u8 = 32;
const LACKS_ROOM: u8 = 64;
/// The flags that any message may have.
const COMMON: u8 = WHOLE | SENT;

/// A number of Raft's message.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Number {
    Index,
    LogTerm,
    Commit,
    CommitTerm,
    RejectHint,
}

use Number::{Commit, CommitTerm, LogTerm, RejectHint};

const NUMBERS: [Number; 5] = [Number::Index, LogTerm, Commit, CommitTerm, RejectHint];

impl Number {
    fn of(self, message: &mut RaftMessage) -> &mut u64 {
        match self {
            Number::Index => &mut message.index,
            LogTerm => &mut message.log_term,
            Commit => &mut message.commit,
            CommitTerm => &mut message.commit_term,
            RejectHint => &mut message.reject_hint,
        }
    }

    fn get(self, message: &RaftMessage) -> u64 {
        match self {
            Number::Index => message.index,
            LogTerm => message.log_term,
            Commit => message.commit,
            CommitTerm => message.commit_term,
            RejectHint => message.reject_hint,
        }
    }
}

/// The fields of one kind of message.
struct Form {
    kind: u8,
    of: MessageType,
    numbers: &'static [Number],
    flags: u8,
}

const fn form(kind: u8, of: MessageType, numbers: &'static [Number], flags: u8) -> Form {
    Form { kind, of, numbers, flags: flags | COMMON }
}

const VOTE: &[Number] = &[Number::Index, LogTerm, Commit, CommitTerm];
pub(super) const SNAPSHOT: u8 = 7;
const HEARTBEAT: u8 = 8;
const HEARTBEAT_ANSWER: u8 = 9;

const FORMS: &[Form] = &[
    form(1, MessageType::MsgAppend, &[Number::Index, LogTerm, Commit], ENTRIES),
    form(2, MessageType::MsgAppendResponse, &[Number::Index, LogTerm, Commit, RejectHint], REJECTS),
    form(3, MessageType::MsgRequestVote, VOTE, HANDED_OVER),
    form(4, MessageType::MsgRequestVoteResponse, &[Commit, CommitTerm], REJECTS),
    form(5, MessageType::MsgRequestPreVote, VOTE, 0),
    form(6, MessageType::MsgRequestPreVoteResponse, &[Commit, CommitTerm], REJECTS),
    form(SNAPSHOT, MessageType::MsgSnapshot, &[], 0),
    form(HEARTBEAT, MessageType::MsgHeartbeat, &[Commit], INQUIRY),
    form(HEARTBEAT_ANSWER, MessageType::MsgHeartbeatResponse, &[Commit], INQUIRY | LACKS_ROOM),
    form(10, MessageType::MsgTimeoutNow, &[], 0),
];

/// The kind of a message that replicas send; `None` for others.
pub(super) fn kind_of(message: &Message) -> Option<u8> {
    FORMS.iter().find(|form| form.of == message.raft.msg_type).map(|form| form.kind)
}

/// Appends the bytes of a message between these replicas. `None` if it has fields that replicas do not send.
///
/// # Panics
/// An entry of 4 GiB or more.
pub(super) fn put(bytes: &mut Vec<u8>, from: ReplicaId, to: ReplicaId, message: &Message) -> Option<()> {
    let Message { raft, sent, stable, is_whole, inquiry, lacks_room, version } = message;
    let form = FORMS.iter().find(|form| form.of == raft.msg_type)?;
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let is_handed_over = raft.context == CAMPAIGN_TRANSFER;
    let flags = flag(raft.reject, REJECTS)
        | flag(is_handed_over, HANDED_OVER)
        | flag(*is_whole, WHOLE)
        | flag(sent.is_some(), SENT)
        | flag(!raft.entries.is_empty(), ENTRIES)
        | flag(inquiry.is_some(), INQUIRY)
        | flag(*lacks_room, LACKS_ROOM);
    let is_zero = |number: &Number| form.numbers.contains(number) || number.get(raft) == 0;
    let has_form = flags & !form.flags == 0
        && (raft.from, raft.to) == (from.0, to.0)
        && (is_handed_over || raft.context.is_empty())
        && (raft.request_snapshot, raft.priority, raft.deprecated_priority) == (0, 0, 0)
        && NUMBERS.iter().all(is_zero)
        && follow_index(raft.index, &raft.entries)
        && inquiry.is_none_or(|inquiry| is_answer(inquiry) == (form.kind == HEARTBEAT))
        && raft.has_snapshot() == (form.kind == SNAPSHOT)
        && version.is_none_or(|version| version != Version(0) && has_version(form.kind));
    if !has_form {
        return None;
    }
    bytes.push(flags);
    put_number(bytes, raft.term);
    put_number(bytes, stable.0);
    form.numbers.iter().for_each(|number| put_number(bytes, number.get(raft)));
    if has_version(form.kind) {
        bytes.extend(version.map_or(0, |version| version.0).to_le_bytes());
    }
    if let Some(sent) = sent {
        put_number(bytes, sent.0);
    }
    match inquiry {
        Some(Inquiry::Asked(number)) => put_number(bytes, *number),
        Some(Inquiry::Answered(number, index)) => {
            put_number(bytes, *number);
            put_number(bytes, index.0);
        }
        None => {}
    }
    put_entries(bytes, &raft.entries);
    if form.kind == SNAPSHOT {
        put_counted(bytes, &Base::of_snapshot(raft.get_snapshot())?.encode());
    }
    Some(())
}

/// Takes a message of that kind from the front of `rest`; `None` if it holds none there.
pub(super) fn take(rest: &mut &[u8], kind: u8, from: ReplicaId, to: ReplicaId) -> Option<Message> {
    let form = FORMS.iter().find(|form| form.kind == kind)?;
    let flags = byte(rest)?;
    if flags & !form.flags != 0 {
        return None;
    }
    let has = |flag: u8| flags & flag != 0;
    let mut raft = RaftMessage { msg_type: form.of, from: from.0, to: to.0, ..RaftMessage::default() };
    raft.term = number(rest)?;
    let stable = Index(number(rest)?);
    for field in form.numbers {
        *field.of(&mut raft) = number(rest)?;
    }
    let version = if has_version(kind) {
        let (version, behind) = rest.split_first_chunk()?;
        *rest = behind;
        Some(Version(u16::from_le_bytes(*version))).filter(|version| *version != Version(0))
    } else {
        None
    };
    raft.reject = has(REJECTS);
    if has(HANDED_OVER) {
        raft.context = CAMPAIGN_TRANSFER.into();
    }
    let sent = if has(SENT) { Some(Instant(number(rest)?)) } else { None };
    let inquiry = if !has(INQUIRY) {
        None
    } else if kind == HEARTBEAT {
        Some(Inquiry::Answered(number(rest)?, Index(number(rest)?)))
    } else {
        Some(Inquiry::Asked(number(rest)?))
    };
    if has(ENTRIES) {
        raft.entries = entries(rest)?.into();
    }
    if !follow_index(raft.index, &raft.entries) {
        return None;
    }
    if kind == SNAPSHOT {
        raft.set_snapshot(Base::decode(counted(rest)?).ok()?.snapshot());
    }
    let (is_whole, lacks_room) = (has(WHOLE), has(LACKS_ROOM));
    Some(Message { raft, sent, stable, is_whole, inquiry, lacks_room, version })
}

/// The bytes of a snapshot's base with their length, in a snapshot's bytes behind its addresses.
pub(super) fn base_of_snapshot(bytes: &[u8]) -> Option<&[u8]> {
    let (flags, rest) = bytes.split_first()?;
    rest.get(if flags & SENT == 0 { 16 } else { 24 }..)
}

/// True for heartbeats and their acknowledgements.
fn has_version(kind: u8) -> bool {
    kind == HEARTBEAT || kind == HEARTBEAT_ANSWER
}

/// True for an answer, which heartbeats carry. Their acknowledgements carry questions.
fn is_answer(inquiry: Inquiry) -> bool {
    matches!(inquiry, Inquiry::Answered(..))
}

/// True if the entries follow `index` without a gap, and have the fields that are sent.
fn follow_index(index: u64, entries: &[Entry]) -> bool {
    let mut expected = index;
    entries.iter().all(|entry| {
        expected = expected.wrapping_add(1);
        let is_known = match entry.entry_type {
            EntryType::EntryNormal => true,
            EntryType::EntryConfChange => false,
            EntryType::EntryConfChangeV2 => is_change_of_members(&entry.data),
        };
        is_known && entry.index == expected && entry.context.is_empty() && !entry.sync_log
    })
}
