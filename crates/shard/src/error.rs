//! The crate's error type.

use replica::{GroupId, TooOld};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// True if the drive had no room, so that nothing was written and the call can be repeated.
    pub fn lacks_room(&self) -> bool {
        matches!(self, Error::Fs(error) if error.kind() == fs::ErrorKind::NoSpace)
    }
}

/// The error of a call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file system or the drive failed. Where the log is full nothing was written, and the call can be repeated.
    #[error(transparent)]
    Fs(#[from] fs::Error),
    /// A file with the process's own state is damaged.
    #[error("the state file {path}: {why}")]
    StateFile {
        /// The file's path.
        path: String,
        /// The fault of the file, for people.
        why: String,
    },
    /// A record of the log is not what this version writes.
    #[error("record {ticket} of the groups' log: {why}")]
    Record {
        /// The record's ticket.
        ticket: u64,
        /// The fault of the record, for people.
        why: String,
    },
    /// The bytes of a peer are no message that this version reads.
    #[error("a message of a peer: {why}")]
    Message {
        /// The fault of the message, for people.
        why: String,
    },
    /// A message of a group of a version that this program does not speak.
    #[error(transparent)]
    TooOld(#[from] TooOld),
    /// The process has no replica of the group, or has one already.
    #[error("{group}: {why}")]
    Group {
        /// The group.
        group: GroupId,
        /// The reason for the refusal, for people.
        why: &'static str,
    },
    /// A replica cannot start, or cannot go on.
    #[error("{group}: {why}")]
    Replica {
        /// The group.
        group: GroupId,
        /// The reason, for people.
        why: String,
    },
    /// The database with the tables of all groups cannot be opened or closed.
    #[error("the database of the groups' tables in {path}: {why}")]
    TablesDb {
        /// The database's directory.
        path: String,
        /// The error, for people.
        why: String,
    },
    /// The tables failed.
    #[error("the tables of {group}: {why}")]
    Tables {
        /// The group.
        group: GroupId,
        /// The error, for people.
        why: String,
    },
}
