//! The names of clusters, nodes and processes.

use std::fmt;

use uuid::Uuid;

/// A cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClusterId(pub Uuid);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {}", self.0)
    }
}

/// A node of a cluster: the name lies on its drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub Uuid);

impl NodeId {
    /// The DNS name in the node's certificate: `UUID.furrow`.
    pub fn dns_name(self) -> String {
        format!("{}.furrow", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A process of a cluster: a node since one of its starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessId {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// The node's start counter: each start of a process on the node's drive raises it.
    pub starts: u64,
}
