//! Tests of servers that are nodes of a cluster.
//!
//! The keys of the tests: `b` (slot 3300) and `hello` (866) are in group 1, `c` (7365) in group 2, `a` (15495) and `foo`
//! (12182) in group 3.

pub mod nodes;
mod once;
mod operators;
mod replies;
mod transactions;

use std::sync::atomic::Ordering;
use std::time::Duration;

use server::ServeOptions;

use self::nodes::Nodes;
use crate::common::*;

/// Longer than any test, so that a command whose hold must not end does not end.
const LONG_MS: u64 = 600_000;

fn with_hold(hold_ms: u64) -> ServeOptions {
    ServeOptions { hold_ms, ..options() }
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn error(text: &str) -> Value {
    Value::Error(text.into())
}

fn moved(slot: u16, nodes: &Nodes, node: usize) -> Value {
    error(&format!("MOVED {slot} {}", nodes.0[node].server.address))
}

/// Sends command lines in one write, as pipelines do, and returns their replies.
fn send_pipeline(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    let words = |line: &&str| Client::encode(&line.split(' ').collect::<Vec<_>>());
    client.send_raw(&lines.iter().map(words).collect::<Vec<_>>().concat());
    lines.iter().map(|_| client.reply().unwrap()).collect()
}

#[test]
fn a_command_runs_at_the_leader_and_other_nodes_name_it() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let (mut first, mut second) = (nodes.0[0].client(), nodes.0[1].client());
    assert_eq!(first.line("SET b 1"), ok());
    assert_eq!(first.line("SET c 1"), moved(7365, &nodes, 1));
    assert_eq!(second.line("SET c 1"), ok());
    assert_eq!(second.line("GET b"), moved(3300, &nodes, 0));
    assert_eq!(first.line("GET b"), bulk("1"));
    nodes.lead([Some(1), Some(1), Some(0)], 2);
    assert_eq!(first.line("GET b"), moved(3300, &nodes, 1));
    assert_eq!(second.line("GET b"), bulk("1"));
}

#[test]
fn keys_of_several_slots_are_refused_also_within_a_group() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    for line in ["MGET b c", "MSET b 1 hello 2", "DEL b {c}b", "WATCH a b"] {
        let expected = error("CROSSSLOT Keys in request don't hash to the same slot");
        assert_eq!(client.line(line), expected, "{line}");
    }
    assert_eq!(client.line("MSET {b}1 x {b}2 y"), ok());
    assert_eq!(client.line("MGET {b}1 {b}2"), Value::Array(vec![bulk("x"), bulk("y")]));
    assert_eq!(client.line("MGET"), error("ERR wrong number of arguments for 'mget' command"));
}

#[test]
fn a_command_without_a_leader_is_answered_once_there_is_one() {
    let nodes = Nodes::start(2, [Some(0), None, None], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    client.send_raw(b"INCR b\r\nINCR c\r\nINCR a\r\nINCR b\r\n");
    assert_eq!(client.reply(), Some(Value::Integer(1)), "replies before the wait are not kept back");
    std::thread::sleep(Duration::from_millis(100));
    nodes.lead([Some(0), Some(0), None], 1);
    assert_eq!(client.reply(), Some(Value::Integer(1)));
    nodes.lead([Some(0), Some(0), Some(1)], 1);
    assert_eq!(client.reply(), Some(moved(15495, &nodes, 1)));
    assert_eq!(client.reply(), Some(Value::Integer(2)));
}

#[test]
fn a_turn_that_the_engine_gives_back_runs_once_it_leads_again() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let replica = nodes.0[0].replica(1);
    let mut client = nodes.0[0].client();
    // The process says that it leads, and its replica does not.
    replica.view.store(0, Ordering::SeqCst);
    client.send_raw(b"INCR b\r\nINCR b\r\n");
    let mut reader = nodes.0[0].client();
    reader.send_raw(b"GET b\r\n");
    std::thread::sleep(Duration::from_millis(100));
    replica.view.store(2, Ordering::SeqCst);
    assert_eq!(client.reply(), Some(Value::Integer(1)), "the turn ran once");
    assert_eq!(client.reply(), Some(Value::Integer(2)));
    assert!(matches!(reader.reply(), Some(Value::Null | Value::Bulk(_))));
    // A read and a write whose views are not confirmed have no replies that count.
    replica.failing_confirmations.store(3, Ordering::SeqCst);
    assert_eq!(client.line("GET b"), bulk("2"));
    assert_eq!(replica.failing_confirmations.load(Ordering::SeqCst), 0);
    assert_eq!(client.line("INCR b"), Value::Integer(3));
}

#[test]
fn commands_are_refused_once_the_hold_is_over() {
    let nodes = Nodes::start(1, [Some(0), None, Some(0)], &with_hold(50));
    let mut client = nodes.0[0].client();
    let down = error("CLUSTERDOWN Hash slot not served");
    let replies = send_pipeline(&mut client, &["SET b 1", "SET c 1", "GET c", "PING", "GET b"]);
    assert_eq!(replies, [ok(), down.clone(), down.clone(), Value::Simple("PONG".into()), bulk("1")]);
    nodes.0[0].replica(1).view.store(0, Ordering::SeqCst);
    assert_eq!(client.line("SET b 2"), down);
    assert_eq!(client.line("GET b"), down);
}

#[test]
fn a_slot_without_a_group_is_refused_at_once() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    nodes.0[0].forget_slots(3);
    assert_eq!(nodes.0[0].client().line("GET foo"), error("CLUSTERDOWN Hash slot not served"));
}

#[test]
fn a_connection_that_waits_for_a_leader_ends_when_it_is_killed_and_at_the_shutdown() {
    let mut nodes = Nodes::start(1, [Some(0), None, Some(0)], &with_hold(LONG_MS));
    let (mut killed, mut left, mut other) = (nodes.0[0].client(), nodes.0[0].client(), nodes.0[0].client());
    let id = killed.line("CLIENT ID").text();
    for client in [&mut killed, &mut left] {
        client.send_raw(b"GET c\r\n");
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(other.line(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    assert!(killed.is_closed());
    other.send_raw(b"SHUTDOWN\r\n");
    assert!(left.is_closed());
    nodes.0.remove(0).server.end().unwrap();
}

#[test]
fn a_write_without_a_known_outcome_closes_the_connection() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    nodes.0[0].replica(1).outcomes_are_open.store(true, Ordering::SeqCst);
    client.send_raw(b"SET b 1\r\n");
    assert!(client.is_closed());
}

#[test]
fn a_pipeline_over_several_groups_is_answered_in_order() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for n in 1..200 {
        let echo = n.to_string();
        for words in [&["INCR", "b"][..], &["INCR", "a"], &["GET", "c"], &["ECHO", &echo], &["GET", "a"]] {
            bytes.extend(Client::encode(words));
        }
        bytes.extend(b"NO\r\nGET b\r\n");
        expected.extend([Value::Integer(n), Value::Integer(n), moved(7365, &nodes, 1), bulk(&echo)]);
        expected.push(bulk(&echo));
        expected.push(error("ERR unknown command 'NO', with args beginning with: "));
        expected.push(bulk(&echo));
    }
    client.send_raw(&bytes);
    for expected in expected {
        assert_eq!(client.reply(), Some(expected));
    }
}

#[test]
fn reads_in_the_mode_of_readonly_are_answered_by_a_recent_backup() {
    let options = ServeOptions { stale_limit_ms: 500, ..with_hold(LONG_MS) };
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &options);
    let backup = &nodes.0[1];
    assert_eq!(nodes.0[0].client().line("SET b 1"), ok());
    let mut client = backup.client();
    let to_leader = moved(3300, &nodes, 0);
    backup.set_behind_ms(Some(500));
    assert_eq!(client.line("GET b"), to_leader);
    assert_eq!(client.line("READONLY"), ok());
    assert_eq!(client.line("GET b"), bulk("1"));
    assert!(client.line("CLIENT LIST").text().contains("flags=r "));
    assert_eq!(client.line("SET b 2"), to_leader);
    assert_eq!(client.line("WATCH b"), to_leader);
    let replies = send_pipeline(&mut client, &["GET b", "SET c 1", "GET c", "MULTI", "GET b", "EXEC"]);
    assert_eq!(replies[..4], [bulk("1"), ok(), bulk("1"), ok()]);
    assert_eq!(replies[4], to_leader, "a transaction runs at the leader");
    assert_eq!(replies[5], error("EXECABORT Transaction discarded because of previous errors."));
    for behind in [Some(501), None] {
        backup.set_behind_ms(behind);
        assert_eq!(client.line("GET b"), to_leader, "{behind:?}");
    }
    backup.set_behind_ms(Some(0));
    backup.replica(1).lacks_values.store(true, Ordering::SeqCst);
    assert_eq!(client.line("GET b"), to_leader, "the backup lacks the value");
    backup.replica(1).lacks_values.store(false, Ordering::SeqCst);
    assert_eq!(send_pipeline(&mut client, &["GET b", "READWRITE", "GET b"]), [bulk("1"), ok(), to_leader]);
}

#[test]
fn a_leader_without_a_value_says_so() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    nodes.0[0].replica(1).lacks_values.store(true, Ordering::SeqCst);
    let mut client = nodes.0[0].client();
    for line in ["GET b", "INCR b"] {
        assert_eq!(client.line(line), error("ERR no replica has the value"), "{line}");
    }
}
