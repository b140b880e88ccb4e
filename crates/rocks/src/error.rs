//! The one error type of the crate.

use std::fmt;

/// The result of a call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// There is no room left.
    NoSpace,
    /// Damaged data.
    Corrupt,
    /// The caller asked for something that makes no sense, or that RocksDB does not support.
    Invalid,
    /// The file system or the device failed, or could not be opened.
    Io,
    /// Try again later.
    Busy,
    /// The database is closed.
    Closed,
    /// A stock program or the plug-in is missing, or they do not fit together.
    Setup,
    /// Anything else RocksDB says.
    Other,
}

/// Why a call failed: what was being done, to what, and what to do next.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    retryable: bool,
    text: String,
}

impl Error {
    /// An error with its whole sentence.
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, retryable: kind == ErrorKind::Busy, text: text.into() }
    }

    /// An error with its whole sentence, of a call that may succeed later.
    pub(crate) fn retryable(kind: ErrorKind, text: String) -> Error {
        Error { kind, retryable: true, text }
    }

    /// A file system error met while `doing` something.
    pub(crate) fn fs(doing: String, error: &fs::Error) -> Error {
        let kind = match error.class() {
            fs::Class::NoSpace => ErrorKind::NoSpace,
            fs::Class::Corrupt => ErrorKind::Corrupt,
            fs::Class::Invalid => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        Error { kind, retryable: error.class() == fs::Class::Retry, text: format!("{doing}: {error}") }
    }

    /// Adds to the sentence.
    pub(crate) fn add(&mut self, more: &str) {
        self.text.push_str(more);
    }

    /// What went wrong.
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
    /// What RocksDB answered while `doing` something.
    pub(crate) fn rocksdb(doing: &str, kind: ErrorKind, retryable: bool, said: &str) -> Error {
        Error { kind, retryable, text: format!("{doing}: RocksDB says: {said}") }
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
