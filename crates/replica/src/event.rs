//! The events that a replica takes, and the actions that it returns.

use raft::eraftpb::{Entry, HardState};
use units::Instant;

use crate::entry::Command;
use crate::{Base, ChangeRefused, Configuration, Index, Inquiry, ReplicaId, Term, TooOld, Version};

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
    /// A snapshot: the leader's tables have every value.
    pub is_whole: bool,
    /// A backup's acknowledgement of a heartbeat: a question for the commit index. A heartbeat to a backup: the answer to the last one, if the leader can give it.
    pub inquiry: Option<Inquiry>,
    /// An acknowledgement of a heartbeat: the drive of the replica nears full.
    pub lacks_room: bool,
    /// A heartbeat: the group's version. Its acknowledgement: the newest version that the sender's program speaks.
    pub version: Option<Version>,
}

/// An event that a replica takes.
#[derive(Clone, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A message came.
    Message(Box<Message>),
    /// Clients want commands to be carried out, in this order. Each replica gets their entries in one message: their bytes together are to stay far below the longest message.
    Propose(Vec<(ProposalId, Command)>),
    /// A client wants to read.
    Read(ReadId),
    /// Everything up to this [`Action::Persist`] is durable.
    Persisted(u64),
    /// The entries up to this index are in the tables. Indexes ascend.
    Applied(Index),
    /// The tables hold everything up to this index durably: the log need not keep these entries, unless somebody else needs them.
    Flushed(Index),
    /// The tables hold the snapshot of this index, durably: [`Action::Install`] is done.
    Installed(Index),
    /// The snapshot of this index could not be got. The leader sends one again.
    NotInstalled(Index),
    /// The replica shall lead no longer, if it does: a witness that has everything committed takes over.
    HandOver,
    /// The replica shall lead no longer, if it does: this witness takes over, once it has everything committed.
    HandOverTo(ReplicaId),
    /// The replica's drive nears full, or has room again: the leader hears of it.
    Room {
        /// The drive nears full.
        lacks: bool,
    },
    /// The group is to have these voters. Those that it has keep their roles; the leader is among them. Said again after each change of the leader until the members are these.
    Change(Configuration),
    /// The group is to be at this version at least, once each member speaks it. Said again after each change of the leader.
    Raise(Version),
    /// The tables, to which everything up to `upto` was applied, hold the value of each record, durably: what the leader of this term pulls has come.
    Whole {
        /// The leader's term.
        term: Term,
        /// The applied index.
        upto: Index,
    },
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
        /// A snapshot took the place of the log: nothing is left of it, and it begins behind this base. Everything up to there counts as applied.
        base: Option<Base>,
        /// New entries.
        entries: Vec<Entry>,
        /// Term, vote and commit index, if they changed. A commit index that changes alone comes with the next request.
        vote: Option<HardState>,
    },
    /// Put committed commands, of entries with this index and term, into the tables, in this order, then say [`Event::Applied`]. A witness puts the records there, without values but for those it keeps.
    Apply(Vec<(Index, Term, Option<Command>)>),
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
    /// The group is at a version that this program does not speak, or is to be raised to one. The replica has taken nothing of that version, and is to end.
    End(TooOld),
    /// The values of entries up to this index that are there now, and of records that these wrote, are needed no more, also on the drive. Done, or given up, before anything of a later step is put into the tables: values that are pulled or installed later stay.
    DropValues(Index),
    /// Make this base durable, in the order of [`Action::Persist`]; then the log's entries up to it are needed no more.
    Retire(Base),
    /// Get the tables of another replica, once they hold the log up to an index, and once each earlier [`Action::Apply`] is in the own tables. Of each key:
    ///
    /// - the other replica's record is of a later entry than the own one, or there is none here: it is taken, unless it is of an entry that is applied here (it was deleted here);
    /// - both are of the same entry: the own one stays, with the value if either has it;
    /// - the own one is later: it stays;
    /// - only the own one is there: it goes if it is of an entry up to the index.
    ///
    /// A record that is taken with an entry above `values_above` must come with its value. Say [`Event::Installed`] once all of the own tables is durable, what was not flushed before too; [`Event::NotInstalled`] if a value is missing or no source answers. One of them is said in bounded time. The tables' own index stays where it is until the base is durable ([`Action::Persist`]). A crash on the way loses nothing: tables may be ahead of the log.
    Install {
        /// The index.
        index: Index,
        /// The replicas that have the values: any of them.
        sources: Vec<ReplicaId>,
        /// Records of entries above this index come with their values; all values where it is 0.
        values_above: Index,
    },
}
