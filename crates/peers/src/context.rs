//! The process, for all of its connections.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use replica::ReplicaId;
use shard::{GroupId, PeerMessage};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::admission::{Admission, Refusal};
use crate::counters::Counters;
use crate::frame::Hello;
use crate::identity::ProcessId;
use crate::tls::Tls;
use replica::NodeId;

/// The receiver of messages for the replicas of a process.
pub trait Receiver: Send + Sync {
    /// A message came for a replica, which may not be here. Called from the threads of the runtime, several at a time. The connection that carried the message waits for the return. Not to wait for a drive or a peer: a call for a short message holds back other connections.
    fn receive(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage);
}

/// The process, its settings and its receiver.
pub(crate) struct Context {
    pub(crate) own: ProcessId,
    /// The number that this process drew.
    pub(crate) process: u64,
    pub(crate) tls: Option<Tls>,
    pub(crate) admission: Admission,
    pub(crate) counters: Counters,
    /// The nodes of replicas.
    pub(crate) replicas: RwLock<HashMap<(GroupId, ReplicaId), NodeId>>,
    receiver: Arc<dyn Receiver>,
    /// True if the runtime has other threads that go on while one delivers.
    has_threads: bool,
}

/// The most replicas whose nodes are noted by their messages: those of 1,024 groups.
const MAX_REPLICAS: usize = 1 << 16;

/// Bytes of messages whose delivery takes long.
const LONG_DELIVERY: usize = 64 << 10;

impl Context {
    pub(crate) fn new(
        (own, process): (ProcessId, u64),
        tls: Option<Tls>,
        receiver: Arc<dyn Receiver>,
        runtime: &Handle,
    ) -> Context {
        let (admission, counters) = (Admission::new(own), Counters::default());
        let has_threads = runtime.runtime_flavor() != RuntimeFlavor::CurrentThread;
        Context { own, process, tls, admission, counters, replicas: RwLock::default(), receiver, has_threads }
    }

    /// The hello of a connection to a node.
    pub(crate) fn hello(&self, to: NodeId) -> Hello {
        Hello { to, process: self.process }
    }

    /// Delivers the messages with these bytes from a node: all, or none if the bytes of one are no message's.
    pub(crate) fn deliver(&self, node: NodeId, messages: &[&[u8]]) -> Result<(), Refusal> {
        let bytes: usize = messages.iter().map(|message| message.len()).sum();
        if bytes > LONG_DELIVERY && self.has_threads {
            // The thread's other connections, and the runtime's I/O, go to another thread meanwhile.
            return block_in_place(|| self.decode_and_deliver(node, messages));
        }
        self.decode_and_deliver(node, messages)
    }

    fn decode_and_deliver(&self, node: NodeId, messages: &[&[u8]]) -> Result<(), Refusal> {
        let mut decoded = Vec::with_capacity(messages.len());
        for bytes in messages {
            match PeerMessage::decode(bytes) {
                Ok(message) => decoded.push(message),
                // The replica ends in words at the next heartbeat, which says the group's version.
                Err(shard::Error::TooOld(why)) => tracing::debug!(%node, "a message is dropped: {why}"),
                Err(error) => return Err(Refusal::Message(error.to_string())),
            }
        }
        self.counters.messages_received.add(decoded.len());
        for (group, from, to, message) in decoded {
            self.note_sender(group, from, node);
            self.receiver.receive(group, from, to, message);
        }
        Ok(())
    }

    /// Notes the node of a replica by a message of the replica, where nothing was said of it: the group has left the replica out, or etcd has forgotten it. Without its node the answer could not be sent.
    fn note_sender(&self, group: GroupId, replica: ReplicaId, node: NodeId) {
        let is_new = {
            let replicas = self.replicas.read();
            replicas.len() < MAX_REPLICAS && !replicas.contains_key(&(group, replica))
        };
        if is_new {
            self.replicas.write().entry((group, replica)).or_insert(node);
        }
    }
}
