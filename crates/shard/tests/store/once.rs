//! Tests of FURROW.ONCE over a group: answers survive leaders, processes and snapshots.

use std::time::Instant;

use kv::{IDS_MAX, OnceId, Overlay, Reply};
use shard::{BrokenRule, once_row_key};
use units::block_on;

use super::cluster::*;

/// A new id.
fn new_id(cluster: &Cluster) -> String {
    match &cluster.ask(&["FURROW.ONCE NEW n"])[..] {
        [Reply::Bulk(id)] => String::from_utf8_lossy(id).into_owned(),
        other => panic!("no id: {other:?}"),
    }
}

fn once(id: &str, number: u64, command: &str) -> String {
    format!("FURROW.ONCE {id} {number} {command}")
}

fn is_unknown(replies: &[Reply]) -> bool {
    matches!(replies, [Reply::Error(text)] if text.starts_with("ONCEUNKNOWN"))
}

/// The count after one INCR that the client sends again, since the leader has stopped.
fn count_after_one_leader(broken_rule: Option<BrokenRule>) -> i64 {
    let cluster = Cluster::with_broken_rule(broken_rule);
    let id = new_id(&cluster);
    assert_eq!(cluster.ask(&[&once(&id, 1, "INCR n")]), [Reply::Integer(1)]);
    let leader = cluster.leader();
    cluster.stop(leader);
    let replies = cluster.ask(&[&once(&id, 1, "INCR n")]);
    assert_ne!(cluster.leader(), leader);
    let [Reply::Integer(count)] = replies[..] else { panic!("{replies:?}") };
    cluster.close();
    count
}

#[test]
fn a_command_that_is_sent_again_to_the_next_leader_does_not_count_twice() {
    assert_eq!(count_after_one_leader(None), 1);
    // With the answer forgotten, the same trace counts twice.
    assert_eq!(count_after_one_leader(Some(BrokenRule::ForgottenAnswer)), 2);
}

#[test]
fn the_next_leader_knows_ids_numbers_and_answers_of_all_kinds() {
    let cluster = Cluster::start();
    let (id, other) = (new_id(&cluster), new_id(&cluster));
    let twice = once(&id, 1, "INCR n");
    let replies = cluster.ask(&[&twice, &twice, &once(&id, 2, "INCR n"), "GET n", &once(&other, 7, "GET n")]);
    let int = Reply::Integer;
    assert_eq!(replies, [int(1), int(1), int(2), bulk("2"), bulk("2")]);
    cluster.ask(&["SET text x"]);
    let error = cluster.ask(&[&once(&id, 3, "INCR text")]);
    assert!(matches!(&error[..], [Reply::Error(_)]), "{error:?}");
    assert_eq!(cluster.ask(&["FLUSHALL", "SET text 5"]), [ok(), ok()]);
    cluster.stop(cluster.leader());
    assert_eq!(cluster.ask(&[&once(&id, 3, "INCR text")]), error);
    assert_eq!(cluster.ask(&[&once(&other, 7, "GET n")]), [bulk("2")]);
    let late = cluster.ask(&[&once(&id, 2, "INCR n")]);
    assert!(matches!(&late[..], [Reply::Error(text)] if text.starts_with("ONCEOLD")), "{late:?}");
    let unknown = OnceId { number: 1 << 40, ..OnceId::parse(id.as_bytes()).expect("an id") };
    assert!(is_unknown(&cluster.ask(&[&once(&unknown.to_string(), 1, "INCR n")])));
    assert_eq!(cluster.ask(&["EXISTS n", "GET text", "DBSIZE"]), [int(0), bulk("5"), int(1)]);
    assert_eq!(cluster.ask(&[&once(&id, 4, "INCR text")]), [int(6)]);
    let third = new_id(&cluster);
    assert!(third != id && third != other, "the next leader gives ids of its own");
    cluster.close();
}

#[test]
fn answers_survive_the_processes() {
    let mut cluster = Cluster::start();
    let id = new_id(&cluster);
    let line = once(&id, 1, "SET a v GET");
    cluster.ask(&["SET a first"]);
    assert_eq!(cluster.ask(&[&line]), [bulk("first")]);
    // The tables are flushed in one process, and the others read their logs again.
    cluster.nodes[1].group.flush();
    let ended: Vec<Ended> = (0..ROLES.len()).rev().map(|place| cluster.end(place)).collect();
    ended.into_iter().rev().for_each(|ended| cluster.start_again(ended));
    assert_eq!(cluster.ask(&[&line, "GET a"]), [bulk("first"), bulk("v")]);
    assert_ne!(new_id(&cluster), id);
    cluster.close();
}

#[test]
fn a_snapshot_has_the_answers() {
    let mut cluster = Cluster::start();
    let id = new_id(&cluster);
    cluster.ask(&[&once(&id, 1, "INCR n")]);
    // A witness is away while the log that it lacks goes.
    let away = if cluster.leader() == 0 { 2 } else { 0 };
    let ended = cluster.end(away);
    assert_eq!(cluster.ask(&[&once(&id, 2, "INCR n")]), [Reply::Integer(2)]);
    let begun = Instant::now();
    let mut number = 2;
    let base = |cluster: &Cluster| {
        let leads = cluster.leader();
        cluster.nodes[leads].group.with_stored(|stored| stored.base.index)
    };
    let first = base(&cluster);
    while base(&cluster) <= first {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the leader's log is retired in time");
        number += 1;
        assert_eq!(cluster.ask(&[&once(&id, number, "INCR n")]), [Reply::Integer(number as i64)]);
        cluster.nodes.iter().for_each(|node| node.group.flush());
    }
    let at_base = base(&cluster);
    cluster.start_again(ended);
    let key = once_row_key(OnceId::parse(id.as_bytes()).expect("an id"));
    while cluster.nodes[away].tables.applied() < at_base {
        assert!(begun.elapsed() < TEST_TIMEOUT, "the witness has its snapshot in time");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(cluster.nodes[away].group.with_stored(|stored| stored.base.index) >= at_base, "by a snapshot");
    assert!(cluster.nodes[away].tables.get(&key).expect("reads").is_some());
    cluster.stop(cluster.leader());
    let line = once(&id, number, "INCR n");
    assert_eq!(cluster.ask(&[&line]), [Reply::Integer(number as i64)]);
    assert_eq!(cluster.leader(), away);
    cluster.close();
}

#[test]
fn the_longest_idle_id_of_a_full_table_expires() {
    let cluster = Cluster::start();
    let (idle, used) = (new_id(&cluster), new_id(&cluster));
    let mut many = Overlay::default();
    let id = |number: u64| OnceId { group: GROUP.0, view: 0, number };
    let record = kv::OnceRecord::default().encode();
    (2..IDS_MAX as u64).for_each(|number| many.make_once(id(number), record.clone().into()));
    let leader = &cluster.nodes[cluster.leader()];
    block_on(&**leader.fs.driver(), leader.group.write(&many)).expect("the leader leads");
    assert_eq!(cluster.ask(&[&once(&used, 1, "INCR n")]), [Reply::Integer(1)]);
    let newest = new_id(&cluster);
    assert!(is_unknown(&cluster.ask(&[&once(&idle, 1, "INCR n")])));
    for id in [used, newest, id(2).to_string()] {
        assert_eq!(cluster.ask(&[&once(&id, 2, "EXISTS n")]), [Reply::Integer(1)], "{id}");
    }
    let ids = leader.tables.once_ids(1).expect("reads");
    assert_eq!((ids.count, ids.longest_idle), (IDS_MAX, vec![id(3)]));
    cluster.close();
}
