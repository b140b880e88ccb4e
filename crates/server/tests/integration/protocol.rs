//! Tests of the server over loopback: pipelines, malformed input, limits, passwords, shutdown.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::*;
use kv::{Engine, EngineOptions, MemoryStore};
use server::{ServeOptions, Server};
use units::RealDriver;

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

#[test]
fn a_pipeline_is_answered_in_order_and_is_one_batch() {
    let store = Arc::new(MemoryStore::new());
    let server = start_over(Arc::clone(&store) as Arc<dyn kv::Store>, options());
    let mut client = server.client();
    let mut bytes = Vec::new();
    for n in 0..100 {
        bytes.extend(Client::encode(&["INCR", "n"]));
        bytes.extend(Client::encode(&["PING", &n.to_string()]));
        bytes.extend(Client::encode(&["GET", "n"]));
    }
    client.send_raw(&bytes);
    for n in 0..100 {
        assert_eq!(client.reply(), Some(Value::Integer(n + 1)));
        assert_eq!(client.reply(), Some(bulk(&n.to_string())));
        assert_eq!(client.reply(), Some(bulk(&(n + 1).to_string())));
    }
    // The system may deliver the pipeline in a few pieces, but not one for each command.
    assert!(store.write_count() <= 5, "{} batches", store.write_count());
    assert_eq!(store.write_count(), store.sync_count());
}

#[test]
fn malformed_input_closes_its_connection_and_no_other() {
    let server = start(options());
    let mut other = server.client();
    assert_eq!(other.line("SET a 1"), ok());
    for (bytes, error) in [
        (&b"*1\r\nfoo\r\n"[..], "expected '$', got 'f'"),
        (b"*9999999999\r\n", "invalid multibulk length"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"SET a \"b\r\n", "unbalanced quotes in request"),
        (b"*1\r\n$1\r\nabc", "a bulk string does not end where its length says"),
    ] {
        let mut client = server.client();
        client.send_raw(b"SET b 2\r\n");
        client.send_raw(bytes);
        assert_eq!(client.reply(), Some(ok()));
        assert_eq!(client.reply(), Some(Value::Error(format!("ERR Protocol error: {error}"))));
        assert!(client.is_closed());
        assert_eq!(other.line("MGET a b"), Value::Array(vec![bulk("1"), bulk("2")]));
    }
}

#[test]
fn a_web_page_cannot_send_commands_through_the_body_of_a_request() {
    let server = start(options());
    let mut other = server.client();
    assert_eq!(other.line("SET a 1"), ok());
    for request in [
        "POST / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n",
        "post / HTTP/1.1\r\n\r\nFLUSHALL\r\n",
        "HOST: x\r\n\r\nFLUSHALL\r\n",
    ] {
        let mut client = server.client();
        client.send_raw(request.as_bytes());
        assert!(client.is_closed(), "{request}");
        assert_eq!(other.line("GET a"), bulk("1"), "{request}");
    }
    // An HTTP request with another method than POST gets at most an error, up to its `Host` header, which every request
    // has.
    let mut client = server.client();
    client.send_raw(b"PUT / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n");
    assert!(client.reply().unwrap().text().starts_with("ERR unknown command"));
    assert!(client.is_closed());
    assert_eq!(other.line("GET a"), bulk("1"));
}

#[test]
fn commands_may_come_a_byte_at_a_time_or_by_hand() {
    let server = start(options());
    let mut client = server.client();
    for byte in Client::encode(&["SET", "k", "a\r\nb\0c"]) {
        client.send_raw(&[byte]);
    }
    assert_eq!(client.reply(), Some(ok()));
    client.send_raw(b"\r\n  get   k  \n");
    assert_eq!(client.reply(), Some(Value::Bulk(b"a\r\nb\0c".to_vec())));
}

#[test]
fn hello_3_switches_the_protocol_within_a_pipeline() {
    let server = start(options());
    let mut client = server.client();
    client.send_raw(
        b"GET no\r\nHELLO 3 SETNAME me\r\nGET no\r\nCONFIG GET save\r\nCLIENT GETNAME\r\nHELLO 2\r\n",
    );
    assert_eq!(client.take_raw(b"$-1\r\n%7\r\n".len()), b"$-1\r\n%7\r\n");
    for _ in 0..14 {
        client.reply().unwrap();
    }
    assert_eq!(client.take_raw(3), b"_\r\n");
    assert_eq!(client.reply(), Some(Value::Map(vec![bulk("save"), bulk("")])));
    assert_eq!(client.reply(), Some(bulk("me")));
    assert_eq!(client.reply().unwrap().items().len(), 14);
    assert_eq!(client.line("HELLO 9").text(), "NOPROTO unsupported protocol version");
    assert_eq!(client.line("RESET").text(), "RESET");
    assert_eq!(client.line("CLIENT GETNAME"), Value::Null);
}

#[test]
fn nothing_is_answered_before_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "s3cret\n").unwrap();
    let server = start(ServeOptions { password_file: Some(path), ..options() });
    let mut client = server.client();
    for line in ["GET a", "SET a 1", "PING", "SHUTDOWN", "CONFIG GET *", "NOSUCH"] {
        assert_eq!(client.line(line).text(), "NOAUTH Authentication required.", "{line}");
    }
    assert!(client.line("HELLO 3").text().starts_with("NOAUTH HELLO"));
    for line in ["AUTH wrong", "AUTH s3cre", "AUTH other s3cret", "HELLO 2 AUTH default no"] {
        assert!(client.line(line).text().starts_with("WRONGPASS"), "{line}");
    }
    // AUTH and a command that needs the password may come in one pipeline.
    client.send_raw(b"AUTH s3cret\r\nSET a 1\r\nRESET\r\nGET a\r\nHELLO 3 AUTH default s3cret\r\n");
    assert_eq!(client.reply(), Some(ok()));
    assert_eq!(client.reply(), Some(ok()));
    assert_eq!(client.reply().unwrap().text(), "RESET");
    assert_eq!(client.reply().unwrap().text(), "NOAUTH Authentication required.");
    assert!(matches!(client.reply(), Some(Value::Map(_))));
    let mut stranger = server.client();
    stranger.send_raw(b"*2\r\n$4\r\nECHO\r\n$1000000\r\n");
    assert!(stranger.reply().unwrap().text().contains("unauthenticated bulk length"));
    client.send(&["SHUTDOWN"]);
    server.end().unwrap();
}

#[test]
fn an_open_address_without_a_password_is_refused() {
    let engine = || Engine::start(Arc::new(MemoryStore::new()), RealDriver::new(), EngineOptions::default());
    let open = ServeOptions { bind: IpAddr::V4(Ipv4Addr::UNSPECIFIED), ..options() };
    let error = Server::start(engine(), open).unwrap_err().to_string();
    assert!(error.contains("--password-file"), "{error}");
}

#[test]
fn the_error_of_a_taken_port_names_the_port_and_gives_advice() {
    let first = start(options());
    let engine = Engine::start(Arc::new(MemoryStore::new()), RealDriver::new(), EngineOptions::default());
    let port = first.address.port();
    let error = Server::start(engine.clone(), ServeOptions { port, ..options() }).unwrap_err().to_string();
    assert!(error.contains(&port.to_string()) && error.contains("--port"), "{error}");
    engine.close().unwrap();
}

#[test]
fn a_client_above_the_limit_is_refused_until_another_disconnects() {
    let server = start(ServeOptions { max_clients: 2, ..options() });
    let (mut a, mut b) = (server.client(), server.client());
    assert_eq!((a.line("PING").text(), b.line("PING").text()), ("PONG".into(), "PONG".into()));
    let mut c = server.client();
    assert_eq!(c.reply(), Some(Value::Error("ERR max number of clients reached".into())));
    assert!(c.is_closed());
    drop(b);
    let until = Instant::now() + TEST_TIMEOUT;
    while Instant::now() < until {
        let mut again = server.client();
        again.send_raw(b"PING\r\n");
        if again.reply() == Some(Value::Simple("PONG".into())) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the place was not given");
}

#[test]
fn a_value_above_the_limit_is_refused_before_it_is_read() {
    let server = start(ServeOptions { max_value: 4096, max_output: 8192, ..options() });
    let mut client = server.client();
    assert_eq!(client.ask(&["SET", "k", &"x".repeat(4096)]), ok());
    client.send_raw(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4097\r\n");
    assert_eq!(
        client.reply().unwrap().text(),
        "ERR Protocol error: invalid bulk length: 4097 bytes are above the limit of 4096 (--max-value)"
    );
    assert!(client.is_closed());
}

#[test]
fn a_reply_above_the_limit_is_an_error_and_the_connection_stays() {
    let server = start(ServeOptions { max_value: 1 << 20, max_output: 2 << 20, ..options() });
    let mut client = server.client();
    assert_eq!(client.ask(&["SET", "k", &"x".repeat(1_000_000)]), ok());
    assert_eq!(client.line("MGET k k").items().len(), 2);
    let error = client.line("MGET k k k").text();
    assert!(error.starts_with("ERR the reply exceeds the limit of 2097152 bytes"), "{error}");
    let items = {
        client.send_raw(b"MULTI\r\nMGET k k\r\nMGET k k\r\nSTRLEN k\r\nEXEC\r\n");
        (0..4).for_each(|_| drop(client.reply()));
        client.reply().unwrap().items()
    };
    assert_eq!(items[0].clone().items().len(), 2);
    assert!(items[1].text().starts_with("ERR the reply exceeds"), "{:?}", items[1]);
    assert_eq!(items[2], Value::Integer(1_000_000));
}

#[test]
fn a_client_that_reads_gets_3000_pipelined_values_of_100_kib() {
    let server = start(options());
    let mut client = server.client();
    let value = "x".repeat(100 << 10);
    assert_eq!(client.ask(&["SET", "k", &value]), ok());
    client.send_raw(&Client::encode(&["GET", "k"]).repeat(3000));
    for n in 0..3000 {
        assert_eq!(client.reply(), Some(bulk(&value)), "{n}");
    }
}

#[test]
fn a_short_command_does_not_wait_for_the_end_of_long_pipelines() {
    const COMMANDS: usize = 2000;
    let store = SlowStore { get: Duration::from_millis(1), ..SlowStore::default() };
    let server = start_over(Arc::new(store), options());
    let mut busy: Vec<Client> = (0..16).map(|_| server.client()).collect();
    for client in &mut busy {
        client.send_raw(&Client::encode(&["GET", "k"]).repeat(COMMANDS));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.client().line("GET k"), Value::Null);
    for client in &mut busy {
        client.stream.set_nonblocking(true).unwrap();
        let mut replies = vec![0; COMMANDS * b"$-1\r\n".len()];
        let came = std::io::Read::read(&mut client.stream, &mut replies).unwrap_or(0);
        assert!(came < replies.len(), "a long pipeline ended before the short one");
    }
}

#[test]
fn unread_replies_are_bounded_over_all_clients() {
    const MIB: u64 = 1 << 20;
    let server = start(ServeOptions {
        max_value: 8 * MIB,
        max_output: 17 * MIB,
        max_output_total: 40 * MIB,
        ..options()
    });
    let mut other = server.client();
    assert_eq!(other.ask(&["SET", "k", &"x".repeat(8 * MIB as usize)]), ok());
    let mut slow: Vec<Client> = (0..12).map(|_| server.client()).collect();
    for client in &mut slow {
        client.send_raw(&Client::encode(&["MGET", "k", "k"]).repeat(3));
    }
    let held = |client: &mut Client| -> u64 {
        let list = client.line("CLIENT LIST").text();
        list.lines()
            .map(|line| line.split_once("omem=").unwrap().1.split(' ').next().unwrap())
            .map(|n| n.parse::<u64>().unwrap())
            .sum()
    };
    let until = Instant::now() + Duration::from_secs(2);
    let mut most = 0;
    while Instant::now() < until {
        most = most.max(held(&mut other));
        assert_eq!(other.line("SET small v"), ok(), "small commands go on");
    }
    assert!(most > 8 * MIB && most <= (40 + 13) * MIB, "{most} bytes were held");
    // All clients run at once: a client that reads no replies keeps its memory until it is disconnected.
    std::thread::scope(|scope| {
        for client in &mut slow {
            scope.spawn(|| (0..3).for_each(|_| assert_eq!(client.reply().unwrap().items().len(), 2)));
        }
    });
}

#[test]
fn a_client_that_reads_no_replies_is_closed_and_other_clients_are_served() {
    let server = start(ServeOptions { stall_seconds: 1, ..options() });
    let mut slow = server.client();
    assert_eq!(slow.ask(&["SET", "k", &"x".repeat(4 << 20)]), ok());
    let mut bytes = Vec::new();
    for _ in 0..20 {
        bytes.extend(Client::encode(&["GET", "k"]));
    }
    slow.send_raw(&bytes);
    let mut other = server.client();
    let until = Instant::now() + TEST_TIMEOUT;
    while Instant::now() < until {
        let clients = other.line("CLIENT LIST").text().lines().count();
        if clients == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the slow client is still there");
}

#[test]
fn a_full_drive_refuses_writes_while_reads_and_deletes_go_on() {
    let store = Arc::new(MemoryStore::with_capacity(units::Bytes(1000), units::Bytes(0)));
    let server = start_over(store, options());
    let mut client = server.client();
    let value = "x".repeat(900);
    assert_eq!(client.ask(&["SET", "a", &value]), ok());
    let error = client.ask(&["SET", "b", &value]).text();
    assert!(error.starts_with("OOM no space left on the device") && error.contains("delete keys"), "{error}");
    assert_eq!(client.line("STRLEN a"), Value::Integer(900));
    assert_eq!(client.line("DEL a"), Value::Integer(1));
    assert_eq!(client.ask(&["SET", "b", &value]), ok());
}

#[test]
fn shutdown_answers_running_commands_and_closes_all_connections() {
    let server = start(options());
    let mut idle = server.client();
    assert_eq!(idle.line("PING").text(), "PONG");
    let mut client = server.client();
    assert_eq!(client.line("SHUTDOWN LATER").text(), "ERR syntax error");
    client.send_raw(b"SET a 1\r\nSHUTDOWN NOSAVE\r\nSET a 2\r\n");
    assert_eq!(client.reply(), Some(ok()));
    assert!(client.is_closed());
    assert!(idle.is_closed());
    let address = server.address;
    server.end().unwrap();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn metrics_health_and_a_page_are_served() {
    let store = Arc::new(MemoryStore::new());
    let http_at = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let server =
        start_over(Arc::clone(&store) as Arc<dyn kv::Store>, ServeOptions { http: http_at, ..options() });
    let at = server.http.unwrap();
    let mut client = server.client();
    assert_eq!(client.line("SET a 1"), ok());
    let metrics = http_get(at, "/metrics", "");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4"), "{metrics}");
    for line in [
        "# TYPE furrow_server_commands_total counter",
        "# TYPE furrow_build_info gauge",
        "furrow_build_info{version=",
        "furrow_server_commands_total{command=\"SET\"} 1",
        "furrow_server_connected_clients 1",
        "furrow_kv_written_keys_total 1",
        "furrow_kv_log_info{mode=\"auto\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
    let open = http_get(
        at,
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3\r\n",
    );
    for line in [
        "content-type: application/openmetrics-text; version=1.0.0",
        "# TYPE furrow_server_commands counter",
        "# TYPE furrow_build info",
        "# EOF",
    ] {
        assert!(open.contains(line), "{line} is missing in {open}");
    }
    assert!(http_get(at, "/healthz", "").starts_with("HTTP/1.1 200"));
    assert!(http_get(at, "/", "").contains("connected clients"));
    store.set_broken(true);
    assert!(client.line("SET a 2").text().starts_with("MISCONF"));
    assert_eq!(client.line("GET a"), bulk("1"));
    assert!(http_get(at, "/healthz", "").starts_with("HTTP/1.1 503"));
}
