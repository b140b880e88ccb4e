//! Errors of starting and stopping a server.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of a server's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server could not start or stop: first the cause and what to do, then what was being done.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting out of its range, or settings that contradict each other.
    #[error("{0}")]
    Options(String),
    /// A port that cannot be opened.
    #[error("{source}{advice} (listening on {address} for {protocol})")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The protocol of the port.
        protocol: &'static str,
        /// The system's error.
        source: std::io::Error,
        /// What to do.
        advice: String,
    },
    /// The password file cannot be used.
    #[error("{detail} (password file {})", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        detail: String,
    },
    /// The device could not be opened or closed.
    #[error("{detail} ({doing} {device})")]
    Device {
        /// What was being done.
        doing: &'static str,
        /// The device's URL.
        device: String,
        /// The error.
        detail: String,
    },
    /// The engine failed.
    #[error("{0}")]
    Engine(#[from] kv::Error),
    /// The system refused threads or signals.
    #[error("{0} (starting the server)")]
    System(#[from] std::io::Error),
}
