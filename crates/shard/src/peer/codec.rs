//! The bytes of a message from one replica to another.
//!
//! | bytes | | |
//! |---|---|---|
//! | 0 | 1 | version: 1 |
//! | 1 | 1 | kind: 1 to 10 a message of the replicated log, as in `raft.rs`; 16 a request for values, 17 for records, 18 an answer of values, 19 of records, 20 not now; 21 a request for the members, 22 its answer |
//! | 2 | 8 | group; little-endian, like all numbers |
//! | 10 | 8 | sender |
//! | 18 | 8 | receiver |
//! | 26 | 8 | kinds 16 to 22: the request |
//!
//! | kind | bytes behind these | |
//! |---|---|---|
//! | 16 | 4 | number of records; then of each: |
//! | | 4 | bytes of the row key; then these; index, 8 bytes; term, 8 |
//! | 17 | 4 | bytes of the row key; then these; index, 8 bytes |
//! | 18 | 4 | number of values; then of each: |
//! | | 4 | bytes of the value, then these; `0xffff_ffff` if there is none |
//! | 19 | 4 | bytes of the first row key; then these |
//! | | 4 | bytes of the row key behind the part, then these; `0xffff_ffff` if there is none |
//! | | 4 | number of records; then of each: |
//! | | 4 | bytes of the row key; then these; index, 8 bytes; term, 8 |
//! | | 9 | the record's header (`kv::RecordHeader`) |
//! | | 4 | bytes of the value, then these; `0xffff_ffff` if there is none |
//! | 22 | 4 | bytes of the group's state; then these: the table of [`replica::Base`] |
//!
//! A decoded message takes less than 32 times the memory of its bytes, where all its parts are empty.

use kv::{HEADER_LEN, Record, RecordRef};
use replica::{Base, BaseError, Index, ReplicaId, Term, TooOld};
use zerocopy::IntoBytes;

use super::message::{Answer, PeerMessage, RecordName, Request, RequestId};
use super::raft;
use crate::error::{Error, Result};
use crate::fields::{byte, counted, length, number, put_counted, put_length, put_number};
use crate::tables::{Row, Rows};
use replica::GroupId;

const VERSION: u8 = 1;
const REQUEST_VALUES: u8 = 16;
const REQUEST_ROWS: u8 = 17;
const VALUES: u8 = 18;
const ROWS: u8 = 19;
const NOT_NOW: u8 = 20;
const REQUEST_MEMBERS: u8 = 21;
const MEMBERS: u8 = 22;
/// Bytes before those of each kind: version, kind, group, sender, receiver.
const ADDRESSED: usize = 26;
/// The length of bytes that are not there.
const NONE: u32 = u32::MAX;

impl PeerMessage {
    /// The bytes of the message from one replica of the group to another: the tables in `peer/codec.rs` and `peer/raft.rs`. `None` for a message that replicas do not send, or to or from others than it says.
    ///
    /// # Panics
    /// A key, value or entry of 4 GiB or more.
    pub fn encode(&self, group: GroupId, from: ReplicaId, to: ReplicaId) -> Option<Vec<u8>> {
        let kind = match self {
            PeerMessage::Replica(message) => raft::kind_of(message)?,
            PeerMessage::Request(_, Request::Values(_)) => REQUEST_VALUES,
            PeerMessage::Request(_, Request::Rows { .. }) => REQUEST_ROWS,
            PeerMessage::Request(_, Request::Members) => REQUEST_MEMBERS,
            PeerMessage::Answer(_, Answer::Values(_)) => VALUES,
            PeerMessage::Answer(_, Answer::Rows(_)) => ROWS,
            PeerMessage::Answer(_, Answer::NotNow) => NOT_NOW,
            PeerMessage::Answer(_, Answer::Members(_)) => MEMBERS,
        };
        let mut bytes = vec![VERSION, kind];
        [group.0, from.0, to.0].iter().for_each(|number| put_number(&mut bytes, *number));
        match self {
            PeerMessage::Replica(message) => raft::put(&mut bytes, from, to, message)?,
            PeerMessage::Request(id, request) => {
                put_number(&mut bytes, id.0);
                put_request(&mut bytes, request);
            }
            PeerMessage::Answer(id, answer) => {
                put_number(&mut bytes, id.0);
                put_answer(&mut bytes, answer);
            }
        }
        Some(bytes)
    }

    /// The group, the sender, the receiver and the message that the bytes encode.
    ///
    /// # Errors
    /// [`Error::Message`]: another version, or no message's bytes; [`Error::TooOld`]: the base of a group of a version that this program does not speak.
    pub fn decode(bytes: &[u8]) -> Result<(GroupId, ReplicaId, ReplicaId, PeerMessage)> {
        match bytes.first() {
            Some(&VERSION) | None => {}
            Some(version) => {
                let why = format!("it is of version {version}, and this program reads version {VERSION}");
                return Err(Error::Message { why });
            }
        }
        decode(bytes).ok_or_else(|| match too_old(bytes) {
            Some(why) => Error::TooOld(why),
            None => Error::Message { why: "its bytes are no message's".into() },
        })
    }
}

fn decode(bytes: &[u8]) -> Option<(GroupId, ReplicaId, ReplicaId, PeerMessage)> {
    let mut rest = bytes.get(1..)?;
    let kind = byte(&mut rest)?;
    let group = GroupId(number(&mut rest)?);
    let (from, to) = (ReplicaId(number(&mut rest)?), ReplicaId(number(&mut rest)?));
    let message = match kind {
        REQUEST_VALUES | REQUEST_ROWS | REQUEST_MEMBERS => {
            PeerMessage::Request(RequestId(number(&mut rest)?), request(&mut rest, kind)?)
        }
        VALUES | ROWS | NOT_NOW | MEMBERS => {
            PeerMessage::Answer(RequestId(number(&mut rest)?), answer(&mut rest, kind)?)
        }
        _ => PeerMessage::Replica(Box::new(raft::take(&mut rest, kind, from, to)?)),
    };
    rest.is_empty().then_some((group, from, to, message))
}

/// The reason why the base in a message is not for this program.
fn too_old(bytes: &[u8]) -> Option<TooOld> {
    let mut rest = match *bytes.get(1)? {
        MEMBERS => bytes.get(ADDRESSED + 8..)?,
        raft::SNAPSHOT => raft::base_of_snapshot(bytes.get(ADDRESSED..)?)?,
        _ => return None,
    };
    if let Err(BaseError::TooOld(why)) = Base::decode(counted(&mut rest)?) { Some(why) } else { None }
}

fn put_request(bytes: &mut Vec<u8>, request: &Request) {
    match request {
        Request::Values(names) => {
            put_length(bytes, names.len());
            for RecordName { key, index, term } in names {
                put_counted(bytes, key);
                put_number(bytes, index.0);
                put_number(bytes, term.0);
            }
        }
        Request::Rows { from, applied } => {
            put_counted(bytes, from);
            put_number(bytes, applied.0);
        }
        Request::Members => {}
    }
}

fn request(rest: &mut &[u8], kind: u8) -> Option<Request> {
    if kind == REQUEST_MEMBERS {
        return Some(Request::Members);
    }
    if kind == REQUEST_ROWS {
        let from = counted(rest)?.to_vec();
        return Some(Request::Rows { from, applied: Index(number(rest)?) });
    }
    let name = |rest: &mut &[u8]| {
        let key = counted(rest)?.to_vec();
        Some(RecordName { key, index: Index(number(rest)?), term: Term(number(rest)?) })
    };
    Some(Request::Values(several(rest, name)?))
}

fn put_answer(bytes: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::NotNow => {}
        Answer::Members(base) => put_counted(bytes, &base.encode()),
        Answer::Values(values) => {
            put_length(bytes, values.len());
            values.iter().for_each(|value| put_optional(bytes, value.as_deref()));
        }
        Answer::Rows(Rows { from, to, rows }) => {
            put_counted(bytes, from);
            put_optional(bytes, to.as_deref());
            put_length(bytes, rows.len());
            for (key, Row { index, term, expires, value }) in rows {
                put_counted(bytes, key);
                put_number(bytes, index.0);
                put_number(bytes, term.0);
                let record = Record { expires: *expires, value: Default::default() };
                bytes.extend_from_slice(record.header().as_bytes());
                put_optional(bytes, value.as_deref());
            }
        }
    }
}

fn answer(rest: &mut &[u8], kind: u8) -> Option<Answer> {
    if kind == NOT_NOW {
        return Some(Answer::NotNow);
    }
    if kind == MEMBERS {
        return Some(Answer::Members(Box::new(Base::decode(counted(rest)?).ok()?)));
    }
    if kind == VALUES {
        return Some(Answer::Values(several(rest, optional)?));
    }
    let (from, to) = (counted(rest)?.to_vec(), optional(rest)?);
    let row = |rest: &mut &[u8]| {
        let key = counted(rest)?.to_vec();
        let (index, term) = (Index(number(rest)?), Term(number(rest)?));
        let (header, behind) = rest.split_at_checked(HEADER_LEN)?;
        let expires = RecordRef::decode(header).ok()?.expires;
        *rest = behind;
        Some((key, Row { index, term, expires, value: optional(rest)? }))
    };
    Some(Answer::Rows(Rows { from, to, rows: several(rest, row)? }))
}

/// Takes a number, and so many things behind it. Memory is taken for each as it comes.
fn several<T>(rest: &mut &[u8], take: impl Fn(&mut &[u8]) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for _ in 0..length(rest)? {
        all.push(take(rest)?);
    }
    Some(all)
}

fn put_optional(bytes: &mut Vec<u8>, optional: Option<&[u8]>) {
    match optional {
        Some(optional) => put_counted(bytes, optional),
        None => bytes.extend(NONE.to_le_bytes()),
    }
}

fn optional(rest: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    match rest.split_first_chunk() {
        Some((len, behind)) if u32::from_le_bytes(*len) == NONE => {
            *rest = behind;
            Some(None)
        }
        _ => counted(rest).map(|bytes| Some(bytes.to_vec())),
    }
}

/// A fuzz test of the decoder: bytes that decode to a message are the bytes of that message.
///
/// # Panics
/// Bytes decode to a message that encodes to other bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub fn fuzz_message(bytes: &[u8]) {
    if let Ok((group, from, to, message)) = PeerMessage::decode(bytes) {
        assert_eq!(message.encode(group, from, to).as_deref(), Some(bytes));
    }
}

#[cfg(test)]
mod tests;
