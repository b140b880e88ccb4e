//! A group's replica in numbers, for operators.

use std::time::Duration;

use crate::{GroupId, Index, ReplicaId, Role, Term, Version};

/// A replica at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaStats {
    /// The replica's number.
    pub replica: ReplicaId,
    /// The replica's role.
    pub role: Role,
    /// The leader of the replica's term, as far as the replica knows.
    pub leader: Option<ReplicaId>,
    /// True if the replica leads, as a witness in office: it takes commands.
    pub serves: bool,
    /// The replica's term.
    pub term: Term,
    /// The index up to which the log is committed, as far as the replica knows.
    pub committed: Index,
    /// The index up to which the tables hold the log.
    pub applied: Index,
    /// The index up to which values are stable, as far as the replica knows.
    pub stable: Index,
    /// The group's version, as far as the replica has applied its log.
    pub version: Version,
    /// Entries in the log.
    pub log_entries: u64,
    /// Bytes of the entries in the log.
    pub log_bytes: u64,
    /// A backup: the time by which its tables may be behind, if that is known.
    pub behind: Option<Duration>,
    /// Counts since the replica started.
    pub counts: ReplicaCounts,
}

/// The counts of a replica since it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaCounts {
    /// Times that the replica stood for election.
    pub elections: u64,
    /// Snapshots that the replica sent as a leader, repeated ones too.
    pub snapshots_sent: u64,
    /// Snapshots of other replicas that the replica took.
    pub snapshots_taken: u64,
}

/// A group's replica in a process at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupStats {
    /// The group.
    pub group: GroupId,
    /// The replica.
    pub replica: ReplicaStats,
    /// Bytes of entries in the group's log above which the leader takes no commands.
    pub log_limit: u64,
    /// Clients' writes that were begun here and have no outcome yet.
    pub unfinished: u64,
    /// Clients' writes that were refused because the log was full.
    pub refused_full: u64,
    /// True if an error ended the replica, or it was closed.
    pub has_ended: bool,
}
