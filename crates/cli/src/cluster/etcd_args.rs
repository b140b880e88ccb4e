//! The arguments of a process, or an operator, that speaks with etcd.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use placement::{ClientCertificate, ClusterName, EtcdSettings};

use crate::exit::Failure;

/// The way to etcd, and the cluster's name there.
#[derive(Debug, Args)]
pub struct EtcdArgs {
    /// Etcd's URLs.
    #[arg(long = "join", value_name = "URL,...", value_delimiter = ',', requires = "cluster")]
    pub endpoints: Vec<String>,
    /// The cluster's name.
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "endpoints")]
    pub cluster: Option<ClusterName>,
    /// Certificates of the authorities that vouch for etcd's, for https.
    #[arg(long, value_name = "FILE")]
    pub etcd_authority: Option<PathBuf>,
    /// This process's certificate for etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    pub etcd_certificate: Option<PathBuf>,
    /// The certificate's key.
    #[arg(long, value_name = "FILE", requires = "etcd_certificate")]
    pub etcd_key: Option<PathBuf>,
    /// File with USER:PASSWORD for etcd; only its owner may read it.
    #[arg(long, value_name = "FILE")]
    pub etcd_user: Option<PathBuf>,
}

impl EtcdArgs {
    /// The settings of etcd's client, and the cluster's name; `None` without `--join`.
    pub fn cluster(&self) -> Option<(EtcdSettings, ClusterName)> {
        let name = self.cluster.clone()?;
        let identity = self.etcd_certificate.clone().zip(self.etcd_key.clone());
        let settings = EtcdSettings {
            authority: self.etcd_authority.clone(),
            identity: identity.map(|(certificate, key)| ClientCertificate { certificate, key }),
            user: self.etcd_user.clone(),
            ..EtcdSettings::new(self.endpoints.iter().cloned())
        };
        Some((settings, name))
    }

    /// The settings of etcd's client, and the cluster's name.
    ///
    /// # Errors
    /// A usage error without `--join`.
    pub fn required(&self) -> Result<(EtcdSettings, ClusterName)> {
        self.cluster().ok_or_else(|| Failure::usage("which cluster? give --join URL and --cluster NAME"))
    }
}

fn parse_name(text: &str) -> Result<ClusterName, String> {
    ClusterName::parse(text).map_err(|error| error.to_string())
}
