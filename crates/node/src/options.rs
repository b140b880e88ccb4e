//! The settings of a process of a cluster.

use std::net::SocketAddr;
use std::time::Duration;

use peers::TlsFiles;
use placement::{Address, ClusterName, EtcdSettings, Offers, Rack};
use replica::Settings;
use server::ServeOptions;
use units::Bytes;

use crate::error::{Error, Result};

/// The longest value of a key in a cluster, in bytes: a batch with its values is one message to other replicas.
pub const MAX_VALUE: u64 = 4 << 20;

/// The settings of a process of a cluster.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The drive, the clients' port and their limits.
    pub serve: ServeOptions,
    /// The cluster's name in etcd.
    pub cluster: ClusterName,
    /// The way to etcd.
    pub etcd: EtcdSettings,
    /// The address at which other processes reach this one.
    pub peer: SocketAddr,
    /// TLS between processes, for addresses off loopback.
    pub tls: Option<TlsFiles>,
    /// The address that clients are told to connect to; `None`: the address at which the server listens.
    pub announce: Option<Address>,
    /// The roles that the node takes.
    pub offers: Offers,
    /// The node's rack.
    pub rack: Rack,
    /// The time without a leader after which a replica stands for election.
    pub election_timeout: Duration,
    /// Bytes of entries in a group's log above which the group takes no commands.
    pub group_log: Bytes,
    /// The time after its last sign at which others see the node as dead.
    pub node_ttl: Duration,
    /// The time without a sign of life after which the replicas of a node are replaced by others, on other nodes.
    pub replace_after: Duration,
}

impl NodeOptions {
    /// The times of a group.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            election_timeout: self.election_timeout,
            heartbeat: self.election_timeout / HEARTBEATS,
            ..Settings::default()
        }
    }

    /// Checks the settings. Off loopback, other processes and clients must use TLS; that clients must give a password too is checked
    /// by [`ServeOptions::validate`].
    ///
    /// # Errors
    /// `Setting`, for people.
    pub(crate) fn check(&self) -> Result<()> {
        if self.serve.max_value > MAX_VALUE {
            let most = MAX_VALUE >> 20;
            return Err(Error::Setting(format!(
                "--max-value is at most {most}MiB in a cluster: a value is part of one message"
            )));
        }
        if !self.serve.durability.is_sync() {
            return Err(Error::Setting("a cluster is always --durability sync: leave the option out".into()));
        }
        if self.tls.is_none() && !self.peer.ip().is_loopback() {
            return Err(Error::Setting(format!(
                "--peer {} is reached from other machines, by TLS only: give --peer-certificate, --peer-key and \
                 --peer-authority",
                self.peer
            )));
        }
        if self.serve.client_tls.is_none() && !self.serve.bind.is_loopback() {
            return Err(Error::Setting(format!(
                "--bind {} is reached from other machines, in a cluster by TLS only: give --client-tls-certificate and \
                 --client-tls-key on every node",
                self.serve.bind
            )));
        }
        if self.peer.ip().is_unspecified() {
            return Err(Error::Setting(format!(
                "--peer {} means every interface of a machine: name the one that other processes connect to",
                self.peer
            )));
        }
        self.etcd.validate()?;
        self.settings().check().map_err(|why| Error::Setting(format!("--election-timeout: {why}")))
    }
}

/// Heartbeats in the time of an election timeout.
const HEARTBEATS: u32 = 10;

#[cfg(test)]
mod tests {
    use server::ClientTlsFiles;

    use super::*;

    fn options(peer: &str, etcd: &str) -> NodeOptions {
        NodeOptions {
            serve: ServeOptions { max_value: MAX_VALUE, ..ServeOptions::default() },
            cluster: ClusterName::parse("barn").unwrap(),
            etcd: EtcdSettings::new([etcd.to_owned()]),
            peer: peer.parse().unwrap(),
            tls: None,
            announce: None,
            offers: Offers::default(),
            rack: Rack::parse("rack").unwrap(),
            election_timeout: Duration::from_millis(500),
            group_log: Bytes(64 << 20),
            node_ttl: Duration::from_secs(10),
            replace_after: Duration::from_secs(600),
        }
    }

    fn fault(options: &NodeOptions) -> String {
        options.check().unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_work_over_several_machines_is_refused_before_the_drive_is_touched() {
        options("127.0.0.1:7379", "http://127.0.0.1:2379").check().unwrap();
        let mut open = options("10.0.0.1:7379", "http://127.0.0.1:2379");
        assert!(fault(&open).contains("--peer-certificate"), "{}", fault(&open));
        let files = ["node.pem", "node.key", "authority.pem"].map(Into::into);
        let [certificate, key, authority] = files;
        open.tls = Some(TlsFiles { certificate, key, authority });
        // The files may come later: the certificate names the node, whose name its first start gives.
        open.check().unwrap();
        open.peer = "0.0.0.0:7379".parse().unwrap();
        assert!(fault(&open).contains("every interface"), "{}", fault(&open));
        assert!(fault(&options("127.0.0.1:7379", "http://10.0.0.1:2379")).contains("use https"));
    }

    #[test]
    fn clients_on_other_machines_need_tls_and_a_password() {
        let mut open = options("127.0.0.1:7379", "http://127.0.0.1:2379");
        open.serve.bind = "10.0.0.1".parse().unwrap();
        open.serve.password_file = Some("password".into());
        assert!(fault(&open).contains("--client-tls-certificate"), "{}", fault(&open));
        let (certificate, key) = ("clients.pem".into(), "clients.key".into());
        open.serve.client_tls = Some(ClientTlsFiles { certificate, key, authority: None });
        open.check().unwrap();
        open.serve.validate().unwrap();
        open.serve.password_file = None;
        assert!(open.serve.validate().unwrap_err().to_string().contains("--password-file"));
    }
}
