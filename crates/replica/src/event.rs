//! The events that a replica takes, and the actions that it returns.

use raft::eraftpb::{Entry, HardState};
use units::Instant;

use crate::entry::Command;
use crate::{ChangeRefused, Configuration, Index, ReplicaId, Term};

/// The number of a client's command, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProposalId(pub u64);

/// The number of a client's read, chosen by the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReadId(pub u64);

/// A message from one replica to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    /// Raft's message.
    pub raft: raft::eraftpb::Message,
    /// A heartbeat: when it was sent, by the leader's clock. Its acknowledgement: the same.
    pub sent: Option<Instant>,
    /// From a leader: the group's stable index.
    pub stable: Index,
}

/// An event that a replica takes.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A message came.
    Message(Box<Message>),
    /// A client wants a command to be carried out.
    Propose(ProposalId, Command),
    /// A client wants to read.
    Read(ReadId),
    /// Everything up to this [`Action::Persist`] is durable.
    Persisted(u64),
    /// The entries up to this index are in the tables. Indexes ascend.
    Applied(Index),
    /// Values that [`Action::Fetch`] asked for came, and are durable in this replica's log; an earlier [`Action::DropValues`] of theirs is over. Also said, with nothing, where none came: the replica asks again.
    Values(Vec<((Index, Term), Vec<u8>)>),
    /// The replica shall lead no longer, if it does: a witness that has all entries takes over.
    HandOver,
    /// The group is to have these voters. Those that it has keep their roles; the leader is among them. Said again after each change of the leader until the members are these.
    Change(Configuration),
    /// The tables hold every value up to the log's first entry, durably: what the leader of this term pulls has come.
    Whole(Term),
}

/// An action that a replica's caller is to carry out. The actions of one step are in the order in which they are to be begun.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send a message to a replica. It may be lost, late or repeated.
    Send(ReplicaId, Box<Message>),
    /// Make entries and the vote durable, all of a request or nothing, in the order of requests, then say [`Event::Persisted`]. The first entry replaces what the log has from there on.
    Persist {
        /// The number of this request: they ascend.
        number: u64,
        /// New entries.
        entries: Vec<Entry>,
        /// Term, vote and commit index, if they changed.
        vote: Option<HardState>,
    },
    /// Put committed commands into the tables, in this order, then say [`Event::Applied`]. A witness puts the records there, without values but for those it keeps.
    Apply(Vec<(Index, Option<Command>)>),
    /// The command is committed at this index: the client may be answered.
    Acknowledge(ProposalId, Index),
    /// The replica does not take the command, of which nothing was begun; the leader, if it knows one.
    RefuseProposal(ProposalId, Option<ReplicaId>),
    /// The command's outcome is not known: this replica leads no more.
    LoseProposal(ProposalId),
    /// The read may be answered from tables to which everything up to an index was applied.
    Answer {
        /// The read.
        read: ReadId,
        /// The index up to which the tables must hold the log.
        index: Index,
        /// The read counts only if [`crate::Replica::may_answer`] is still true after it was carried out; else it is to be asked again. Without: a majority has said that nobody else led when the read came.
        by_lease: bool,
    },
    /// The replica does not answer the read; the leader, if it knows one.
    RefuseRead(ReadId, Option<ReplicaId>),
    /// The group's members stay, at the leader's word.
    RefuseChange(ChangeRefused),
    /// Get the values of these entries from a backup, or from the holder of an office that stands ([`crate::Replica::offices`]): after failures that holder may have the last copy.
    Fetch(Vec<(Index, Term)>),
    /// The values of entries up to this index are needed no more, also on the drive.
    DropValues(Index),
}
