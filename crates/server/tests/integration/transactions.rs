//! Tests of MULTI, EXEC, DISCARD, WATCH and UNWATCH.

use std::sync::Arc;

use crate::common::*;
use kv::{MemoryStore, Store};

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn queued() -> Value {
    Value::Simple("QUEUED".into())
}

/// Sends command lines in one write, as pipelines do, and returns their replies.
fn send_pipeline(client: &mut Client, lines: &[&str]) -> Vec<Value> {
    let words = |line: &&str| Client::encode(&line.split(' ').collect::<Vec<_>>());
    client.send_raw(&lines.iter().map(words).collect::<Vec<_>>().concat());
    lines.iter().map(|_| client.reply().unwrap()).collect()
}

#[test]
fn a_transaction_is_answered_as_one_reply_and_written_as_one_batch() {
    let store = Arc::new(MemoryStore::new());
    let server = start_over(Arc::clone(&store) as Arc<dyn Store>, options());
    let mut client = server.client();
    let replies =
        send_pipeline(&mut client, &["MULTI", "SET a 1", "INCR a", "GET a", "LPOP", "GET a", "EXEC"]);
    assert_eq!(replies[6].text(), "EXECABORT Transaction discarded because of previous errors.");
    let replies = send_pipeline(&mut client, &["MULTI", "SET a 1", "INCR a", "GET a", "EXEC", "GET a"]);
    assert_eq!(replies[..4], [ok(), queued(), queued(), queued()]);
    assert_eq!(replies[4], Value::Array(vec![ok(), Value::Integer(2), bulk("2")]));
    assert_eq!(replies[5], bulk("2"));
    for line in ["MULTI", "SET b 1", "SET c 1", "GET c", "CLIENT GETNAME"] {
        client.line(line);
    }
    assert_eq!(server.client().line("EXISTS b c"), Value::Integer(0), "queued commands have not run");
    let before = store.write_count();
    assert_eq!(client.line("EXEC"), Value::Array(vec![ok(), ok(), bulk("1"), Value::Null]));
    assert_eq!(store.write_count(), before + 1);
    assert_eq!(send_pipeline(&mut client, &["MULTI", "EXEC"])[1], Value::Array(Vec::new()));
}

#[test]
fn a_transaction_with_a_command_that_cannot_be_queued_changes_nothing() {
    let server = start(options());
    let mut client = server.client();
    for wrong in ["NOSUCH a", "GET", "SHUTDOWN"] {
        let replies =
            send_pipeline(&mut client, &["MULTI", "SET a 1", wrong, "SET b 1", "EXEC", "EXISTS a b"]);
        assert!(matches!(replies[2], Value::Error(_)), "{wrong}");
        assert!(replies[4].text().starts_with("EXECABORT"), "{wrong}: {:?}", replies[4]);
        assert_eq!(replies[5], Value::Integer(0), "{wrong}");
    }
    let replies = send_pipeline(&mut client, &["MULTI", "MULTI", "SET a 1", "WATCH a", "EXEC"]);
    assert_eq!(replies[1].text(), "ERR MULTI calls can not be nested");
    assert_eq!(replies[3].text(), "ERR WATCH inside MULTI is not allowed");
    assert_eq!(replies[4], Value::Array(vec![ok()]), "the transaction goes on");
    assert_eq!(client.line("EXEC").text(), "ERR EXEC without MULTI");
    assert_eq!(client.line("DISCARD").text(), "ERR DISCARD without MULTI");
    let replies = send_pipeline(&mut client, &["MULTI", "SET d 1", "DISCARD", "EXISTS d", "SET d 2"]);
    assert_eq!(replies[2..], [ok(), Value::Integer(0), ok()]);
    let replies = send_pipeline(&mut client, &["MULTI", "INCR d", "GETRANGE d x 1", "INCR d", "EXEC"]);
    let items = replies[4].clone().items();
    assert_eq!((&items[0], &items[2]), (&Value::Integer(3), &Value::Integer(4)));
    assert!(
        matches!(items[1], Value::Error(_)),
        "a command that fails when it runs is an error among the replies"
    );
    let mut leaving = server.client();
    send_pipeline(&mut leaving, &["MULTI", "SET gone 1"]);
    drop(leaving);
    send_pipeline(&mut client, &["MULTI", "SET e 1", "RESET"]);
    assert_eq!(client.line("EXEC").text(), "ERR EXEC without MULTI");
    assert_eq!(client.line("EXISTS gone e"), Value::Integer(0));
}

#[test]
fn a_transaction_runs_only_if_no_watched_key_was_written() {
    let server = start(options());
    let (mut client, mut other) = (server.client(), server.client());
    let set = |client: &mut Client| send_pipeline(client, &["MULTI", "SET mine 1", "EXEC"])[2].clone();
    let ran = Value::Array(vec![ok()]);
    assert_eq!(client.line("WATCH a b"), ok());
    assert_eq!(set(&mut client), ran);
    other.line("SET a 1");
    assert_eq!(set(&mut client), ran, "EXEC ended the watch");
    for (write, changes) in [
        ("SET a 1", true),
        ("DEL b", false),
        ("SET b 1", true),
        ("SET c 1", false),
        ("DEL b", true),
        ("PEXPIRE a 100000", true),
        ("GET a", false),
        ("FLUSHALL", true),
    ] {
        assert_eq!(client.line("WATCH a b"), ok());
        other.line(write);
        assert_eq!(set(&mut client), if changes { Value::Null } else { ran.clone() }, "{write}");
    }
    for end in ["UNWATCH", "RESET"] {
        client.line("WATCH a");
        other.line("SET a 2");
        client.line(end);
        assert_eq!(set(&mut client), ran, "{end}");
    }
    client.line("WATCH a");
    send_pipeline(&mut client, &["MULTI", "DISCARD"]);
    other.line("SET a 3");
    assert_eq!(set(&mut client), ran, "DISCARD ended the watch");
    client.line("WATCH a");
    client.line("SET a 4");
    assert_eq!(set(&mut client), Value::Null, "the client's own write counts");
    other.line("SET short 1 PX 50");
    client.line("WATCH short");
    std::thread::sleep(std::time::Duration::from_millis(80));
    assert_eq!(set(&mut client), Value::Null, "the key expired");
    client.line("HELLO 3");
    let replies = send_pipeline(&mut client, &["WATCH a", "SET a 5", "MULTI", "SET mine 2", "EXEC"]);
    assert_eq!(replies[4], Value::Null, "in one pipeline too");
}

#[test]
fn increments_by_watch_and_exec_lose_nothing() {
    let server = start(options());
    server.client().line("SET n 0");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.client();
                let mut done = 0;
                while done < 50 {
                    client.line("WATCH n");
                    let n: i64 = client.line("GET n").text().parse().unwrap();
                    let set = format!("SET n {}", n + 1);
                    done += i32::from(send_pipeline(&mut client, &["MULTI", &set, "EXEC"])[2] != Value::Null);
                }
            });
        }
    });
    assert_eq!(server.client().line("GET n"), bulk("200"));
}

#[test]
fn a_transaction_that_only_reads_sees_one_state() {
    let server = start(options());
    server.client().line("MSET a 0 b 0");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            for _ in 0..300 {
                send_pipeline(&mut client, &["MULTI", "INCR a", "DECR b", "EXEC"]);
            }
        });
        let mut client = server.client();
        for _ in 0..300 {
            let both = send_pipeline(&mut client, &["MULTI", "GET a", "GET b", "EXEC"])[3].clone().items();
            let [a, b] = [0, 1].map(|n: usize| both[n].text().parse::<i64>().unwrap());
            assert_eq!(a + b, 0);
        }
    });
}

#[test]
fn a_transaction_that_the_engine_refuses_changes_nothing() {
    let store = Arc::new(MemoryStore::with_capacity(units::Bytes(1000), units::Bytes(0)));
    let server = start_over(Arc::clone(&store) as Arc<dyn Store>, options());
    let mut client = server.client();
    assert_eq!(client.line("SET a 1"), ok());
    let large = format!("SET b {}", "x".repeat(1000));
    let replies = send_pipeline(&mut client, &["MULTI", "DEL a", &large, "EXEC", "EXISTS a b"]);
    assert!(
        replies[3].text().starts_with("EXECABORT Transaction discarded because of: OOM no space"),
        "{replies:?}"
    );
    assert_eq!(replies[4], Value::Integer(1));
    store.set_broken(true);
    let replies = send_pipeline(&mut client, &["MULTI", "GET a", "DEL a", "EXEC"]);
    assert!(
        replies[3].text().starts_with("EXECABORT Transaction discarded because of: MISCONF"),
        "{replies:?}"
    );
    assert_eq!(client.line("EXISTS a"), Value::Integer(1));
}
