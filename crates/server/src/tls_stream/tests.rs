use std::net::{IpAddr, Ipv4Addr, TcpStream as Socket};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;
use crate::client_tls::ClientTlsFiles;
use crate::stream::Stream;

type Client = StreamOwned<ClientConnection, Socket>;

/// More than the kernel keeps for a connection on loopback.
const LONG: usize = 64 << 20;

/// Time within which each test ends.
const WITHIN: Duration = Duration::from_secs(120);

fn long_text() -> Vec<u8> {
    (0..LONG).map(|n| (n % 251) as u8).collect()
}

/// Runs `server` on the stream of a connection, and `client` on a thread at its other end; returns what `client` does.
fn run<T: Send + 'static>(
    client: impl FnOnce(Client) -> T + Send + 'static,
    server: impl AsyncFnOnce(&mut Stream),
) -> T {
    let folder = TempDir::new().unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap().self_signed(&key).unwrap();
    let (certificate, key_file) = (folder.path().join("pem"), folder.path().join("key"));
    std::fs::write(&certificate, signed.pem()).unwrap();
    std::fs::write(&key_file, key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificate).unwrap()).unwrap();
    let acceptor = ClientTlsFiles { certificate, key: key_file, authority: None }.load().unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), IpAddr::from(Ipv4Addr::LOCALHOST).into()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let serving = async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let socket = Socket::connect(listener.local_addr().unwrap()).unwrap();
        let other_end = move || client(StreamOwned::new(session, socket));
        let running = std::thread::Builder::new().spawn(other_end).unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let stream = TlsStream::accept(&acceptor, accepted).await.unwrap();
        let mut stream = Stream::Tls(Box::new(stream));
        server(&mut stream).await;
        stream.end();
        running
    };
    let running = runtime.block_on(async { tokio::time::timeout(WITHIN, serving).await }).expect("in time");
    running.join().unwrap()
}

#[test]
fn bytes_that_do_not_fit_into_the_buffer_come_at_the_next_read() {
    let write_all = |mut client: Client| {
        client.write_all(&long_text()[..1 << 20]).unwrap();
        client.conn.send_close_notify();
        client.flush().unwrap();
        // A socket that is closed before it has read everything resets the connection.
        client.read_to_end(&mut Vec::new()).unwrap();
    };
    run(write_all, async |stream| {
        let mut came = Vec::new();
        loop {
            let mut buffer = BytesMut::with_capacity(1000);
            match stream.try_read_buf(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    assert!(
                        count == buffer.len() && buffer.capacity() == 1000,
                        "the room is all that is used"
                    );
                    came.extend_from_slice(&buffer);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await.unwrap(),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(came == long_text()[..1 << 20], "bytes differ");
    });
}

#[test]
fn bytes_wait_in_the_stream_while_the_socket_takes_none() {
    let (begin, began) = channel();
    let read_to_end = move |mut client: Client| {
        client.flush().unwrap();
        began.recv().unwrap();
        let mut came = Vec::new();
        client.read_to_end(&mut came).unwrap();
        came
    };
    let came = run(read_to_end, async move |stream| {
        let text = long_text();
        let mut rest = &text[..];
        while stream.try_send(&mut rest).unwrap() {}
        assert!(!rest.is_empty() && stream.has_unsent(), "the client reads nothing yet");
        begin.send(()).unwrap();
        while !rest.is_empty() || stream.has_unsent() {
            stream.send(&mut rest).await.unwrap();
        }
    });
    assert!(came == long_text(), "bytes differ");
}

#[test]
fn the_end_of_a_socket_without_an_end_of_tls_is_an_error_after_the_bytes_that_came() {
    let (close, closed) = channel();
    let write_and_close = move |mut client: Client| {
        // A socket that is closed before it has read everything resets the connection.
        client.read_exact(&mut [0]).unwrap();
        client.write_all(b"PING\r\n").unwrap();
        drop(client);
        close.send(()).unwrap();
    };
    run(write_and_close, async move |stream| {
        stream.try_send(&mut &b"+"[..]).unwrap();
        closed.recv().unwrap();
        let mut buffer = BytesMut::with_capacity(1000);
        let mut reads = Vec::new();
        while reads.len() < 2 {
            match stream.try_read_buf(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => stream.readable().await.unwrap(),
                read => reads.push(read.map_err(|error| error.kind())),
            }
        }
        assert_eq!(reads, [Ok(b"PING\r\n".len()), Err(ErrorKind::UnexpectedEof)]);
    });
}
