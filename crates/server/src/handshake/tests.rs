use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream as Socket};

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;
use units::RealDriver;

use super::*;
use crate::client_tls::ClientTlsFiles;
use crate::clients::Clients;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

fn acceptor() -> TlsAcceptor {
    let folder = TempDir::new().unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    let (certificate, key_file) = (folder.path().join("pem"), folder.path().join("key"));
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    ClientTlsFiles { certificate, key: key_file, authority: None }.load().unwrap()
}

/// Begins the handshake with a client that sends `bytes`; returns why the connection ended. `act`: called before the server waits.
fn end_after(
    bytes: &[u8],
    within: Duration,
    act: impl FnOnce(&Client, &watch::Sender<bool>),
) -> ConnectionEnd {
    let (acceptor, clients, stopping) = (acceptor(), Clients::default(), watch::Sender::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ended, mut socket) = runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut socket = Socket::connect(at).unwrap();
        socket.write_all(bytes).unwrap();
        let (accepted, peer) = listener.accept().await.unwrap();
        let client = clients.admit(peer, at, 1, true, &*RealDriver::new()).unwrap();
        act(&client, &stopping);
        let mut stopped = stopping.subscribe();
        let handshake = tls_handshake(&acceptor, accepted, within, &client, &mut stopped);
        let ended =
            tokio::time::timeout(Duration::from_secs(60), handshake).await.expect("the server waits on");
        (ended.err().expect("no handshake"), socket)
    });
    let mut rest = Vec::new();
    let _reset = socket.read_to_end(&mut rest);
    ended
}

const BEGUN: &[u8] = &[0x16, 3, 1, 2];

#[test]
fn an_open_handshake_ends_with_the_server_and_with_a_killed_client() {
    let stop = |_: &Client, stopping: &watch::Sender<bool>| {
        stopping.send_replace(true);
    };
    assert!(matches!(end_after(BEGUN, LONG, stop), ConnectionEnd::Plain));
    let kill = |client: &Client, _: &watch::Sender<bool>| client.kill();
    assert!(matches!(end_after(BEGUN, LONG, kill), ConnectionEnd::Plain));
}

#[test]
fn a_handshake_that_takes_too_long_is_logged() {
    for bytes in [BEGUN, b""] {
        let ended = end_after(bytes, Duration::from_millis(10), |_, _| ());
        assert!(matches!(&ended, ConnectionEnd::Logged(why) if why.contains("within 10ms")), "{ended:?}");
    }
}

#[test]
fn a_client_that_speaks_no_tls_is_logged_as_such() {
    let ended = end_after(b"*1\r\n$4\r\nPING\r\n", LONG, |_, _| ());
    assert!(matches!(&ended, ConnectionEnd::Logged(why) if why.contains("the client does not")), "{ended:?}");
}
