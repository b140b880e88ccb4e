//! Tests of a server whose clients speak TLS.

mod certificates;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv::{Engine, EngineOptions, MemoryStore, Store};
use server::{ServeOptions, Server};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, ProtocolVersion, StreamOwned};
use units::RealDriver;

use self::certificates::Authority;
use crate::cluster::nodes::Nodes;
use crate::common::*;

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

fn connect(address: SocketAddr, config: ClientConfig) -> TlsClient {
    let socket = Client::connect(address).stream;
    let session = ClientConnection::new(Arc::new(config), address.ip().into()).unwrap();
    Client::over(StreamOwned::new(session, socket))
}

fn ok() -> Value {
    Value::Simple("OK".into())
}

/// The command `redis-cli` with the words of a client that trusts the authority.
fn redis_cli(server: &Running, authority: &Authority) -> Command {
    let mut command = stock_command("redis-cli");
    command.args(["-p", &server.port(), "--tls", "--cacert"]).arg(authority.path("authority.pem"));
    command
}

/// The first bytes of a handshake, which a client does not finish.
fn begin_handshake(server: &Running) -> TcpStream {
    let mut socket = server.client().stream;
    socket.write_all(&[0x16, 3, 1, 2]).unwrap();
    socket
}

/// Reads what a server sends until it closes the connection.
fn rest_of(socket: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("not closed: {error}"),
        _ => rest,
    }
}

#[test]
fn clients_set_and_get_by_tls_1_3_and_by_tls_1_2() {
    let authority = Authority::new();
    let server = start(authority.options());
    for (version, spoken) in [(&TLS13, ProtocolVersion::TLSv1_3), (&TLS12, ProtocolVersion::TLSv1_2)] {
        let mut client = connect(server.address, authority.client(version, None));
        assert_eq!(client.line("SET k v"), ok());
        assert_eq!(client.line("GET k"), Value::Bulk(b"v".to_vec()));
        assert_eq!(client.stream.conn.protocol_version(), Some(spoken));
        assert_eq!(client.line("QUIT"), ok());
        assert!(client.is_closed(), "the end of TLS comes before the end of the socket");
    }
}

#[test]
fn long_values_and_long_pipelines_arrive_whole() {
    const PIPELINE: usize = 2000;
    let authority = Authority::new();
    let server = start(authority.options());
    let mut client = connect(server.address, authority.plain_client());
    let value: Vec<u8> = (0..8 << 20).map(|n: u32| (n % 251) as u8).collect();
    assert_eq!(client.ask(&[b"SET".as_slice(), b"long", &value]), ok());
    // A reply that the kernel does not take while the client waits; no later reply pushes its end.
    client.send(&["MGET", "long", "long", "long", "long"]);
    std::thread::sleep(Duration::from_millis(200));
    assert!(client.reply() == Some(Value::Array(vec![Value::Bulk(value.clone()); 4])), "long values differ");
    let mut bytes = Client::encode(&["GET", "long"]).repeat(3);
    for n in 0..PIPELINE {
        bytes.extend(Client::encode(&["SET", &format!("key{n}"), &format!("value of {n}")]));
        bytes.extend(Client::encode(&["GET", &format!("key{n}")]));
    }
    client.send_raw(&bytes);
    for _ in 0..3 {
        assert!(client.reply() == Some(Value::Bulk(value.clone())), "a long value differs");
    }
    for n in 0..PIPELINE {
        assert_eq!(client.reply(), Some(ok()));
        assert_eq!(client.reply(), Some(Value::Bulk(format!("value of {n}").into_bytes())));
    }
}

#[test]
fn redis_cli_works_by_tls_in_both_protocols() {
    let authority = Authority::new();
    let server = start(authority.options());
    let ask = |words: &[&str]| {
        let output = run(redis_cli(&server, &authority).args(words));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for version in ["-2", "-3"] {
        assert_eq!(ask(&[version, "set", "k", "v"]), "OK\n");
        assert_eq!(ask(&[version, "get", "k"]), "v\n");
    }
    assert_eq!(ask(&["config", "get", "*port"]), format!("port\n0\ntls-port\n{}\n", server.port()));
    ask(&["shutdown"]);
    server.end().unwrap();
}

#[test]
fn redis_cli_follows_moved_to_another_node_that_speaks_tls() {
    let authority = Authority::new();
    let nodes = Nodes::start(2, [Some(0), Some(1), Some(0)], &authority.options());
    let first = &nodes.0[0].server;
    let ask = |words: &[&str]| {
        let output = run(redis_cli(first, &authority).arg("-c").args(words));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for key in ["b", "c", "a"] {
        assert_eq!(ask(&["set", key, &format!("value of {key}")]), "OK\n");
        assert_eq!(ask(&["get", key]), format!("value of {key}\n"));
    }
    let port = nodes.0[1].server.port();
    assert_eq!(nodes.0[1].replica(2).data.key_estimate(), 1, "MOVED led to the second node");
    assert!(ask(&["cluster", "slots"]).contains(&format!("127.0.0.1\n{port}\n")));
    let shards = ask(&["cluster", "shards"]);
    assert!(shards.contains(&format!("tls-port\n{port}\n")) && !shards.contains("\nport\n"), "{shards}");
}

#[test]
fn a_client_without_a_certificate_of_the_authority_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = start(authority.options_for_certified_clients());
    for version in [&TLS13, &TLS12] {
        for certified_by in [None, Some(&stranger)] {
            let mut client = connect(server.address, authority.client(version, certified_by));
            let mut reply = [0];
            // By TLS 1.3 a client may send a command before it hears of the refusal.
            let refused =
                client.stream.write_all(b"PING\r\n").and_then(|()| client.stream.read_exact(&mut reply));
            let error = refused.expect_err("refused").to_string();
            assert!(error.contains("alert"), "{error}");
        }
        let mut client = connect(server.address, authority.client(version, Some(&authority)));
        assert_eq!(client.line("PING"), Value::Simple("PONG".into()));
    }
    let mut redis_cli = redis_cli(&server, &authority);
    redis_cli.arg("--cert").arg(authority.path("client.pem"));
    let output = run(redis_cli.arg("--key").arg(authority.path("client.key")).arg("ping"));
    assert_eq!(output.stdout, b"PONG\n", "{output:?}");
}

#[test]
fn bytes_that_are_no_tls_end_their_connection_and_no_other_one() {
    let authority = Authority::new();
    let server = start(authority.options());
    let mut other = connect(server.address, authority.plain_client());
    assert_eq!(other.line("SET k v"), ok());
    for bytes in [
        &b"GET k\r\n"[..],
        b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0; 100],
    ] {
        let mut socket = server.client().stream;
        socket.write_all(bytes).unwrap();
        let rest = rest_of(&mut socket);
        const ALERT: u8 = 21;
        assert!(rest.first().is_none_or(|first| *first == ALERT), "{rest:?}");
    }
    // Bytes that are no TLS after the handshake.
    let mut client = connect(server.address, authority.plain_client());
    assert_eq!(client.line("GET k"), Value::Bulk(b"v".to_vec()));
    client.stream.sock.write_all(b"GET k\r\nGET k\r\n").unwrap();
    rest_of(&mut client.stream.sock);
    assert_eq!(other.line("GET k"), Value::Bulk(b"v".to_vec()));
}

#[test]
fn a_handshake_that_does_not_end_holds_nobody_up_counts_as_a_client_and_is_closed() {
    let authority = Authority::new();
    let server = start(ServeOptions { max_clients: 2, ..authority.options() });
    let mut silent = begin_handshake(&server);
    let mut client = connect(server.address, authority.plain_client());
    assert_eq!(client.line("CLIENT LIST").text().lines().count(), 2);
    assert_eq!(rest_of(&mut server.client().stream), b"", "a third client is refused, without a text");
    assert_eq!(rest_of(&mut silent), b"");
    let until = Instant::now() + TEST_TIMEOUT;
    while client.line("CLIENT LIST").text().lines().count() == 2 {
        assert!(Instant::now() < until, "the place was not given back");
    }
}

#[test]
fn the_server_stops_while_a_handshake_is_open() {
    let authority = Authority::new();
    let server = start(authority.options());
    let mut silent = begin_handshake(&server);
    connect(server.address, authority.plain_client()).send(&["SHUTDOWN"]);
    server.end().unwrap();
    rest_of(&mut silent);
}

#[test]
fn a_client_that_takes_no_reply_by_tls_is_closed() {
    let authority = Authority::new();
    let server = start(ServeOptions { stall_seconds: 1, ..authority.options() });
    let mut slow = connect(server.address, authority.plain_client());
    assert_eq!(slow.ask(&["SET", "k", &"x".repeat(4 << 20)]), ok());
    slow.send_raw(&Client::encode(&["GET", "k"]).repeat(20));
    let mut other = connect(server.address, authority.plain_client());
    let until = Instant::now() + TEST_TIMEOUT;
    while other.line("CLIENT LIST").text().lines().count() > 1 {
        assert!(Instant::now() < until, "the client was not closed");
    }
}

#[test]
fn a_server_does_not_start_with_a_key_that_does_not_fit() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut options = authority.options();
    options.client_tls.as_mut().unwrap().key = other.path("server.key");
    let engine = Engine::start(Arc::new(MemoryStore::new()), RealDriver::new(), EngineOptions::default());
    let error = Server::start(engine.clone(), options).unwrap_err().to_string();
    assert!(
        error.contains("does not belong to the certificate") && error.contains("--client-tls-key"),
        "{error}"
    );
    engine.close().unwrap();
}
