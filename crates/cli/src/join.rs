//! The arguments with which `furrow serve` joins a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use node::NodeOptions;
use peers::TlsFiles;
use placement::{Address, Offers, Rack};
use server::ServeOptions;
use units::Bytes;

use crate::cluster::EtcdArgs;
use crate::exit::Failure;
use crate::size;

/// The time after its last sign at which others see a node as dead.
const NODE_TTL: Duration = Duration::from_secs(10);

/// The part of `furrow serve` that is for clusters.
#[derive(Debug, Args)]
pub struct JoinArgs {
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Address at which the other processes of the cluster reach this one.
    #[arg(long, value_name = "ADDRESS", requires = "endpoints")]
    peer: Option<SocketAddr>,
    /// The roles that the node takes: primary (keeps all values while it leads), backup (keeps all values), witness.
    #[arg(long, value_name = "ROLE,...", default_value = "primary,backup,witness", value_parser = parse_offers)]
    offer: Offers,
    /// Name of the rack: the roles of a group go to different ones.
    #[arg(long, value_name = "NAME", default_value = "rack", value_parser = parse_rack)]
    rack: Rack,
    /// Address that clients are told to connect to [default: the address that the server listens on]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    announce: Option<Address>,
    /// Certificate that names the node as UUID.furrow, for peers on other machines.
    #[arg(long, value_name = "FILE", requires_all = ["peer_key", "peer_authority"])]
    peer_certificate: Option<PathBuf>,
    /// The certificate's key.
    #[arg(long, value_name = "FILE", requires = "peer_certificate")]
    peer_key: Option<PathBuf>,
    /// Certificates of the authority of all nodes.
    #[arg(long, value_name = "FILE", requires = "peer_certificate")]
    peer_authority: Option<PathBuf>,
    /// Time without a leader after which another one is elected; the same on all nodes.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    election_timeout: Duration,
    /// Time without a sign of life after which other nodes get the replicas of a node.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    replace_after: Duration,
    /// Bytes of a group's log at which the group refuses writes.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size::parse)]
    group_log: Bytes,
}

impl JoinArgs {
    /// The settings of a process of a cluster; `None` without `--join`.
    pub fn node(
        self,
        mut serve: ServeOptions,
        has_max_value: bool,
    ) -> Result<Result<NodeOptions, ServeOptions>> {
        let Some((etcd, cluster)) = self.etcd.cluster() else { return Ok(Err(serve)) };
        let Some(peer) = self.peer else {
            return Err(Failure::usage(
                "--join needs --peer ADDRESS, at which other processes reach this one",
            ));
        };
        if !has_max_value {
            serve.max_value = serve.max_value.min(node::MAX_VALUE);
        }
        let tls = self.peer_certificate.zip(self.peer_key).zip(self.peer_authority);
        let tls = tls.map(|((certificate, key), authority)| TlsFiles { certificate, key, authority });
        Ok(Ok(NodeOptions {
            serve,
            etcd,
            cluster,
            peer,
            tls,
            announce: self.announce,
            offers: self.offer,
            rack: self.rack,
            election_timeout: self.election_timeout,
            group_log: self.group_log,
            node_ttl: NODE_TTL,
            replace_after: self.replace_after,
        }))
    }
}

fn parse_offers(text: &str) -> Result<Offers, String> {
    let mut offers = Offers::default();
    for role in text.split(',') {
        match role {
            "primary" => offers.primary = true,
            "backup" => offers.backup = true,
            "witness" => offers.witness = true,
            other => return Err(format!("'{other}' is no role: take primary, backup or witness")),
        }
    }
    Ok(offers)
}

fn parse_rack(text: &str) -> Result<Rack, String> {
    Rack::parse(text).map_err(|error| error.to_string())
}

fn parse_address(text: &str) -> Result<Address, String> {
    Address::parse(text).map_err(|error| error.to_string())
}
