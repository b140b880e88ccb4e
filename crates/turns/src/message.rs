//! Messages between a leader and the nodes of its group.

use std::time::Duration;

use units::{Bytes, Instant};

/// Names a node of the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u64);

/// A term of office of the group's leader: a later leader has a higher term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Term(pub u64);

/// A leader's request for a report, to every node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ping {
    /// The leader's term.
    pub term: Term,
    /// The time by the leader's clock. Nodes send it back unchanged.
    pub asked_at: Instant,
}

/// Names a report of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReportId {
    /// The incarnation of the node: a number that no earlier process of the node had.
    pub incarnation: u64,
    /// The number of the report within that incarnation.
    pub number: u64,
}

/// A node's answer to a ping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The node.
    pub node: NodeId,
    /// The term of the ping.
    pub term: Term,
    /// Names this report; a grant answers it by that name.
    pub id: ReportId,
    /// [`Ping::asked_at`].
    pub asked_at: Instant,
    /// The node refuses grants that answer reports of this incarnation with smaller numbers: its last turn ended before this one.
    pub refuses_below: u64,
    /// The turn that the node has.
    pub turn: Option<TurnKind>,
    /// The node's state.
    pub status: Status,
}

/// Kinds of turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnKind {
    /// A leader granted the turn.
    Granted,
    /// The node is at its hard limit and went without a grant.
    Forced,
}

/// State of a node that a leader decides by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Bytes of the log since the last durable snapshot.
    pub log: Bytes,
    /// Entries of the log since the last durable snapshot.
    pub entries: u64,
    /// Bytes that a snapshot takes.
    pub snapshot: Bytes,
    /// Bytes that a snapshot which was begun still has to write; `None` where none was begun. Zero while its last bytes become durable.
    pub left: Option<Bytes>,
    /// Bytes that the log may still grow before the node must take a snapshot in any case.
    pub room: Bytes,
    /// Committed entries that the node lacks.
    pub behind: u64,
    /// The 99th percentile of the times of the log's syncs now.
    pub sync_p99: Duration,
    /// The same while nothing else uses the drive.
    pub sync_p99_alone: Duration,
}

/// A leader's permission to do the work, or to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The node that may.
    pub node: NodeId,
    /// The leader's term.
    pub term: Term,
    /// The report that the grant answers.
    pub report: ReportId,
    /// How long the turn lasts from the sending of that report on, by the node's clock.
    pub lease: Duration,
    /// Bytes a second that the node may write.
    pub rate: Bytes,
}

/// A leader's request to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Revoke {
    /// The node that is to stop.
    pub node: NodeId,
    /// The leader's term.
    pub term: Term,
}
