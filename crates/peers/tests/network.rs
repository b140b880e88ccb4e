//! Processes on loopback that send messages to each other.

mod common;

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::ThreadId;
use std::time::Duration;

use common::{
    GROUP, Inbox, Process, bulk, free, free_for_later, heartbeat, is_heartbeat, node, options, runtime,
};
use parking_lot::Mutex;
use peers::{Error, Network, Receiver};
use replica::ReplicaId;
use shard::{GroupId, PeerMessage, Peers};
use units::Bytes;

#[test]
fn messages_between_three_processes_arrive_at_the_replica_that_they_are_for() {
    let processes = [1, 2, 3].map(|n| Process::start(options(n)));
    for (to, n) in processes.iter().zip(1..) {
        processes.iter().for_each(|process| process.knows(n, to.network.address()));
    }
    for (process, from) in processes.iter().zip(1_u64..) {
        (1..=3).for_each(|to| process.beat(from, to));
    }
    for (process, to) in processes.iter().zip(1_u64..) {
        let mut received = process.inbox.wait_until(|received| received.len() == 3);
        received.sort_by_key(|(_, from, ..)| *from);
        let expected = (1..=3).map(|from| (GROUP, ReplicaId(from), ReplicaId(to), heartbeat(from, to)));
        assert_eq!(received, expected.collect::<Vec<_>>());
        process.wait_for_counters(|counters| counters.messages_sent == 2);
        let counters = process.network.counters();
        assert_eq!((counters.messages_received, counters.messages_dropped), (3, 0));
        assert!(counters.bytes_sent > 2 * 59, "{counters:?}");
    }
}

/// A receiver that notes its thread.
struct ThreadNote(mpsc::Sender<ThreadId>);

impl Receiver for ThreadNote {
    fn receive(&self, _: GroupId, _: ReplicaId, _: ReplicaId, _: PeerMessage) {
        self.0.send(std::thread::current().id()).expect("the test waits");
    }
}

#[test]
fn a_message_to_a_replica_of_the_same_process_is_not_delivered_by_its_sender() {
    let runtime = runtime(1);
    let (notes, noted) = mpsc::channel();
    let network = Network::start(options(1), runtime.handle(), Arc::new(ThreadNote(notes))).expect("starts");
    network.set_replica(GROUP, ReplicaId(2), node(1));
    network.send(GROUP, ReplicaId(1), ReplicaId(2), heartbeat(1, 2));
    assert_ne!(noted.recv().expect("delivered"), std::thread::current().id());
    assert_eq!(network.counters().bytes_sent, 0, "without a socket");
    network.forget_replica(GROUP, ReplicaId(2));
    network.send(GROUP, ReplicaId(1), ReplicaId(2), heartbeat(1, 2));
    assert_eq!(network.counters().messages_dropped, 1);
}

#[test]
fn a_node_that_was_not_there_gets_later_messages() {
    let first = Process::start(options(1));
    let address = free_for_later(1);
    first.knows(2, address);
    first.beat(1, 2);
    first.wait_for_counters(|counters| counters.messages_dropped == 1);
    let mut second = options(2);
    second.listen = address;
    let second = Process::start(second);
    second.inbox.repeat_until(|| first.beat(1, 2), |received| !received.is_empty());
}

#[test]
fn a_process_that_was_killed_is_reached_when_it_has_started_again() {
    let address = free_for_later(2);
    let first = Process::start(options(1));
    let second = Process::start(peers::NetworkOptions { listen: address, ..options(2) });
    first.knows(2, address);
    first.beat(1, 2);
    second.inbox.wait_until(|received| received.len() == 1);
    let Process { network, runtime, .. } = second;
    drop((runtime, network));
    let again = peers::NetworkOptions { starts: 2, listen: address, ..options(2) };
    let second = Process::start(again);
    second.inbox.repeat_until(|| first.beat(1, 2), |received| !received.is_empty());
    // The process that started again reaches those that it had reached before.
    second.knows(1, first.network.address());
    second.beat(2, 1);
    first.inbox.wait_until(|received| received.len() == 1);
}

#[test]
fn a_node_that_has_moved_gets_its_messages_at_the_new_address() {
    let (first, old, new) =
        (Process::start(options(1)), Process::start(options(2)), Process::start(options(2)));
    first.knows(2, old.network.address());
    first.beat(1, 2);
    old.inbox.wait_until(|received| received.len() == 1);
    first.knows(2, new.network.address());
    first.beat(1, 2);
    new.inbox.wait_until(|received| received.len() == 1);
    assert_eq!(old.inbox.received().len(), 1);
}

/// A receiver whose connection of long messages stands still after the first one, until a heartbeat has come.
struct Stalled {
    inbox: Arc<Inbox>,
    stalls: Mutex<Option<mpsc::Receiver<()>>>,
    heartbeat: Mutex<mpsc::Sender<()>>,
}

impl Receiver for Stalled {
    fn receive(&self, group: GroupId, from: ReplicaId, to: ReplicaId, message: PeerMessage) {
        let is_heartbeat = is_heartbeat(&message);
        self.inbox.receive(group, from, to, message);
        if is_heartbeat {
            self.heartbeat.lock().send(()).ok();
        } else if let Some(heartbeat) = self.stalls.lock().take() {
            heartbeat.recv_timeout(Duration::from_secs(60)).expect("a heartbeat comes");
        }
    }
}

#[test]
fn heartbeats_arrive_while_64_mib_of_long_messages_are_under_way() {
    const PARTS: u64 = 64;
    let mut sender = options(1);
    sender.bulk_queue = Bytes(80 << 20);
    let first = Process::start(sender);
    let (inbox, runtime) = (Arc::new(Inbox::default()), runtime(2));
    let (heartbeat, stalls) = mpsc::channel();
    let receiver =
        Stalled { inbox: Arc::clone(&inbox), stalls: Some(stalls).into(), heartbeat: heartbeat.into() };
    let second = Network::start(options(2), runtime.handle(), Arc::new(receiver)).expect("starts");
    first.knows(2, second.address());
    for part in 0..PARTS {
        first.network.send(GROUP, ReplicaId(1), ReplicaId(2), bulk(part, 1 << 20));
    }
    // The first long message holds the others back until the heartbeat comes.
    inbox.wait_until(|received| !received.is_empty());
    first.beat(1, 2);
    let received = inbox.wait_until(|received| received.len() == PARTS as usize + 1);
    let at = received.iter().position(|(.., message)| is_heartbeat(message));
    assert_eq!(at, Some(1), "behind the long message that stood still");
    assert_eq!(first.network.counters().messages_dropped, 0);
}

#[test]
fn messages_that_wait_go_in_one_frame() {
    let (second, runtime) = (Process::start(options(2)), runtime(1));
    let inbox = Arc::new(Inbox::default());
    let first = Network::start(options(1), runtime.handle(), inbox).expect("starts");
    first.set_node(node(2), second.network.address()).expect("on loopback");
    let ((go, gone), (begin, begun)) = (mpsc::channel::<()>(), mpsc::channel());
    // The only thread of the runtime waits, so that no message is written.
    runtime.spawn(async move {
        begin.send(()).expect("the test waits");
        gone.recv().ok()
    });
    begun.recv().expect("the task runs");
    for group in 0..1000 {
        first.set_replica(GroupId(group), ReplicaId(2), node(2));
        first.send(GroupId(group), ReplicaId(1), ReplicaId(2), heartbeat(1, 2));
    }
    drop(go);
    second.inbox.wait_until(|received| received.len() == 1000);
    while first.counters().messages_sent < 1000 {
        std::thread::yield_now();
    }
    assert_eq!(first.counters().frames_sent, 1);
}

#[test]
fn a_node_that_reads_nothing_fills_its_queue_and_no_more() {
    let mut bounded = options(1);
    bounded.bulk_queue = Bytes(4 << 20);
    let first = Process::start(bounded);
    let deaf = std::net::TcpListener::bind(free()).expect("a port");
    first.knows(2, deaf.local_addr().expect("bound"));
    for part in 0..100 {
        first.network.send(GROUP, ReplicaId(1), ReplicaId(2), bulk(part, 1 << 20));
    }
    let counters = first.network.counters();
    assert!(counters.messages_dropped > 50, "{counters:?}");
    // Heartbeats still have room.
    let dropped = counters.messages_dropped;
    first.beat(1, 2);
    assert_eq!(first.network.counters().messages_dropped, dropped);
}

#[test]
fn messages_that_are_too_long_or_to_nobody_known_are_dropped() {
    let (first, second) = (Process::start(options(1)), Process::start(options(2)));
    first.beat(1, 2);
    first.knows(2, second.network.address());
    first.network.send(GROUP, ReplicaId(1), ReplicaId(2), bulk(1, peers::frame::MAX_MESSAGE));
    assert_eq!(first.network.counters().messages_dropped, 2);
    first.network.send(GROUP, ReplicaId(1), ReplicaId(2), bulk(2, peers::frame::MAX_MESSAGE - 42));
    second.inbox.wait_until(|received| received.len() == 1);
    first.network.forget_node(node(2));
    first.beat(1, 2);
    assert_eq!(first.network.counters().messages_dropped, 3);
}

#[test]
fn addresses_off_loopback_need_tls() {
    let runtime = runtime(1);
    let mut anywhere = options(1);
    anywhere.listen = "0.0.0.0:0".parse().expect("an address");
    let error = Network::start(anywhere, runtime.handle(), Arc::new(Inbox::default())).expect_err("refused");
    assert!(matches!(error, Error::NeedsTls { .. }), "{error}");
    assert!(error.to_string().contains("give a certificate"), "{error}");
    let first = Process::start(options(1));
    let elsewhere = "192.0.2.1:7000".parse().expect("an address");
    assert!(matches!(first.network.set_node(node(2), elsewhere), Err(Error::NeedsTls { .. })));
}
