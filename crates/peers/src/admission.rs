//! The processes from which frames are taken. Without I/O.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use parking_lot::Mutex;

use crate::frame::{FrameError, Hello};
use crate::identity::ProcessId;
use replica::{ClusterId, NodeId};

/// The most nodes from which frames are taken.
const MAX_NODES: usize = 4096;

/// The reason why a connection of another process is closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it begins without a hello")]
    NoHello,
    #[error("no hello came in time")]
    Late,
    #[error("a second hello, or a frame of another process than the first one's")]
    OtherProcess,
    #[error("it is of cluster {0}, and this process is of cluster {1}")]
    Cluster(ClusterId, ClusterId),
    #[error("it is for node {0}, which is not this one: addresses of nodes were exchanged")]
    Receiver(NodeId),
    #[error("it is of node {0}, which this process is: a drive was copied, or two processes have one drive")]
    OwnNode(NodeId),
    #[error(
        "node {0} started {1} times, and a process of its start {2} was here: a copied drive, or an old process"
    )]
    Starts(NodeId, u64, u64),
    #[error("two processes are start {1} of node {0}: a drive was copied")]
    Twice(NodeId, u64),
    #[error("more than {MAX_NODES} nodes")]
    Nodes,
    #[error("the certificate does not name node {0}, which it says it is of")]
    Certificate(NodeId),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Message(String),
}

/// The newest process of each node: frames of earlier ones are refused.
///
/// The knowledge ends with this process: the first hello of a node is taken whatever its start counter.
#[derive(Debug)]
pub(crate) struct Admission {
    own: ProcessId,
    newest: Mutex<HashMap<NodeId, (u64, u64)>>,
}

impl Admission {
    pub(crate) fn new(own: ProcessId) -> Admission {
        Admission { own, newest: Mutex::default() }
    }

    /// Takes a process that says hello, unless a rule is against it. Earlier processes of its node are refused from now on.
    pub(crate) fn admit(&self, from: ProcessId, hello: Hello) -> Result<(), Refusal> {
        let ProcessId { cluster, node, starts } = from;
        if cluster != self.own.cluster {
            return Err(Refusal::Cluster(cluster, self.own.cluster));
        }
        if hello.to != self.own.node {
            return Err(Refusal::Receiver(hello.to));
        }
        if node == self.own.node {
            return Err(Refusal::OwnNode(node));
        }
        let mut newest = self.newest.lock();
        let is_full = newest.len() >= MAX_NODES;
        match newest.entry(node) {
            Entry::Vacant(_) if is_full => return Err(Refusal::Nodes),
            Entry::Vacant(first) => {
                first.insert((starts, hello.process));
            }
            Entry::Occupied(mut seen) => {
                let (seen_starts, process) = *seen.get();
                if starts < seen_starts {
                    return Err(Refusal::Starts(node, starts, seen_starts));
                }
                if starts == seen_starts && process != hello.process {
                    return Err(Refusal::Twice(node, starts));
                }
                seen.insert((starts, hello.process));
            }
        }
        Ok(())
    }

    /// Checks a later frame on the connection of a process that was admitted.
    pub(crate) fn check(&self, admitted: ProcessId, from: ProcessId) -> Result<(), Refusal> {
        if from != admitted {
            return Err(Refusal::OtherProcess);
        }
        match self.newest.lock().get(&from.node) {
            Some((starts, _)) if *starts > from.starts => {
                Err(Refusal::Starts(from.node, from.starts, *starts))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn process(cluster: u8, node: u8, starts: u64) -> ProcessId {
        let uuid = |byte| Uuid::from_bytes([byte; 16]);
        ProcessId { cluster: ClusterId(uuid(cluster)), node: NodeId(uuid(node)), starts }
    }

    fn hello(to: u8, process: u64) -> Hello {
        Hello { to: NodeId(Uuid::from_bytes([to; 16])), process }
    }

    #[test]
    fn an_older_process_of_a_node_is_refused_and_its_connections_end() {
        let admission = Admission::new(process(1, 1, 9));
        let (old, new) = (process(1, 2, 5), process(1, 2, 6));
        assert_eq!(admission.admit(old, hello(1, 77)), Ok(()));
        assert_eq!(admission.admit(old, hello(1, 77)), Ok(()), "its second connection");
        assert_eq!(admission.check(old, old), Ok(()));
        assert_eq!(admission.admit(new, hello(1, 78)), Ok(()));
        assert_eq!(admission.check(old, old), Err(Refusal::Starts(old.node, 5, 6)));
        assert_eq!(admission.admit(old, hello(1, 77)), Err(Refusal::Starts(old.node, 5, 6)));
        assert_eq!(admission.check(new, new), Ok(()));
        assert_eq!(admission.admit(process(1, 3, 1), hello(1, 79)), Ok(()), "another node");
    }

    #[test]
    fn two_processes_of_one_start_are_refused() {
        let admission = Admission::new(process(1, 1, 9));
        assert_eq!(admission.admit(process(1, 2, 5), hello(1, 77)), Ok(()));
        let copy = process(1, 2, 5);
        assert_eq!(admission.admit(copy, hello(1, 78)), Err(Refusal::Twice(copy.node, 5)));
    }

    #[test]
    fn other_clusters_receivers_and_the_own_node_are_refused() {
        let own = process(1, 1, 9);
        let admission = Admission::new(own);
        let of_other = process(2, 2, 1);
        assert_eq!(
            admission.admit(of_other, hello(1, 77)),
            Err(Refusal::Cluster(of_other.cluster, own.cluster))
        );
        let to_other = hello(3, 77);
        assert_eq!(admission.admit(process(1, 2, 1), to_other), Err(Refusal::Receiver(to_other.to)));
        assert_eq!(admission.admit(process(1, 1, 10), hello(1, 77)), Err(Refusal::OwnNode(own.node)));
        assert_eq!(admission.check(process(1, 2, 1), process(1, 3, 1)), Err(Refusal::OtherProcess));
    }
}
