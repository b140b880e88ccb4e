//! Networks on loopback, and receivers that keep what they get.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use peers::{Network, NetworkOptions, Receiver};
use raft::eraftpb::{Message as RaftMessage, MessageType};
use replica::{ClusterId, NodeId};
use replica::{Index, Message, ReplicaId};
use shard::{Answer, GroupId, PeerMessage, Peers, RequestId};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// The longest that a test waits for what is to happen: far more than a slow machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The time between two messages of a test that sends until one arrives.
const PAUSE: Duration = Duration::from_millis(20);

pub const GROUP: GroupId = GroupId(7);

pub fn cluster(n: u8) -> ClusterId {
    ClusterId(Uuid::from_bytes([n; 16]))
}

pub fn node(n: u8) -> NodeId {
    NodeId(Uuid::from_bytes([n; 16]))
}

pub fn free() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A free port that no connection takes for its own end: those are at 127.0.0.1.
pub fn free_for_later(n: u8) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 71, n], 0));
    std::net::TcpListener::bind(address).and_then(|bound| bound.local_addr()).expect("a port")
}

/// Settings of that node at its first start.
pub fn options(n: u8) -> NetworkOptions {
    NetworkOptions::new(cluster(1), node(n), 1, free())
}

/// A heartbeat of the group's replica `from`.
pub fn heartbeat(from: u64, to: u64) -> PeerMessage {
    let raft =
        RaftMessage { msg_type: MessageType::MsgHeartbeat, from, to, term: 3, ..RaftMessage::default() };
    PeerMessage::Replica(Box::new(Message {
        raft,
        sent: None,
        stable: Index(2),
        is_whole: false,
        inquiry: None,
        lacks_room: false,
        version: None,
    }))
}

/// A long message.
pub fn bulk(id: u64, bytes: usize) -> PeerMessage {
    PeerMessage::Answer(RequestId(id), Answer::Values(vec![Some(vec![7; bytes])]))
}

pub fn is_heartbeat(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Replica(_))
}

pub type Received = (GroupId, ReplicaId, ReplicaId, PeerMessage);

/// A receiver that keeps all messages.
#[derive(Default)]
pub struct Inbox {
    received: Mutex<Vec<Received>>,
    changed: Condvar,
}

impl Receiver for Inbox {
    fn receive(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        self.received.lock().push((group, from, to, message));
        self.changed.notify_all();
    }
}

impl Inbox {
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }

    /// Waits until the messages are as the test wants them.
    pub fn wait_until(&self, are_so: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let mut received = self.received.lock();
        while !are_so(&received) {
            let late = self.changed.wait_for(&mut received, PATIENCE).timed_out();
            assert!(!late, "after {PATIENCE:?}: {} messages", received.len());
        }
        received.clone()
    }

    /// Does something again and again until the messages are as the test wants them.
    pub fn repeat_until(&self, mut action: impl FnMut(), are_so: impl Fn(&[Received]) -> bool) {
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if are_so(&self.received.lock()) {
                return;
            }
            action();
            let mut received = self.received.lock();
            if !are_so(&received) {
                self.changed.wait_for(&mut received, PAUSE);
            }
        }
        panic!("{} messages", self.received.lock().len());
    }
}

/// A process: a network with a runtime of its own.
pub struct Process {
    pub network: Network,
    pub inbox: Arc<Inbox>,
    pub runtime: Runtime,
}

impl Process {
    pub fn start(options: NetworkOptions) -> Process {
        let inbox = Arc::new(Inbox::default());
        let runtime = runtime(2);
        let network = Network::start(options, runtime.handle(), Arc::clone(&inbox) as _).expect("starts");
        Process { network, inbox, runtime }
    }

    /// Tells this process where a node is, and that the replica of the same number is there.
    pub fn knows(&self, n: u8, address: SocketAddr) {
        self.network.set_node(node(n), address).expect("an address on loopback");
        self.network.set_replica(GROUP, ReplicaId(n.into()), node(n));
    }

    /// Sends a heartbeat.
    pub fn beat(&self, from: u64, to: u64) {
        self.network.send(GROUP, ReplicaId(from), ReplicaId(to), heartbeat(from, to));
    }

    /// Waits until the network's counters are as the test wants them.
    pub fn wait_for_counters(&self, are_so: impl Fn(peers::NetworkCounters) -> bool) {
        self.repeat_until(|| {}, are_so);
    }

    /// Does something again and again until the network's counters are as the test wants them.
    pub fn repeat_until(&self, mut action: impl FnMut(), are_so: impl Fn(peers::NetworkCounters) -> bool) {
        for _ in 0..PATIENCE.as_millis() / PAUSE.as_millis() {
            if are_so(self.network.counters()) {
                return;
            }
            action();
            let mut received = self.inbox.received.lock();
            self.inbox.changed.wait_for(&mut received, PAUSE);
        }
        panic!("{:?}", self.network.counters());
    }
}

/// A runtime with so many threads.
pub fn runtime(threads: usize) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(threads).enable_all().build().expect("a runtime")
}
