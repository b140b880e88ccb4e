//! The engine's errors.

use crate::parallel_wal::{LogError, LogErrorKind, WriteError};

/// The result of an engine's operation.
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
        /// The key, escaped for people.
        key: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The database was written by another version.
    #[error("the database's record format is version {found}, this build reads version {known}")]
    Version {
        /// What the database says.
        found: u32,
        /// What this build knows.
        known: u32,
    },
    /// The store failed.
    #[error("{doing}: {detail}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What the store said.
        detail: String,
    },
    /// A write that did not happen, and never will have; the store goes on.
    #[error("{doing}: {detail}; it did not happen, and can be tried again")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// Why it was refused.
        detail: String,
    },
    /// Whether a write happened is decided when the database is opened again.
    #[error("{doing}: {detail}")]
    Unknown {
        /// What was being done.
        doing: &'static str,
        /// What failed.
        detail: String,
    },
    /// The engine is shut down.
    #[error("the engine is shut down")]
    Closed,
    /// Too much is waiting.
    #[error("too many pipelines are waiting ({0}); try again")]
    Busy(usize),
}

/// What a caller can do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Free something, then try again.
    NoSpace,
    /// Data is damaged or of another version.
    Corrupt,
    /// Try again later.
    Retry,
    /// The engine takes no writes any more.
    Fatal,
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoSpace(_) => ErrorKind::NoSpace,
            Error::Corrupt { .. } | Error::Version { .. } => ErrorKind::Corrupt,
            Error::Busy(_) | Error::Refused { .. } => ErrorKind::Retry,
            Error::Store { .. } | Error::Unknown { .. } | Error::Closed => ErrorKind::Fatal,
        }
    }

    /// The text of the error reply that a client gets.
    pub(crate) fn to_client(&self) -> String {
        match self.kind() {
            ErrorKind::NoSpace => {
                format!("ERR {self}; delete keys, or give the server a larger drive, then try again")
            }
            ErrorKind::Fatal => {
                format!("MISCONF {self}; the server takes no writes until it is restarted; see its log")
            }
            _ => format!("ERR {self}"),
        }
    }

    /// A damaged record of `key`.
    pub(crate) fn corrupt(key: &[u8], detail: impl Into<String>) -> Error {
        Error::Corrupt { key: format!("\"{}\"", key.escape_ascii()), detail: detail.into() }
    }
}

impl Error {
    /// RocksDB's error, met while `doing` something.
    pub(crate) fn rocks(doing: &'static str, error: &rocks::Error) -> Error {
        match error.kind() {
            rocks::ErrorKind::NoSpace => Error::NoSpace(error.to_string()),
            rocks::ErrorKind::Closed => Error::Closed,
            _ => Error::Store { doing, detail: error.to_string() },
        }
    }

    /// The parallel log's error, met while `doing` something.
    pub(crate) fn log(doing: &'static str, error: LogError) -> Error {
        match error.kind {
            LogErrorKind::NoSpace => Error::NoSpace(error.text),
            LogErrorKind::Busy | LogErrorKind::Failed => Error::Refused { doing, detail: error.text },
            LogErrorKind::Poisoned | LogErrorKind::Corrupt => Error::Store { doing, detail: error.text },
        }
    }

    /// Why a batch was not written.
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
