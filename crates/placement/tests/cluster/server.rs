//! A real etcd on free ports of this machine.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use placement::{ClientCertificate, ClusterName, Error, ErrorKind, Etcd, EtcdSettings};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Debian's place of the server.
const PROGRAM: &str = "/usr/bin/etcd";

/// How often a start is looked at, every 100 ms, before it has failed.
const STARTING: u32 = 1200;

/// An etcd that a test started, with data in a folder that goes with it. Ended when it is dropped.
pub struct Server {
    folder: TempDir,
    ports: [u16; 2],
    /// Reached by `https` with the certificates in the folder, and only with a client certificate.
    https: bool,
    child: Option<Child>,
}

impl Server {
    /// Starts an etcd without data.
    pub async fn start() -> Server {
        Server::start_with(false).await
    }

    /// Starts an etcd without data that asks for client certificates.
    pub async fn start_encrypted() -> Server {
        Server::start_with(true).await
    }

    async fn start_with(https: bool) -> Server {
        let folder = tempfile::tempdir().unwrap();
        if https {
            write_certificates(folder.path());
        }
        let mut server = Server { folder, ports: free_ports(), https, child: None };
        server.start_again().await;
        server
    }

    /// Starts the etcd that was killed, on the same ports with the same data.
    pub async fn start_again(&mut self) {
        for _ in 0..STARTING {
            if self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some()) {
                self.child = Some(self.spawn());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let etcd = self.client_with("ready", Duration::from_secs(5)).await;
            match etcd.load().await {
                Err(Error::NoCluster(_)) => return,
                Err(error) if error.kind() == ErrorKind::Retry => {}
                other => panic!("{other:?}"),
            }
        }
        panic!(
            "etcd does not answer; its log is {}",
            std::fs::read_to_string(self.folder.path().join("log")).unwrap()
        );
    }

    fn spawn(&self) -> Child {
        assert!(
            Path::new(PROGRAM).exists(),
            "{PROGRAM} is missing, and these tests need it: install Debian's package etcd-server (scripts/setup.sh test does)"
        );
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.ports[1]));
        let mut certificates = Vec::new();
        if self.https {
            let options = [
                ("--cert-file", "server.pem"),
                ("--key-file", "server.key"),
                ("--trusted-ca-file", "ca.pem"),
            ];
            certificates
                .extend(options.map(|(option, name)| format!("{option}={}", self.file(name).display())));
            certificates.push("--client-cert-auth".to_owned());
        }
        let log = std::fs::File::create(self.folder.path().join("log")).unwrap();
        Command::new(PROGRAM)
            .arg("--data-dir")
            .arg(self.data())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--heartbeat-interval", "60", "--election-timeout", "600"])
            .args(certificates)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// The folder with etcd's data.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Ends the etcd as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends the etcd a signal by its name, `STOP` or `CONT`.
    pub fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.https { "https" } else { "http" }, self.ports[0])
    }

    /// A file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Settings that reach the etcd.
    pub fn settings(&self) -> EtcdSettings {
        let mut settings = EtcdSettings::new([self.url()]);
        settings.timeout = Duration::from_secs(60);
        if self.https {
            settings.authority = Some(self.file("ca.pem"));
            settings.identity = Some(ClientCertificate {
                certificate: self.file("client.pem"),
                key: self.file("client.key"),
            });
        }
        settings
    }

    /// A client for the cluster of this name. A slow machine answers within its time.
    pub async fn client(&self, cluster: &str) -> Etcd {
        self.client_with(cluster, Duration::from_secs(60)).await
    }

    pub async fn client_with(&self, cluster: &str, timeout: Duration) -> Etcd {
        let settings = EtcdSettings { timeout, ..self.settings() };
        Etcd::connect(&settings, ClusterName::parse(cluster).unwrap()).await.unwrap()
    }

    /// A client that writes any keys and values.
    pub async fn raw(&self) -> etcd_client::Client {
        etcd_client::Client::connect([self.url()], None).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Two ports without a listener, below those of outgoing connections.
fn free_ports() -> [u16; 2] {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id() % 1000) as u16 * 12;
    let mut free =
        std::iter::repeat_with(|| 20_000 + (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000)
            .filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [free.next().unwrap(), free.next().unwrap()]
}

/// An authority, and certificates of it for a server on this machine and for a client.
fn write_certificates(folder: &Path) {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        let path = folder.join(format!("{name}.key"));
        std::fs::write(&path, key.serialize_pem()).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}
