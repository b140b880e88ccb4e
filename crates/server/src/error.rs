//! Errors of starting and stopping a server.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of a server's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server could not start or stop: the text has first the cause and the remedy, then the operation.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is out of its range, or settings contradict each other.
    #[error("{0}")]
    Options(String),
    /// The server cannot listen on a port.
    #[error("{source}{advice} (listening on {address} for {protocol})")]
    Listen {
        /// The port's address.
        address: SocketAddr,
        /// The protocol served on the port.
        protocol: &'static str,
        /// The system's error.
        source: std::io::Error,
        /// What the operator can do.
        advice: String,
    },
    /// The password file cannot be used.
    #[error("{detail} (password file {})", path.display())]
    Password {
        /// The password file's path.
        path: PathBuf,
        /// What is wrong with the password file.
        detail: String,
    },
    /// A file of TLS on the clients' port cannot be used.
    #[error("{detail} ({option} {})", path.display())]
    ClientTls {
        /// The option that names the file.
        option: &'static str,
        /// The file's path.
        path: PathBuf,
        /// The fault of the file, for people.
        detail: String,
    },
    /// The device could not be opened or closed.
    #[error("{detail} ({doing} {device})")]
    Device {
        /// The operation that failed.
        doing: &'static str,
        /// The device's URL.
        device: String,
        /// The error of the device.
        detail: String,
    },
    /// The engine failed.
    #[error("{0}")]
    Engine(#[from] kv::Error),
    /// The system refused threads or signal handlers.
    #[error("{0} (starting the server)")]
    System(#[from] std::io::Error),
}
