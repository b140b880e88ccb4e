//! Tests of FURROW.ONCE in a cluster.

use super::*;

fn new_id(client: &mut Client, key: &str) -> String {
    match client.line(&format!("FURROW.ONCE NEW {key}")) {
        Value::Bulk(id) => String::from_utf8(id).unwrap(),
        other => panic!("no id: {other:?}"),
    }
}

#[test]
fn an_id_and_its_commands_go_where_the_keys_of_the_command_are_led() {
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &with_hold(LONG_MS));
    let (mut first, mut second) = (nodes.0[0].client(), nodes.0[1].client());
    assert_eq!(first.line("FURROW.ONCE NEW c"), moved(7365, &nodes, 1));
    let id = new_id(&mut second, "c");
    assert!(id.starts_with("2-"), "the id names its group: {id}");
    assert_eq!(first.line(&format!("FURROW.ONCE {id} 1 INCR c")), moved(7365, &nodes, 1));
    assert_eq!(second.line(&format!("FURROW.ONCE {id} 1 INCR c")), Value::Integer(1));
    // A key of another group: at this group's node, and at the id's own.
    let text = first.line(&format!("FURROW.ONCE {id} 2 INCR b")).text();
    assert!(text.starts_with(&format!("ERR id {id} belongs to group 2")), "{text}");
    assert_eq!(second.line(&format!("FURROW.ONCE {id} 2 INCR b")), moved(3300, &nodes, 0));
    let cross = error("CROSSSLOT Keys in request don't hash to the same slot");
    assert_eq!(second.line(&format!("FURROW.ONCE {id} 2 MSET c 1 b 2")), cross);
    assert_eq!(second.line("READONLY"), ok());
    assert_eq!(second.line(&format!("FURROW.ONCE {id} 2 GET b")), moved(3300, &nodes, 0));
    assert_eq!(first.line("EXISTS b"), Value::Integer(0));
    // The other node leads now, and has the answer.
    nodes.lead([Some(0), Some(0), Some(0)], 2);
    assert_eq!(first.line(&format!("FURROW.ONCE {id} 1 INCR c")), Value::Integer(1));
    assert_eq!(first.line(&format!("FURROW.ONCE {id} 2 INCR c")), Value::Integer(2));
}

#[test]
fn commands_that_concern_more_than_keys_are_refused_without_an_effect() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let id = new_id(&mut client, "b");
    client.line("SET b 1");
    for command in
        ["FLUSHALL", "PING", "MULTI", "EXEC", "SHUTDOWN", "CLUSTER SLOTS", "KEYS *", "SCAN 0", "QUIT"]
    {
        let text = client.line(&format!("FURROW.ONCE {id} 1 {command}")).text();
        assert!(text.starts_with("ERR FURROW.ONCE does not run the command"), "{command}: {text}");
    }
    for line in [format!("FURROW.ONCE {id} 1"), "FURROW.ONCE NEW".into(), "FURROW.ONCE".into()] {
        assert!(client.line(&line).text().starts_with("ERR "), "{line}");
    }
    assert_eq!(client.line("GET b"), bulk("1"));
    assert_eq!(client.line(&format!("FURROW.ONCE {id} 1 INCR b")), Value::Integer(2));
}

#[test]
fn a_command_whose_outcome_was_open_is_sent_again() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let replica = nodes.0[0].replica(1);
    let mut client = nodes.0[0].client();
    let id = new_id(&mut client, "b");
    replica.outcomes_are_open.store(true, Ordering::SeqCst);
    client.send_raw(format!("FURROW.ONCE {id} 1 INCR b\r\n").as_bytes());
    assert!(client.is_closed());
    replica.outcomes_are_open.store(false, Ordering::SeqCst);
    let mut client = nodes.0[0].client();
    for _ in 0..3 {
        assert_eq!(client.line(&format!("FURROW.ONCE {id} 1 INCR b")), Value::Integer(1));
    }
    // A turn that the engine gives back runs again.
    replica.failing_confirmations.store(2, Ordering::SeqCst);
    assert_eq!(client.line(&format!("FURROW.ONCE {id} 2 INCR b")), Value::Integer(2));
    assert_eq!(client.line("GET b"), bulk("2"));
}

#[test]
fn one_pipeline_may_use_an_id_twice_also_in_a_transaction() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let id = new_id(&mut client, "b");
    let once = |number: u64, command: &str| format!("FURROW.ONCE {id} {number} {command}");
    let lines =
        [once(1, "INCR b"), once(1, "INCR b"), "FLUSHALL".into(), once(1, "INCR b"), once(2, "INCR b")];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let one = Value::Integer(1);
    assert_eq!(
        send_pipeline(&mut client, &lines),
        [one.clone(), one.clone(), ok(), one.clone(), one.clone()]
    );
    let lines =
        ["MULTI".into(), once(3, "INCR b"), once(3, "INCR b"), "FURROW.ONCE NEW b".into(), "EXEC".into()];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let Value::Array(replies) = send_pipeline(&mut client, &lines).pop().unwrap() else { panic!("an array") };
    assert_eq!(replies[..2], [Value::Integer(2), Value::Integer(2)]);
    assert!(matches!(&replies[2], Value::Bulk(other) if other != id.as_bytes()));
    assert_eq!(client.line("DBSIZE"), one);
    assert_eq!(client.line("CLUSTER COUNTKEYSINSLOT 3300"), one);
}

#[test]
fn clients_learn_where_the_keys_of_the_command_are() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let keys = |words: &[&str]| Value::Array(words.iter().map(|word| bulk(word)).collect());
    assert_eq!(client.line("COMMAND GETKEYS FURROW.ONCE NEW b"), keys(&["b"]));
    assert_eq!(client.line("COMMAND GETKEYS FURROW.ONCE 1-1-1 1 MSET b 1 c 2"), keys(&["b", "c"]));
    let info = client.line("COMMAND INFO furrow.once").items()[0].clone().items().to_vec();
    assert!(format!("{:?}", info[2]).contains("movablekeys"), "{info:?}");
    assert_eq!(info[3..6], [Value::Integer(0), Value::Integer(0), Value::Integer(0)]);
}

#[test]
fn an_answer_is_repeated_in_the_protocol_of_the_client() {
    let nodes = Nodes::start(1, [Some(0); 3], &with_hold(LONG_MS));
    let mut client = nodes.0[0].client();
    let id = new_id(&mut client, "b");
    let line = format!("FURROW.ONCE {id} 1 GETSET b v");
    assert_eq!([client.line(&line), client.line(&line)], [Value::Null, Value::Null]);
    client.line("HELLO 3");
    assert_eq!([client.line(&line), client.line("GET b")], [Value::Null, bulk("v")]);
}

#[test]
fn a_server_without_a_cluster_refuses_in_words() {
    let server = start(options());
    let mut client = server.client();
    for line in ["FURROW.ONCE NEW b", "FURROW.ONCE 1-1-1 1 INCR b"] {
        let text = client.line(line).text();
        assert!(text.starts_with("ERR FURROW.ONCE needs a cluster"), "{text}");
    }
    assert_eq!(client.line("EXISTS b"), Value::Integer(0));
}
