//! The modelled network between the nodes: each node has a link of a rate, and a message takes a fixed time behind the link.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use replica::{GroupId, ReplicaId};
use shard::{Group, PeerMessage, Peers};
use units::{Driver, Instant, sleep_until, spawn};

/// Bytes that a message has on the link beside its own: a frame of `peers` (54), TCP with timestamps and IPv4 (52), Ethernet with preamble and gap (38).
const FRAME_BYTES: u64 = 54 + 52 + 38;

/// The network of one group.
#[derive(Clone, Debug)]
pub(super) struct Network(Arc<Shared>);

struct Shared {
    driver: Arc<dyn Driver>,
    one_way: Duration,
    link_bits_per_s: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    replicas: BTreeMap<ReplicaId, Arc<Group>>,
    /// The time at which a node's link has sent what it has.
    free: BTreeMap<ReplicaId, Instant>,
    /// Messages that were sent.
    messages: u64,
    /// Replicas to which no entries come.
    without_entries: BTreeSet<ReplicaId>,
}

impl Network {
    pub(super) fn new(driver: &Arc<dyn Driver>, one_way: Duration, link_bits_per_s: u64) -> Network {
        let driver = Arc::clone(driver);
        Network(Arc::new(Shared { driver, one_way, link_bits_per_s, state: Mutex::default() }))
    }

    /// Messages to a replica reach it from now on.
    pub(super) fn connect(&self, group: &Arc<Group>) {
        self.0.state.lock().replicas.insert(group.place().replica, Arc::clone(group));
    }

    /// A replica is gone: messages from and to it are lost, those on their way too.
    pub(super) fn disconnect(&self, replica: ReplicaId) {
        self.0.state.lock().replicas.remove(&replica);
    }

    /// Messages with entries to these replicas are lost from now on.
    pub(super) fn withhold_entries(&self, from: impl IntoIterator<Item = ReplicaId>) {
        self.0.state.lock().without_entries = from.into_iter().collect();
    }

    /// Number of messages that were sent so far.
    pub(super) fn messages(&self) -> u64 {
        self.0.state.lock().messages
    }

    /// The time in which a link sends so many bytes of a message, rounded up.
    pub(super) fn sending(&self, bytes: usize) -> Duration {
        let bits = (bytes as u64 + FRAME_BYTES) * 8;
        Duration::from_nanos((bits * 1_000_000_000).div_ceil(self.0.link_bits_per_s))
    }
}

impl Peers for Network {
    fn send(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let bytes = message.encode(group, from, to).expect("a replica sends messages that have bytes");
        let arrives = {
            let state = &mut *self.0.state.lock();
            let withheld = state.without_entries.contains(&to) && has_entries(&message);
            if withheld || !state.replicas.contains_key(&from) {
                return;
            }
            state.messages += 1;
            let free = state.free.entry(from).or_insert(Instant::ORIGIN);
            *free = (*free).max(self.0.driver.now()).after(self.sending(bytes.len()));
            free.after(self.0.one_way)
        };
        let shared = Arc::clone(&self.0);
        let delivery = async move {
            sleep_until(&*shared.driver, arrives).await;
            let (_, from, to, message) = PeerMessage::decode(&bytes).expect("bytes of a message");
            let state = shared.state.lock();
            let is_there = state.replicas.contains_key(&from);
            let receiver = state.replicas.get(&to).filter(|_| is_there).cloned();
            drop(state);
            if let Some(receiver) = receiver {
                receiver.receive(from, message);
            }
        };
        drop(spawn(&*self.0.driver, "message", delivery));
    }
}

fn has_entries(message: &PeerMessage) -> bool {
    matches!(message, PeerMessage::Replica(message) if !message.raft.entries.is_empty())
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "network of {:?} one way", self.one_way)
    }
}
