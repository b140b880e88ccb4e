//! Errors that keep a measurement from being taken.

/// The result of a measurement.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that keeps a measurement from being taken.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The measurement's settings make no sense, or contradict each other.
    #[error("{0}")]
    Settings(String),
    /// The drive failed, or could not be opened.
    #[error("{0}")]
    Device(#[source] zoned::Error),
    /// The file system failed.
    #[error("{0}")]
    Fs(#[source] fs::Error),
    /// The engine above the database failed.
    #[error("{0}")]
    Engine(#[source] ::kv::Error),
    /// The database failed.
    #[error("{0}")]
    Db(#[source] rocks::Error),
    /// A log in a file failed.
    #[error("{0}")]
    FileLog(#[source] ::prio::Error),
    /// LevelDB failed.
    #[error("{0}")]
    LevelDb(#[source] level::Error),
    /// The log or the tables of a cluster's node failed.
    #[error("{0}")]
    Shard(#[source] ::shard::Error),
    /// A cluster did not do what its measurement needs, in words.
    #[error("the cluster: {0}")]
    Cluster(String),
}

impl From<::shard::Error> for Error {
    fn from(error: ::shard::Error) -> Error {
        Error::Shard(error)
    }
}

impl From<zoned::Error> for Error {
    fn from(error: zoned::Error) -> Error {
        Error::Device(error)
    }
}

impl From<fs::Error> for Error {
    fn from(error: fs::Error) -> Error {
        Error::Fs(error)
    }
}

impl From<::prio::Error> for Error {
    fn from(error: ::prio::Error) -> Error {
        Error::FileLog(error)
    }
}

impl From<rocks::Error> for Error {
    fn from(error: rocks::Error) -> Error {
        Error::Db(error)
    }
}

impl From<level::Error> for Error {
    fn from(error: level::Error) -> Error {
        Error::LevelDb(error)
    }
}

impl From<::kv::Error> for Error {
    fn from(error: ::kv::Error) -> Error {
        Error::Engine(error)
    }
}

impl Error {
    /// The error of settings that make no sense.
    pub(crate) fn settings(why: impl Into<String>) -> Error {
        Error::Settings(why.into())
    }
}
