//! Why a server could not start or stop.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The result of a server's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and what to do about it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that makes no sense.
    #[error("{0}")]
    Options(String),
    /// A port that cannot be had.
    #[error("cannot listen on {address} ({what}): {source}{advice}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// For what.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
        /// What to do.
        advice: String,
    },
    /// The password file cannot be used.
    #[error("the password file {}: {detail}", path.display())]
    Password {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The device could not be opened or closed.
    #[error("{doing} {device}: {detail}")]
    Device {
        /// What was being done.
        doing: &'static str,
        /// Its URL.
        device: String,
        /// What it said.
        detail: String,
    },
    /// The engine failed.
    #[error("the engine: {0}")]
    Engine(#[from] kv::Error),
    /// The system refused threads or signals.
    #[error("starting the server: {0}")]
    System(#[from] std::io::Error),
}
