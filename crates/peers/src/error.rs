//! The crate's error type.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use replica::NodeId;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address off loopback, without TLS.
    #[error(
        "{address} is not on loopback, and peers off loopback are reached by TLS only: give a certificate, its key, and the authority that signs the nodes' certificates"
    )]
    NeedsTls {
        /// The address.
        address: SocketAddr,
    },
    /// Nothing can listen at the address.
    #[error("cannot listen for peers at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A file for TLS cannot be used.
    #[error("{path}: {why}")]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// The reason, for people.
        why: String,
    },
    /// The certificate is another node's.
    #[error("{path}: the certificate does not name node {node}: its subjectAltName must have DNS:{}", .node.dns_name())]
    CertificateName {
        /// The file.
        path: PathBuf,
        /// The node of this process.
        node: NodeId,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers: {0}")]
    Random(getrandom::Error),
}
