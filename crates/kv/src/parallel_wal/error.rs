//! Errors of the parallel WAL.

use std::fmt;

use super::batch::BatchError;

/// What a caller can do about an error of the parallel log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogErrorKind {
    /// No record was written: make room in the log, then try again.
    NoSpace,
    /// No record was written: try again.
    Busy,
    /// The record of this append will never be replayed; the log goes on.
    Failed,
    /// The log takes no more records; the next opening decides whether the record of this append is replayed.
    Poisoned,
    /// The log or the tables are damaged.
    Corrupt,
}

/// An error of the parallel log, or of the tables during an opening.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct LogError {
    /// What the caller can do.
    pub kind: LogErrorKind,
    /// The error's text, a whole sentence.
    pub text: String,
}

impl LogError {
    /// An error with its kind and its text.
    pub fn new(kind: LogErrorKind, text: impl Into<String>) -> LogError {
        LogError { kind, text: text.into() }
    }
}

/// Why the write of a batch failed. `E` is the error of the caller's `apply`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteError<E> {
    /// The batch was refused before anything was written.
    Batch(BatchError),
    /// Nothing was written: the write's options contradict each other or the batch.
    Invalid(String),
    /// The log did not take the batch; the error's kind says whether anything was written.
    Log(LogError),
    /// The tables refused the batch, and a durable void entry keeps the batch from a replay.
    Apply(E),
    /// The tables refused the batch, and the log refused the void entry: the next opening decides whether the batch
    /// happened.
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
