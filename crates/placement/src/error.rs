//! The crate's errors.

use std::path::PathBuf;

use crate::names::{ClusterName, Epoch, Revision};
use crate::value_error::ValueError;
use replica::{ClusterId, GroupId, NodeId, Version};

/// Why a group cannot be placed, or a replica not replaced.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A number of copies or groups outside its limits.
    #[error("{what} must be {least} to {most}, not {found}")]
    Limit {
        /// The thing that is counted.
        what: &'static str,
        /// The least that is possible.
        least: u64,
        /// The most that is possible.
        most: u64,
        /// The number that was asked for.
        found: u64,
    },
    /// Fewer nodes than a group has replicas.
    #[error("{needed} nodes are needed for K = {copies}, {joined} joined")]
    FewNodes {
        /// Nodes that one group needs: 2K + 1.
        needed: usize,
        /// K.
        copies: usize,
        /// Nodes that joined.
        joined: usize,
    },
    /// Fewer nodes that offer a role than a group needs.
    #[error("{needed} nodes that offer {offers} are needed for K = {copies}, {joined} joined")]
    FewOffers {
        /// Nodes that one group needs.
        needed: usize,
        /// The offers of which a node needs one.
        offers: &'static str,
        /// K.
        copies: usize,
        /// Nodes that joined and have such an offer.
        joined: usize,
    },
    /// Enough nodes for each role, but some would need two roles of one group.
    #[error(
        "the {joined} nodes that joined cannot take the roles of a group with K = {copies} without two roles on one node"
    )]
    RolesOnOneNode {
        /// K.
        copies: usize,
        /// Nodes that joined.
        joined: usize,
    },
    /// No live node is free to take the place of a replica.
    #[error(
        "group {group}: no live node outside the group can take the place of replica {replica} ({role}) on node {node}"
    )]
    NoReplacement {
        /// The group.
        group: GroupId,
        /// The replica's number.
        replica: u64,
        /// The replica's role.
        role: &'static str,
        /// The dead node.
        node: NodeId,
    },
}

/// Why a node refuses what etcd holds: etcd was restored from a backup older than what the node has seen, or is another cluster's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StaleError {
    /// Another cluster of the same name.
    #[error("etcd holds cluster {found}, this node belongs to cluster {remembered}")]
    OtherCluster {
        /// The cluster that the node belongs to.
        remembered: ClusterId,
        /// The cluster in etcd.
        found: ClusterId,
    },
    /// An epoch that was left behind.
    #[error("etcd was restored from an old backup: it holds epoch {}, this node has seen epoch {}", found.0, remembered.0)]
    OldEpoch {
        /// The highest epoch that the node has seen.
        remembered: Epoch,
        /// The epoch in etcd.
        found: Epoch,
    },
    /// The store of the same epoch at an earlier revision.
    #[error(
        "etcd was restored from an old backup: it is at revision {}, this node has seen revision {}; raise the cluster's epoch to accept the older values",
        found.0, remembered.0
    )]
    OldRevision {
        /// The highest revision that the node has seen.
        remembered: Revision,
        /// The revision of etcd's store.
        found: Revision,
    },
}

/// The caller's next step after an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Try again later: etcd did not answer, or has no majority.
    Retry,
    /// Load again, and decide again: another process was faster.
    Conflict,
    /// Something in etcd is no value of this crate, or older than what was seen.
    Corrupt,
    /// A setting, or a request, is wrong, or etcd refuses this client.
    Invalid,
}

/// An error of [`crate::Etcd`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An endpoint that no client may use, or the set of settings.
    #[error("etcd at {endpoint}: {why}")]
    Endpoint {
        /// The endpoint as it was given.
        endpoint: String,
        /// The fault, and its remedy, for people.
        why: String,
    },
    /// A file of credentials that cannot be used.
    #[error("{}: {why}", path.display())]
    CredentialFile {
        /// The file.
        path: PathBuf,
        /// The fault, for people.
        why: String,
    },
    /// Etcd did not answer in time, or has no majority. Whether a write took place is not known.
    #[error("etcd cannot be reached ({doing}): {why}")]
    Unreachable {
        /// The request.
        doing: &'static str,
        /// The client's error.
        why: String,
    },
    /// Etcd answered that it will not do this.
    #[error("etcd refuses ({doing}): {why}")]
    Refused {
        /// The request.
        doing: &'static str,
        /// Etcd's words.
        why: String,
    },
    /// A value in etcd that is none of its kind, or contradicts another one.
    #[error("etcd's key {key}: {error}")]
    Value {
        /// The key.
        key: String,
        /// The fault of the value.
        error: ValueError,
    },
    /// No cluster of this name.
    #[error("etcd has no cluster {0}")]
    NoCluster(ClusterName),
    /// A cluster of this name is there already.
    #[error("etcd has a cluster {0} already")]
    ClusterExists(ClusterName),
    /// A value older than what this node has seen.
    #[error(transparent)]
    Stale(#[from] StaleError),
    /// A node that starts with a counter of an earlier start: another process has its identity, or its drive is a copy.
    #[error(
        "node {node} starts with counter {starts}, and etcd has seen {recorded}: another process has its identity, or its drive is an old copy"
    )]
    StartsNotAbove {
        /// The node.
        node: NodeId,
        /// The counter with which it starts.
        starts: u64,
        /// The counter in etcd.
        recorded: u64,
    },
    /// A node that is not in the cluster.
    #[error("node {node} is not in the cluster, or was removed from it")]
    NoNode {
        /// The node.
        node: NodeId,
    },
    /// The address belongs to another node that is alive.
    #[error("address {address} belongs to node {other}, which is alive")]
    AddressTaken {
        /// The address.
        address: String,
        /// The node that has it.
        other: NodeId,
    },
    /// Nodes of the cluster whose programs do not speak a version.
    #[error("not every node's program speaks version {version}: {}", list(nodes))]
    OlderNodes {
        /// The version.
        version: Version,
        /// The nodes, and the newest version that each one's program speaks.
        nodes: Vec<(NodeId, Version)>,
    },
    /// Another process changed the key since it was read.
    #[error("etcd's key {0} was changed by another process: load and decide again")]
    Conflict(String),
}

impl Error {
    /// The caller's next step.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Unreachable { .. } => ErrorKind::Retry,
            Error::Conflict(_) => ErrorKind::Conflict,
            Error::Value { .. } | Error::Stale(_) => ErrorKind::Corrupt,
            Error::Endpoint { .. }
            | Error::CredentialFile { .. }
            | Error::Refused { .. }
            | Error::NoCluster(_)
            | Error::ClusterExists(_)
            | Error::StartsNotAbove { .. }
            | Error::NoNode { .. }
            | Error::OlderNodes { .. }
            | Error::AddressTaken { .. } => ErrorKind::Invalid,
        }
    }

    /// True if the cluster has a version that this program does not speak.
    pub fn is_too_old(&self) -> bool {
        matches!(self, Error::Value { error: ValueError::TooOld(_), .. })
    }
}

fn list(nodes: &[(NodeId, Version)]) -> String {
    let text = |(node, speaks): &(NodeId, Version)| format!("node {node} speaks versions up to {speaks}");
    nodes.iter().map(text).collect::<Vec<_>>().join(", ")
}
