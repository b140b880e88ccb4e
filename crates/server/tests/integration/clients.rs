//! Tests of CLIENT, CONFIG RESETSTAT, HELLO and the types of replies in RESP3.

use std::time::Duration;

use crate::common::*;
use server::ServeOptions;

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn ids(client: &mut Client, command: &str) -> Vec<String> {
    let text = client.line(command).text();
    text.lines().map(|line| line.split(' ').next().unwrap().replace("id=", "")).collect()
}

#[test]
fn clients_are_listed_named_and_killed() {
    let server = start(options());
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!(a.line("CLIENT SETNAME first"), ok());
    let id = b.line("CLIENT ID").text();
    let list = a.line("CLIENT LIST").text();
    assert!(list.lines().count() == 2 && list.contains("name=first"), "{list}");
    assert!(b.line("CLIENT INFO").text().contains(&format!("id={id} ")));
    assert_eq!(a.line(&format!("CLIENT KILL ID {id}")), Value::Integer(1));
    assert!(b.is_closed());
    assert!(a.line("CLIENT SETNAME bad\u{7f}name").text().starts_with("ERR Client names"));
}

#[test]
fn client_kill_ends_only_the_clients_that_all_filters_accept() {
    let server = start(options());
    let (mut a, mut b, mut c) = (server.client(), server.client(), server.client());
    let id = b.line("CLIENT ID").text();
    let address = b.stream.local_addr().unwrap();
    assert_eq!(c.line("PING").text(), "PONG");
    for nobody in [
        "CLIENT KILL TYPE pubsub",
        "CLIENT KILL TYPE master SKIPME no",
        "CLIENT KILL TYPE replica",
        "CLIENT KILL MAXAGE 10000",
        "CLIENT KILL LADDR 127.0.0.1:1",
        "CLIENT KILL ADDR 127.0.0.1:1",
        &format!("CLIENT KILL ID {id} TYPE pubsub"),
        &format!("CLIENT KILL ADDR {address} MAXAGE 10000 USER default"),
    ] {
        assert_eq!(a.line(nobody), Value::Integer(0), "{nobody}");
    }
    for (refused, error) in [
        ("CLIENT KILL TYPE nosuch", "ERR Unknown client type 'nosuch'"),
        ("CLIENT KILL USER nobody", "ERR No such user 'nobody'"),
        ("CLIENT KILL SKIPME maybe", "ERR syntax error"),
        ("CLIENT KILL ID 0", "ERR client-id should be greater than 0"),
        ("CLIENT KILL MAXAGE x", "ERR maxage should be greater than 0"),
        ("CLIENT KILL NOSUCH x", "ERR syntax error"),
        ("CLIENT KILL 1.2.3.4:5", "ERR No such client"),
    ] {
        assert_eq!(a.line(refused).text(), error, "{refused}");
    }
    for client in [&mut b, &mut c] {
        assert_eq!(client.line("PING").text(), "PONG");
    }
    assert_eq!(a.line(&format!("CLIENT KILL ADDR {address}")), Value::Integer(1));
    assert!(b.is_closed());
    assert_eq!(c.line("PING").text(), "PONG");
    assert_eq!(a.line("CLIENT KILL TYPE normal USER default"), Value::Integer(1));
    assert!(c.is_closed());
    assert_eq!(a.line("CLIENT KILL USER default SKIPME no"), Value::Integer(1));
    assert!(a.is_closed());
}

#[test]
fn a_client_that_always_sends_or_never_reads_can_be_killed() {
    let server = start(options());
    let (mut a, mut slow, mut busy) = (server.client(), server.client(), server.client());
    assert_eq!(a.ask(&["SET", "k", &"x".repeat(1 << 20)]), ok());
    slow.send_raw(&Client::encode(&["GET", "k"]).repeat(100));
    let sending = std::thread::spawn(move || while busy.stream.write_then_read(b"PING\r\n") {});
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(a.line("CLIENT KILL TYPE normal"), Value::Integer(2));
    sending.join().unwrap();
    // CLIENT LIST leaves killed clients out; INFO counts each connection until it has ended.
    assert_eq!(a.line("CLIENT LIST").text().lines().count(), 1);
    let mut is_alone = || a.line("INFO clients").text().contains("connected_clients:1\r\n");
    let until = std::time::Instant::now() + TEST_TIMEOUT;
    while !is_alone() {
        assert!(std::time::Instant::now() < until, "killed clients are still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

trait WriteThenRead {
    fn write_then_read(&mut self, bytes: &[u8]) -> bool;
}

impl WriteThenRead for std::net::TcpStream {
    fn write_then_read(&mut self, bytes: &[u8]) -> bool {
        use std::io::{Read, Write};
        self.write_all(bytes).is_ok() && self.read(&mut [0; 4096]).is_ok_and(|n| n > 0)
    }
}

#[test]
fn client_list_applies_its_filters_and_shows_the_names_that_clients_set() {
    let server = start(options());
    let (mut a, mut b) = (server.client(), server.client());
    let (one, two) = (a.line("CLIENT ID").text(), b.line("CLIENT ID").text());
    assert_eq!(ids(&mut a, "CLIENT LIST TYPE normal"), [one.clone(), two.clone()]);
    assert!(ids(&mut a, "CLIENT LIST TYPE pubsub").is_empty());
    assert_eq!(ids(&mut a, &format!("CLIENT LIST ID {two} 999")), [two.as_str()]);
    assert_eq!(a.line("CLIENT LIST TYPE nosuch").text(), "ERR Unknown client type 'nosuch'");
    assert_eq!(a.line("CLIENT LIST ID x").text(), "ERR Invalid client ID");
    assert_eq!(a.line("CLIENT LIST BAD").text(), "ERR syntax error");
    assert_eq!(b.line("CLIENT SETINFO LIB-NAME redis-py"), ok());
    assert_eq!(b.line("CLIENT SETINFO lib-ver 5.1"), ok());
    assert_eq!(b.line("CLIENT SETINFO lib-os x").text(), "ERR Unrecognized option 'lib-os'");
    assert!(b.ask(&["CLIENT", "SETINFO", "LIB-VER", "a b"]).text().starts_with("ERR lib-ver cannot contain"));
    assert_eq!(b.line("CLIENT NO-EVICT ON"), ok());
    assert_eq!(b.line("CLIENT NO-TOUCH ON"), ok());
    let line = a.line(&format!("CLIENT LIST ID {two}")).text();
    for part in [" lib-name=redis-py lib-ver=5.1", " flags=eT ", " cmd=client "] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    assert!(a.line("CLIENT INFO").text().contains(" cmd=client|info "));
}

#[test]
fn resetstat_begins_the_totals_of_info_again_and_not_those_of_metrics() {
    let at = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let server = start(ServeOptions { http: at, ..options() });
    let mut client = server.client();
    (0..10).for_each(|_| drop(client.line("PING")));
    assert_eq!(client.line("CONFIG RESETSTAT"), ok());
    let info = client.line("INFO stats").text();
    for line in ["total_connections_received:0", "total_commands_processed:1\r\n", "expired_keys:0"] {
        assert!(info.contains(line), "{line} is missing in {info}");
    }
    let metrics = http_get(server.http.unwrap(), "/metrics", "");
    assert!(metrics.contains("furrow_server_commands_total{command=\"PING\"} 10"), "{metrics}");
}

#[test]
fn commands_with_subcommands_have_help() {
    let server = start(options());
    let mut client = server.client();
    for command in ["CLIENT", "CONFIG", "COMMAND"] {
        let lines = client.line(&format!("{command} HELP")).items();
        assert!(lines[0].text().starts_with(&format!("{command} <subcommand>")), "{lines:?}");
        assert!(lines.iter().any(|line| line.text() == "HELP"), "{lines:?}");
        assert!(client.line(&format!("{command} HELP me")).text().starts_with("ERR wrong number"));
    }
}

#[test]
fn resp3_has_texts_for_people_and_sets() {
    let server = start(options());
    let mut client = server.client();
    assert!(matches!(client.line("INFO"), Value::Bulk(_)));
    assert!(matches!(client.line("COMMAND INFO get").items()[0].clone().items()[2], Value::Array(_)));
    client.line("HELLO 3");
    for command in ["INFO", "CLIENT LIST", "CLIENT INFO"] {
        let Value::Verbatim(text) = client.line(command) else { panic!("{command}") };
        assert!(text.starts_with("txt:"), "{text}");
    }
    assert!(matches!(client.line("COMMAND INFO get").items()[0].clone().items()[2], Value::Set(_)));
}

#[test]
fn info_reports_the_memory_of_the_server() {
    let server = start(options());
    let info = server.client().line("INFO memory").text();
    let bytes = |name: &str| -> u64 {
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
    };
    let _counted_by_the_store = bytes("used_memory:");
    assert!(bytes("used_memory_rss:") > 1 << 20, "{info}");
    assert!(!info.contains("# Stats"), "{info}");
}
