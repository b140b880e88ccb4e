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
    /// How etcd is reached.
    pub etcd: EtcdSettings,
    /// The address at which other processes reach this one.
    pub peer: SocketAddr,
    /// TLS between processes, for addresses off loopback.
    pub tls: Option<TlsFiles>,
    /// Where clients are told to connect to; `None`: the address at which the server listens.
    pub announce: Option<Address>,
    /// The roles that the node takes.
    pub offers: Offers,
    /// Where the node stands.
    pub rack: Rack,
    /// The time without a leader after which a replica stands for election.
    pub election_timeout: Duration,
    /// Bytes of entries in a group's log above which the group takes no commands.
    pub group_log: Bytes,
    /// The time after its last sign at which others see the node as dead.
    pub node_ttl: Duration,
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
        self.settings().check().map_err(|why| Error::Setting(format!("--election-timeout: {why}")))
    }
}

/// Heartbeats in the time of an election timeout.
const HEARTBEATS: u32 = 10;
