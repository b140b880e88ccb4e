//! A group of replicas with an engine over each: commands, reads, and commands that run once.
#![allow(clippy::indexing_slicing, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "the replicas run in real time")]

mod cluster;
mod once;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kv::Reply;
use replica::{Index, Term};
use shard::{MAX_COMMAND, PeerMessage, RecordName, Request, RequestId};
use units::block_on;

use self::cluster::*;

/// Waits until a backup says that it is behind by more, or by less, than a time.
fn wait_until(backup: &Node, is_so: impl Fn(Duration) -> bool) {
    let begun = Instant::now();
    while !backup.group.behind().is_some_and(&is_so) {
        assert!(begun.elapsed() < TEST_TIMEOUT, "behind by {:?}", backup.group.behind());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_backup_has_what_was_acknowledged_before_the_time_that_it_may_be_behind() {
    let cluster = Cluster::start();
    let backup = &cluster.nodes[1];
    for n in 0..30 {
        assert_eq!(cluster.ask(&[&format!("SET n {n}")]), [ok()]);
        let acknowledged = Instant::now();
        wait_until(backup, |behind| behind < acknowledged.elapsed());
        assert_eq!(read_here(backup, "n"), bulk(&n.to_string()));
    }
    // Without a leader the backup's tables grow old.
    [0, 2].into_iter().for_each(|node| cluster.stop(node));
    wait_until(backup, |behind| behind > Duration::from_secs(1));
    assert_eq!(read_here(backup, "n"), bulk("29"));
    cluster.close();
}

#[test]
fn commands_run_where_the_group_is_led_and_survive_the_leader() {
    let cluster = Cluster::start();
    assert_eq!(cluster.ask(&["SET a 1", "INCR n", "GET a"]), [ok(), Reply::Integer(1), bulk("1")]);
    let leader = cluster.leader();
    for (number, node) in cluster.nodes.iter().enumerate().filter(|(number, _)| *number != leader) {
        assert!(matches!(ask(&node.engine, &["INCR n"]), Answer::NotLeader), "node {number} leads no group");
        assert!(node.engine.read_in_view(|_| ()).is_err(), "node {number} answers no reads");
    }
    for n in 2..=50 {
        assert_eq!(cluster.ask(&["INCR n"]), [Reply::Integer(n)]);
    }
    assert_eq!(cluster.ask(&["SET a 2 NX GET", "APPEND a x"]), [bulk("1"), Reply::Integer(2)]);
    cluster.stop(leader);
    // The next leader has no values of its own: it gets what a command reads.
    assert_eq!(cluster.ask(&["GET a", "INCR n"]), [bulk("1x"), Reply::Integer(51)]);
    assert_ne!(cluster.leader(), leader);
    assert_eq!(cluster.ask(&["DEL a", "EXISTS a n"]), [Reply::Integer(1), Reply::Integer(1)]);
    cluster.close();
}

#[test]
fn a_batch_that_no_message_takes_is_refused_and_nothing_else() {
    let cluster = Cluster::start();
    let long = format!("SET long {}", "x".repeat(usize::try_from(MAX_COMMAND.0).expect("fits") + 1));
    let replies = cluster.ask(&[&long]);
    assert!(matches!(&replies[..], [Reply::Error(text)] if text.contains("longer than")), "{replies:?}");
    assert_eq!(cluster.ask(&["SET short x", "EXISTS long"]), [ok(), Reply::Integer(0)]);
    cluster.close();
}

#[test]
fn a_read_counts_while_the_leader_is_one() {
    let cluster = Cluster::start();
    cluster.ask(&["SET a 1"]);
    let node = &cluster.nodes[cluster.leader()];
    let (value, reading) = node.engine.read_in_view(|txn| txn.value(b"a")).expect("it leads");
    assert_eq!(value.expect("reads").map(|record| record.value), Some("1".into()));
    assert!(block_on(&**node.fs.driver(), node.engine.settle(reading)).expect("it still leads"));
    let (_, reading) = node.engine.read_in_view(|txn| txn.value(b"a")).expect("it leads");
    // Cut off from the others, the leader confirms nothing once its lease is over.
    cluster.groups.lock().clear();
    let begun = Instant::now();
    while node.group.view().is_ok() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "a leader without a majority steps down in time");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(block_on(&**node.fs.driver(), node.engine.settle(reading)).is_err());
    cluster.close();
}

/// A heartbeat from the leader that says that more is committed than this replica's log has: its sender counts on entries that were here before, as after a copied or restored drive.
#[test]
fn a_commit_index_beyond_the_log_ends_no_thread() {
    let cluster = Cluster::start();
    cluster.ask(&["SET a 1"]);
    let leader = cluster.leader();
    let follower = (leader + 1) % ROLES.len();
    let (from, term) = {
        let group = &cluster.nodes[leader].group;
        (group.place().replica, group.with_replica(|replica| replica.term()))
    };
    let to = cluster.nodes[follower].group.place().replica;
    let raft = raft::eraftpb::Message {
        msg_type: raft::eraftpb::MessageType::MsgHeartbeat,
        from: from.0,
        to: to.0,
        term: term.0,
        commit: 1_000_000,
        ..Default::default()
    };
    let message = replica::Message {
        raft,
        sent: None,
        stable: replica::Index(0),
        is_whole: false,
        inquiry: None,
        lacks_room: false,
        version: None,
    };
    let group = Arc::clone(&cluster.nodes[follower].group);
    let received = std::thread::spawn(move || {
        group.receive(from, PeerMessage::Replica(Box::new(message)));
    });
    assert!(received.join().is_ok(), "the message is refused in words");
    assert_eq!(cluster.ask(&["GET a"]), [bulk("1")]);
    cluster.close();
}

/// A request for the value of a stored key that is no row's: the state of the tables has such a key.
#[test]
fn a_request_for_what_is_no_row_ends_no_replica() {
    let cluster = Cluster::start();
    cluster.ask(&["SET a 1"]);
    let leader = cluster.leader();
    let from = cluster.nodes[leader].group.place().replica;
    for key in [&b"m"[..], b"", b"o", b"s"] {
        let name = RecordName { key: key.to_vec(), index: Index(1), term: Term(1) };
        for node in &cluster.nodes {
            node.group.receive(from, PeerMessage::Request(RequestId(7), Request::Values(vec![name.clone()])));
            assert_eq!(node.group.ended(), None, "key {key:?}");
        }
    }
    cluster.nodes.iter().for_each(|node| node.group.flush());
    assert_eq!(cluster.ask(&["GET a"]), [bulk("1")]);
    cluster.close();
}
