//! Tests of transactions in a cluster.

use super::*;

#[test]
fn a_transaction_of_one_slot_runs_in_its_group() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let node = &nodes.0[0];
    let mut client = node.client();
    let lines = ["PING", "INCR a", "MULTI", "INCR b", "GET b", "PING", "EXEC", "GET b"];
    let replies = send_pipeline(&mut client, &lines);
    let pong = Value::Simple("PONG".into());
    assert_eq!(replies[6], Value::Array(vec![Value::Integer(1), bulk("1"), pong.clone()]));
    assert_eq!(replies[7], bulk("1"));
    assert_eq!(node.replica(1).data.write_count(), 1);
    let replies = send_pipeline(&mut client, &["MULTI", "PING", "EXEC", "EXEC", "MULTI", "DISCARD"]);
    assert_eq!(replies[2], Value::Array(vec![pong]));
    assert_eq!(replies[3], error("ERR EXEC without MULTI"));
    assert_eq!(replies[5], ok());
}

#[test]
fn a_transaction_of_several_slots_is_refused_at_exec_as_in_redis() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let cross = error("CROSSSLOT Keys in request don't hash to the same slot");
    let aborted = error("EXECABORT Transaction discarded because of previous errors.");
    let queued = Value::Simple("QUEUED".into());
    for other in ["SET a 1", "SET hello 1"] {
        let replies = send_pipeline(&mut client, &["MULTI", "SET b 1", other, "EXEC", "EXEC"]);
        let ended = error("ERR EXEC without MULTI");
        assert_eq!(replies, [ok(), queued.clone(), queued.clone(), cross.clone(), ended]);
    }
    let replies = send_pipeline(&mut client, &["MULTI", "SET b 1", "MSET b 1 a 1", "EXEC"]);
    assert_eq!(replies[2..], [cross.clone(), aborted.clone()]);
    let replies = send_pipeline(&mut client, &["MULTI", "SET b 1", "SET c 1", "EXEC"]);
    assert_eq!(replies[2..], [moved(7365, &nodes, 1), aborted.clone()]);
    let replies = send_pipeline(&mut client, &["MULTI", "SET b 1", "DBSIZE", "EXEC"]);
    assert!(replies[2].text().starts_with("ERR DBSIZE concerns all groups"), "{replies:?}");
    assert_eq!(replies[3], aborted);
    let replies = send_pipeline(&mut client, &["WATCH a", "MULTI", "SET b 1", "EXEC", "EXISTS b"]);
    assert_eq!(replies[3..], [cross, Value::Integer(0)]);
}

#[test]
fn a_transaction_waits_for_a_leader_and_runs_once() {
    let nodes = Nodes::start(1, [Some(0), None, Some(0)], &with_hold(LONG_MS));
    let node = &nodes.0[0];
    let mut client = node.client();
    client.send_raw(b"MULTI\r\nINCR c\r\nINCR c\r\nEXEC\r\n");
    std::thread::sleep(Duration::from_millis(50));
    node.set_view(2, 1);
    for _ in 0..3 {
        client.reply().unwrap();
    }
    assert_eq!(client.reply(), Some(Value::Array(vec![Value::Integer(1), Value::Integer(2)])));
    assert_eq!(client.line("GET c"), bulk("2"));
    assert_eq!(node.replica(2).data.write_count(), 1);
}

#[test]
fn a_transaction_that_the_engine_gives_back_runs_again_without_watches_only() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let replica = nodes.0[0].replica(1);
    let mut client = nodes.0[0].client();
    let lines = ["SET {b}x 1", "MULTI", "INCR b", "EXEC"];
    assert_eq!(client.line("WATCH b"), ok());
    replica.failing_confirmations.store(1, Ordering::SeqCst);
    // The first write of the pipeline is given back and runs again; the transaction is not concerned.
    assert_eq!(send_pipeline(&mut client, &lines)[3], Value::Array(vec![Value::Integer(1)]));
    assert_eq!(client.line("WATCH b"), ok());
    replica.failing_confirmations.store(1, Ordering::SeqCst);
    let replies = send_pipeline(&mut client, &["GET c", "MULTI", "INCR b", "EXEC"]);
    assert_eq!(
        replies[3],
        Value::Null,
        "the key may have been written while the engine did not have the turn"
    );
    replica.failing_confirmations.store(1, Ordering::SeqCst);
    assert_eq!(send_pipeline(&mut client, &lines[1..])[2], Value::Array(vec![Value::Integer(2)]));
    assert_eq!(replica.failing_confirmations.load(Ordering::SeqCst), 0);
}

#[test]
fn a_watched_key_counts_as_written_once_another_term_has_begun() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let transaction = ["MULTI", "INCR b", "EXEC"];
    client.line("WATCH b");
    assert_eq!(send_pipeline(&mut client, &transaction)[2], Value::Array(vec![Value::Integer(1)]));
    client.line("WATCH b");
    // Another node may have led, and written the key, between the two views.
    nodes.0[0].set_view(1, 2);
    assert_eq!(send_pipeline(&mut client, &transaction)[2], Value::Null);
    client.line("WATCH b");
    assert_eq!(send_pipeline(&mut client, &transaction)[2], Value::Array(vec![Value::Integer(2)]));
    client.line("WATCH b");
    nodes.0[0].client().line("SET b 7");
    assert_eq!(send_pipeline(&mut client, &transaction)[2], Value::Null);
}
