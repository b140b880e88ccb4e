//! What goes wrong in the engine above RocksDB.

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
    /// The log takes nothing any more; opening it again decides what became of the record.
    Poisoned,
    /// What the log or the tables hold is damaged.
    Corrupt,
}

/// An error of the log, or of the tables while they are opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct LogError {
    /// What to do.
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

/// Why a write did not happen. `E` is the error of whoever applies batches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteError<E> {
    /// Nothing was written: the batch cannot be taken.
    Batch(BatchError),
    /// Nothing was written: it asks for what makes no sense.
    Invalid(String),
    /// The log did not take it; see its kind for whether anything was written.
    Log(LogError),
    /// The tables refused it, and a durable void keeps it from coming back.
    Apply(E),
    /// The tables refused it, and so did the log the void: opening again decides whether it happened.
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
