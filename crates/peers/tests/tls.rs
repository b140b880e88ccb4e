//! Processes with TLS.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{GROUP, Inbox, Process, cluster, heartbeat, node, options, runtime};
use peers::frame::{FrameWriter, Hello};
use peers::{Error, Network, NetworkOptions, ProcessId, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use replica::NodeId;
use replica::ReplicaId;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An authority, and the folder with the files that it makes.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("signs");
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("authority.pem"), issuer.pem()).expect("writes");
        Authority { issuer, folder }
    }

    /// The files of a certificate that names the node.
    fn files(&self, of: NodeId) -> TlsFiles {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![of.dns_name()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signs");
        let write = |end: &str, contents: String| {
            let path = self.folder.path().join(format!("{}.{end}", of.0));
            std::fs::write(&path, contents).expect("writes");
            path
        };
        TlsFiles {
            certificate: write("pem", certificate.pem()),
            key: write("key", key.serialize_pem()),
            authority: self.folder.path().join("authority.pem"),
        }
    }

    fn options(&self, n: u8) -> NetworkOptions {
        NetworkOptions { tls: Some(self.files(node(n))), ..options(n) }
    }
}

#[test]
fn messages_arrive_by_tls_also_at_an_address_off_loopback() {
    let authority = Authority::new();
    let anywhere = "0.0.0.0:0".parse().expect("an address");
    let second = Process::start(NetworkOptions { listen: anywhere, ..authority.options(2) });
    let first = Process::start(authority.options(1));
    let port = second.network.address().port();
    first.knows(2, ([127, 0, 0, 1], port).into());
    second.knows(1, first.network.address());
    first.beat(1, 2);
    second.inbox.wait_until(|received| received.len() == 1);
    second.beat(2, 1);
    first.inbox.wait_until(|received| received.len() == 1);
    assert_eq!(second.network.counters().frames_refused, 0);
}

#[test]
fn a_process_with_a_certificate_of_another_authority_or_none_is_refused() {
    let second = Process::start(Authority::new().options(2));
    for options in [Authority::new().options(1), options(1)] {
        let refused = second.network.counters().frames_refused;
        let stranger = Process::start(options);
        stranger.knows(2, second.network.address());
        second.repeat_until(|| stranger.beat(1, 2), |counters| counters.frames_refused >= refused + 2);
    }
    assert_eq!(second.inbox.received(), []);
}

#[test]
fn a_process_that_trusts_another_authority_sends_nothing() {
    // Node 1 has a certificate that node 2 trusts, and does not trust node 2's.
    let (authority, other) = (Authority::new(), Authority::new());
    let second = Process::start(authority.options(2));
    let mut files = authority.files(node(1));
    files.authority = other.files(node(1)).authority;
    let first = Process::start(NetworkOptions { tls: Some(files), ..options(1) });
    first.knows(2, second.network.address());
    first.repeat_until(|| first.beat(1, 2), |counters| counters.messages_dropped >= 2);
    assert_eq!((first.network.counters().messages_sent, second.inbox.received()), (0, Vec::new()));
}

#[test]
fn a_process_does_not_send_to_one_whose_certificate_names_another_node() {
    let authority = Authority::new();
    let third = Process::start(authority.options(3));
    let first = Process::start(authority.options(1));
    first.knows(2, third.network.address());
    first.repeat_until(|| first.beat(1, 2), |counters| counters.messages_dropped >= 2);
    assert_eq!(first.network.counters().messages_sent, 0);
}

#[test]
fn a_process_does_not_start_with_the_certificate_of_another_node() {
    let authority = Authority::new();
    let options = NetworkOptions { tls: Some(authority.files(node(3))), ..options(1) };
    let runtime = runtime(1);
    let error = Network::start(options, runtime.handle(), Arc::new(Inbox::default())).expect_err("refused");
    assert!(matches!(error, Error::CertificateName { .. }), "{error}");
    assert!(error.to_string().contains(&node(1).dns_name()), "{error}");
    let mut missing = authority.options(1);
    let files = missing.tls.as_mut().expect("TLS");
    files.key = files.key.with_extension("lost");
    let error = Network::start(missing, runtime.handle(), Arc::new(Inbox::default())).expect_err("refused");
    assert!(error.to_string().contains(".lost"), "{error}");
}

fn certificates(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).expect("reads").map(|read| read.expect("a certificate")).collect()
}

/// Says hello as a node with the certificate of `files`, and sends a heartbeat. Returns when the connection is closed.
async fn say(address: std::net::SocketAddr, files: &TlsFiles, says: NodeId) {
    let mut roots = RootCertStore::empty();
    certificates(&files.authority).into_iter().for_each(|root| roots.add(root).expect("a root"));
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("a version")
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(&files.certificate), key)
        .expect("a certificate");
    let stream = tokio::net::TcpStream::connect(address).await.expect("connects");
    let name = ServerName::try_from(node(2).dns_name()).expect("a name");
    let mut stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.expect("TLS");
    let mut frame = FrameWriter::new(ProcessId { cluster: cluster(1), node: says, starts: 1 });
    stream.write_all(frame.hello(Hello { to: node(2), process: 77 })).await.expect("writes");
    frame.begin_messages();
    frame.add(&heartbeat(1, 2).encode(GROUP, ReplicaId(1), ReplicaId(2)).expect("replicas send it"));
    stream.write_all(frame.end()).await.ok();
    stream.shutdown().await.ok();
    stream.read_to_end(&mut Vec::new()).await.ok();
}

#[test]
fn a_process_that_says_another_node_than_its_certificate_is_refused() {
    let authority = Authority::new();
    let second = Process::start(authority.options(2));
    let (address, files) = (second.network.address(), authority.files(node(3)));
    second.runtime.block_on(say(address, &files, node(1)));
    second.wait_for_counters(|counters| counters.frames_refused == 1);
    assert_eq!(second.inbox.received(), []);
    second.runtime.block_on(say(address, &files, node(3)));
    second.inbox.wait_until(|received| received.len() == 1);
    assert_eq!(second.network.counters().frames_refused, 1);
}
