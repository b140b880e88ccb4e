//! The error of a mount by URL.

use std::fmt;

/// The result of a step of a mount.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The class of an [`Error`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// No space is left.
    NoSpace,
    /// Data is damaged.
    Corrupt,
    /// The request or a setting is invalid.
    Invalid,
    /// The file system or the device failed, or could not be opened.
    Io,
}

/// Why a mount failed. The text names the operation, its object and the remedy.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    retryable: bool,
    text: String,
}

impl Error {
    /// An error of class `kind` with its whole message.
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, retryable: false, text: text.into() }
    }

    /// An error of a call that may succeed later, with its whole message.
    pub(crate) fn retryable(kind: ErrorKind, text: String) -> Error {
        Error { kind, retryable: true, text }
    }

    /// An error of the file system during the operation `doing`.
    pub(crate) fn fs(doing: String, error: &fs::Error) -> Error {
        let kind = match error.class() {
            fs::Class::NoSpace => ErrorKind::NoSpace,
            fs::Class::Corrupt => ErrorKind::Corrupt,
            fs::Class::Invalid => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        Error { kind, retryable: error.class() == fs::Class::Retry, text: format!("{doing}: {error}") }
    }

    /// Appends `more` to the error's message.
    pub(crate) fn add(&mut self, more: &str) {
        self.text.push_str(more);
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
