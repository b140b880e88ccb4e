//! Errors of the key-value engine.

use crate::parallel_wal::{LogError, LogErrorKind, WriteError};

/// The result of an operation of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine or of the store below the engine.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The drive has no room for a write.
    #[error("no space left on the device: {0}")]
    NoSpace(String),
    /// A stored record that this build cannot read.
    #[error("the record of key {key} is damaged: {detail}; read the drive with `furrow fs check`")]
    Corrupt {
        /// The key of the damaged record, escaped for people.
        key: String,
        /// What is wrong with the record.
        detail: String,
    },
    /// The database was written by a program version with another layout.
    #[error("the database's record format is version {found}, this build reads version {known}")]
    Version {
        /// The layout version that the database names.
        found: u32,
        /// The layout version that this build knows.
        known: u32,
    },
    /// The store failed.
    #[error("{doing}: {detail}")]
    Store {
        /// The operation that failed.
        doing: &'static str,
        /// The store's error text.
        detail: String,
    },
    /// The log of a replicated store has no room for a write that grows it. The write did not happen.
    #[error("{0}")]
    LogFull(String),
    /// The store refused a write: the write did not happen and never will have. The store goes on.
    #[error("{doing}: {detail}; it did not happen, and can be tried again")]
    Refused {
        /// The operation that was refused.
        doing: &'static str,
        /// The reason of the refusal.
        detail: String,
    },
    /// A write failed, and only the next opening of the database decides whether it happened.
    #[error("{doing}: {detail}")]
    Unknown {
        /// The operation that failed.
        doing: &'static str,
        /// The error text of the failed operation.
        detail: String,
    },
    /// Another replica of a replicated store is to run the command. Nothing of it happened.
    #[error("{0}")]
    NotLeader(String),
    /// A write of a replicated store may happen later, or never.
    #[error("the outcome of the write is not known: {0}")]
    Open(String),
    /// The value of a key is on other replicas only, and none of them answered yet.
    #[error("{0}")]
    Missing(String),
    /// The engine is shut down.
    #[error("the engine is shut down")]
    Closed,
    /// The queue holds this many pipelines, and takes no more.
    #[error("too many pipelines are waiting ({0}); try again")]
    Busy(usize),
}

/// What a caller can do about an error of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Free space on the drive, then try again.
    NoSpace,
    /// Data is damaged, or of another version.
    Corrupt,
    /// Try again later.
    Retry,
    /// Let another replica run the command, or this one later: nothing of it happened.
    Elsewhere,
    /// The command may happen later, or never: the client is not to be answered.
    Open,
    /// The engine takes no more writes.
    Fatal,
}

impl Error {
    /// What the caller can do about this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoSpace(_) => ErrorKind::NoSpace,
            Error::Corrupt { .. } | Error::Version { .. } => ErrorKind::Corrupt,
            Error::Busy(_) | Error::Refused { .. } | Error::Missing(_) | Error::LogFull(_) => {
                ErrorKind::Retry
            }
            Error::NotLeader(_) => ErrorKind::Elsewhere,
            Error::Open(_) => ErrorKind::Open,
            Error::Store { .. } | Error::Unknown { .. } | Error::Closed => ErrorKind::Fatal,
        }
    }

    /// The text of the error reply for a client.
    pub(crate) fn to_client(&self) -> String {
        if let Error::LogFull(_) = self {
            return format!("OOM {self}; deletes are taken");
        }
        match self.kind() {
            ErrorKind::NoSpace => {
                format!("OOM {self}; delete keys, or give the server a larger drive, then try again")
            }
            ErrorKind::Fatal => {
                format!("MISCONF {self}; the server takes no writes until it is restarted; see its log")
            }
            _ => format!("ERR {self}"),
        }
    }

    /// The error for a damaged record of `key`.
    pub(crate) fn corrupt(key: &[u8], detail: impl Into<String>) -> Error {
        Error::Corrupt { key: format!("\"{}\"", key.escape_ascii()), detail: detail.into() }
    }
}

impl Error {
    /// The engine's error for RocksDB's error in the operation `doing`.
    pub(crate) fn rocks(doing: &'static str, error: &rocks::Error) -> Error {
        match error.kind() {
            rocks::ErrorKind::NoSpace => Error::NoSpace(error.to_string()),
            rocks::ErrorKind::Closed => Error::Closed,
            _ => Error::Store { doing, detail: error.to_string() },
        }
    }

    /// The engine's error for the parallel log's error in the operation `doing`.
    pub(crate) fn log(doing: &'static str, error: LogError) -> Error {
        match error.kind {
            LogErrorKind::NoSpace => Error::NoSpace(error.text),
            LogErrorKind::Busy | LogErrorKind::Failed => Error::Refused { doing, detail: error.text },
            LogErrorKind::Poisoned | LogErrorKind::Corrupt => Error::Store { doing, detail: error.text },
        }
    }

    /// The engine's error for a batch that was not written, in the operation `doing`.
    pub(crate) fn write(doing: &'static str, error: WriteError<rocks::Error>) -> Error {
        match error {
            WriteError::Log(error) => Error::log(doing, error),
            WriteError::Apply(error) => Error::rocks(doing, &error),
            WriteError::Unknown(..) => Error::Unknown { doing, detail: error.to_string() },
            WriteError::Batch(_) | WriteError::Invalid(_) => {
                Error::Store { doing, detail: error.to_string() }
            }
        }
    }
}
