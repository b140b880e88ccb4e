//! The name of a process.

use replica::{ClusterId, NodeId};

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
