//! The messages between replicas of a group, and the network that carries them.

use std::fmt::Debug;

use replica::{Base, Index, Message, ReplicaId, Term};

use crate::GroupId;
use crate::tables::Rows;

/// The number of a request, by which its sender knows the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

/// A message from one replica of a group to another.
#[derive(Clone, PartialEq, Debug)]
pub enum PeerMessage {
    /// A message of the replicated log.
    Replica(Box<Message>),
    /// A request.
    Request(RequestId, Request),
    /// The answer to a request.
    Answer(RequestId, Answer),
}

/// The name of a record: the entry of that index and term wrote the row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordName {
    /// The row key.
    pub key: Vec<u8>,
    /// The entry's index.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
}

/// A request to another replica.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The values of records.
    Values(Vec<RecordName>),
    /// The records at and after a row key, of tables that hold the log up to an index at least.
    Rows {
        /// The row key.
        from: Vec<u8>,
        /// The index.
        applied: Index,
    },
    /// The group's members.
    Members,
}

/// An answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The values of the first records that were asked for, one at least, in their order; `None` where the replica does not have it.
    Values(Vec<Option<Vec<u8>>>),
    /// Records.
    Rows(Rows),
    /// The tables do not hold the log up to the index yet.
    NotNow,
    /// The group's state behind the last entry that the replica has applied.
    Members(Box<Base>),
}

/// The way to the other replicas of a process's groups.
pub trait Peers: Send + Sync + Debug {
    /// Sends a message from one replica of a group to another. It may be lost, late, repeated or overtaken. Does not block, and calls no replica before it returns: the sender's state is locked.
    fn send(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage);
}
