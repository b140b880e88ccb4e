//! The error type of the RocksDB wrapper.

use std::fmt;

/// The result of a call of the RocksDB wrapper.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an [`Error`].
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No space is left.
    NoSpace,
    /// Data is damaged.
    Corrupt,
    /// The request is invalid, or RocksDB does not support it.
    Invalid,
    /// The file system or the device failed, or could not be opened.
    Io,
    /// The call failed now and may succeed later.
    Busy,
    /// The database is closed.
    Closed,
    /// A stock program or the plug-in is missing, or their RocksDB versions differ.
    Setup,
    /// Any other error of RocksDB.
    Other,
}

/// Why a call failed. The text names the operation, its object and the remedy.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    retryable: bool,
    text: String,
}

impl Error {
    /// An error of class `kind` with its whole message.
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, retryable: kind == ErrorKind::Busy, text: text.into() }
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }
}

#[cfg(feature = "shim")]
impl Error {
    /// RocksDB's error `message` during the operation `doing`.
    pub(crate) fn rocksdb(doing: &str, kind: ErrorKind, retryable: bool, message: &str) -> Error {
        Error { kind, retryable, text: format!("{doing}: RocksDB says: {message}") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}

impl std::error::Error for Error {}
