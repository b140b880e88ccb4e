//! Errors of the parallel WAL.

use std::fmt;

use super::batch::BatchError;

/// What a caller can do about a log's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogErrorKind {
    /// Nothing was written: make room, then try again.
    NoSpace,
    /// Nothing was written: try again.
    Busy,
    /// This record will never come back; the log goes on.
    Failed,
    /// The log takes no more records; the next opening decides whether this one is replayed.
    Poisoned,
    /// The log or the tables are damaged.
    Corrupt,
}

/// An error of the log, or of the tables while they are opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct LogError {
    /// How the caller can go on.
    pub kind: LogErrorKind,
    /// The whole sentence.
    pub text: String,
}

impl LogError {
    /// An error with its sentence.
    pub fn new(kind: LogErrorKind, text: impl Into<String>) -> LogError {
        LogError { kind, text: text.into() }
    }
}

/// Why a write did not happen. `E` is the error of the caller's `apply`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteError<E> {
    /// Nothing was written: the batch cannot be taken.
    Batch(BatchError),
    /// Nothing was written: the options contradict each other or the batch.
    Invalid(String),
    /// The log did not take the batch; the error's kind tells whether anything was written.
    Log(LogError),
    /// The tables refused the batch, and a durable void keeps it from a replay.
    Apply(E),
    /// The tables refused the batch, and the log refused the void: the next opening decides whether the batch happened.
    Unknown(E, LogError),
}

impl<E: fmt::Display> fmt::Display for WriteError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Batch(error) => error.fmt(f),
            WriteError::Invalid(text) => f.write_str(text),
            WriteError::Log(error) => error.fmt(f),
            WriteError::Apply(error) => error.fmt(f),
            WriteError::Unknown(error, log) => write!(
                f,
                "{error}; and taking the batch back from the log failed: {log}; whether it was written is decided \
                 when the database is opened again"
            ),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for WriteError<E> {}

impl<E> From<BatchError> for WriteError<E> {
    fn from(error: BatchError) -> WriteError<E> {
        WriteError::Batch(error)
    }
}

impl<E> From<LogError> for WriteError<E> {
    fn from(error: LogError) -> WriteError<E> {
        WriteError::Log(error)
    }
}
