//! Errors of a process of a cluster.

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error that ends a process of a cluster, or keeps it from starting.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server, the drive or its file system failed.
    #[error(transparent)]
    Server(#[from] server::Error),
    /// A group's replica, the groups' log or the tables failed.
    #[error(transparent)]
    Shard(#[from] shard::Error),
    /// The file system failed.
    #[error(transparent)]
    Fs(#[from] fs::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] kv::Error),
    /// The connections to other processes failed.
    #[error(transparent)]
    Network(#[from] peers::Error),
    /// Etcd refuses this process, or holds a cluster that it must not join.
    #[error(transparent)]
    Placement(#[from] placement::Error),
    /// Etcd holds another cluster than the drive belongs to, or an older state of it.
    #[error("the drive and etcd do not fit: {0}")]
    Stale(#[from] placement::StaleError),
    /// The nodes that have joined do not do for the groups.
    #[error(transparent)]
    Place(#[from] placement::PlaceError),
    /// The process cannot use the system.
    #[error("{doing}: {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
    /// The state on the drive is none that this program wrote.
    #[error("the node's state on the drive: {0}")]
    State(String),
}
