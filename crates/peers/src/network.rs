//! The network of a process.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use replica::ReplicaId;
use shard::{GroupId, PeerMessage, Peers};
use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};
use units::Bytes;

use crate::context::{Context, Receiver};
use crate::counters::NetworkCounters;
use crate::error::{Error, Result};
use crate::frame::MAX_MESSAGE;
use crate::identity::ProcessId;
use crate::outgoing::Link;
use crate::queue::Queue;
use crate::tls::{Tls, TlsFiles};
use crate::{incoming, outgoing};
use replica::{ClusterId, NodeId};

/// The most bytes of a message that goes with the urgent ones: heartbeats, votes, acknowledgements and short appends.
const URGENT_MESSAGE: usize = 64 << 10;

/// The settings of a process's network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkOptions {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node of this process.
    pub node: NodeId,
    /// The node's start counter, durable and above that of each earlier process of the node: peers refuse earlier ones.
    pub starts: u64,
    /// The address at which other processes reach this one. Port 0 stands for any free one. Loopback, or with TLS.
    pub listen: SocketAddr,
    /// TLS, for addresses off loopback.
    pub tls: Option<TlsFiles>,
    /// The most bytes of messages that wait for a node, of up to 64 KiB each. A further one is dropped.
    pub urgent_queue: Bytes,
    /// The most bytes of longer messages that wait for a node. A further one is dropped.
    pub bulk_queue: Bytes,
}

impl NetworkOptions {
    /// The settings of a process of that node with the usual queues, 8 MiB and 64 MiB, and without TLS.
    pub fn new(cluster: ClusterId, node: NodeId, starts: u64, listen: SocketAddr) -> NetworkOptions {
        let (urgent_queue, bulk_queue) = (Bytes(8 << 20), Bytes(64 << 20));
        NetworkOptions { cluster, node, starts, listen, tls: None, urgent_queue, bulk_queue }
    }
}

/// The connections of a process to the other processes of its cluster.
///
/// Dropping it ends them; a call of the receiver may still be under way then. The network keeps its receiver, so that the receiver is not to keep the network.
pub struct Network {
    context: Arc<Context>,
    runtime: Handle,
    address: SocketAddr,
    queues: (Bytes, Bytes),
    nodes: RwLock<HashMap<NodeId, Node>>,
    /// Messages between replicas of this process.
    local: Arc<Queue>,
    /// The tasks that take connections and deliver local messages.
    _tasks: [Task; 2],
}

/// Another node: its address, and what waits for it.
struct Node {
    address: SocketAddr,
    urgent: Arc<Queue>,
    bulk: Arc<Queue>,
    /// The connection for urgent messages.
    link: Arc<Link>,
    _tasks: [Task; 2],
}

/// A task that ends when this is dropped.
struct Task(AbortHandle);

impl Task {
    fn of(task: &JoinHandle<()>) -> Task {
        Task(task.abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Network {
    /// Starts a process's network on a runtime with I/O and time: it listens, and calls the receiver.
    ///
    /// # Errors
    /// The address is off loopback and there is no TLS, nothing can listen there, or a file of TLS cannot be used.
    pub fn start(options: NetworkOptions, runtime: &Handle, receiver: Arc<dyn Receiver>) -> Result<Network> {
        let NetworkOptions { cluster, node, starts, listen, tls, urgent_queue, bulk_queue } = options;
        let tls = tls.map(|files| Tls::load(&files, node)).transpose()?;
        check_address(tls.is_some(), listen)?;
        let mut process = [0; 8];
        getrandom::fill(&mut process).map_err(Error::Random)?;
        let own = ProcessId { cluster, node, starts };
        let context = Arc::new(Context::new((own, u64::from_le_bytes(process)), tls, receiver, runtime));
        let cannot = |source| Error::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let entered = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(cannot)?;
        drop(entered);
        let local = Arc::new(Queue::new(in_memory(bulk_queue)));
        let accepts = runtime.spawn(incoming::accept(Arc::clone(&context), listener));
        let delivers = runtime.spawn(deliver_local(Arc::clone(&context), Arc::clone(&local)));
        Ok(Network {
            context,
            runtime: runtime.clone(),
            address,
            queues: (urgent_queue, bulk_queue),
            nodes: RwLock::default(),
            local,
            _tasks: [Task::of(&accepts), Task::of(&delivers)],
        })
    }

    /// The address at which the network listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A node is to be reached at this address from now on. What waits for it at another address is dropped.
    ///
    /// # Errors
    /// The address is off loopback and there is no TLS.
    pub fn set_node(&self, node: NodeId, address: SocketAddr) -> Result<()> {
        check_address(self.context.tls.is_some(), address)?;
        let mut nodes = self.nodes.write();
        let is_known = nodes.get(&node).is_some_and(|present| present.address == address);
        if is_known || node == self.context.own.node {
            return Ok(());
        }
        let (urgent, bulk) = self.queues;
        let [urgent, bulk] = [urgent, bulk].map(|most| Arc::new(Queue::new(in_memory(most))));
        let link = Arc::new(Link::default());
        let tasks = [(&urgent, Arc::clone(&link)), (&bulk, Arc::default())].map(|(queue, link)| {
            let queue = (Arc::clone(queue), link);
            let carry = outgoing::carry(Arc::clone(&self.context), node, address, queue);
            Task::of(&self.runtime.spawn(carry))
        });
        let past = nodes.insert(node, Node { address, urgent, bulk, link, _tasks: tasks });
        drop(nodes);
        if let Some(past) = past {
            self.end(past);
        }
        Ok(())
    }

    /// True if the connection to the node ended within the last while, as when its process dies, and there is no other one yet.
    pub fn is_lost_within(&self, node: NodeId, while_long: Duration) -> bool {
        self.nodes.read().get(&node).is_some_and(|node| node.link.is_lost_within(while_long))
    }

    /// Nothing is sent to the node any more, and what waits for it is dropped.
    pub fn forget_node(&self, node: NodeId) {
        let past = self.nodes.write().remove(&node);
        if let Some(past) = past {
            self.end(past);
        }
    }

    fn end(&self, node: Node) {
        self.context.counters.messages_dropped.add(node.urgent.clear() + node.bulk.clear());
    }

    /// A group's replica is at a node, this one or another, from now on.
    pub fn set_replica(&self, group: GroupId, replica: ReplicaId, node: NodeId) {
        self.context.replicas.write().insert((group, replica), node);
    }

    /// The node of a group's replica, if it was said.
    pub fn node_of(&self, group: GroupId, replica: ReplicaId) -> Option<NodeId> {
        self.context.replicas.read().get(&(group, replica)).copied()
    }

    /// Messages to the replica are dropped from now on.
    pub fn forget_replica(&self, group: GroupId, replica: ReplicaId) {
        self.context.replicas.write().remove(&(group, replica));
    }

    /// The counters since the start.
    pub fn counters(&self) -> NetworkCounters {
        self.context.counters.get()
    }

    /// Puts a message into its queue; false if it is dropped.
    fn enqueue(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: &PeerMessage) -> bool {
        let Some(node) = self.context.replicas.read().get(&(group, to)).copied() else { return false };
        let Some(bytes) = message.encode(group, from, to).filter(|bytes| bytes.len() <= MAX_MESSAGE) else {
            return false;
        };
        if node == self.context.own.node {
            return self.local.push(bytes);
        }
        match self.nodes.read().get(&node) {
            Some(Node { urgent, .. }) if bytes.len() <= URGENT_MESSAGE => urgent.push(bytes),
            Some(Node { bulk, .. }) => bulk.push(bytes),
            None => false,
        }
    }
}

impl Peers for Network {
    /// Encodes the message and puts it into a queue. A message is dropped, and counted, if the replica's node or the node's address is not known, or if the queue is full. A message of more than 16 MiB is never sent.
    fn send(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        if !self.enqueue(group, from, to, &message) {
            self.context.counters.messages_dropped.add(1);
        }
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network")
            .field("own", &self.context.own)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Delivers the messages between replicas of this process, for ever.
async fn deliver_local(context: Arc<Context>, queue: Arc<Queue>) {
    loop {
        queue.until_filled().await;
        if let Some(message) = queue.pop_if(|_| true) {
            context.deliver(context.own.node, &[&message]).expect("the message's own bytes");
        }
        tokio::task::yield_now().await;
    }
}

fn check_address(has_tls: bool, address: SocketAddr) -> Result<()> {
    if has_tls || address.ip().is_loopback() { Ok(()) } else { Err(Error::NeedsTls { address }) }
}

fn in_memory(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}
