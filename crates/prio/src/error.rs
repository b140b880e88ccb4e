//! Errors of logs in files.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a log in a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {doing} {path}: {source}", path = .path.display())]
    Io {
        /// The failed step.
        doing: &'static str,
        /// The log's file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process, or another handle of this one, has the log open.
    #[error("{path} is open as a log elsewhere: a log has one writer", path = .0.display())]
    Held(PathBuf),
    /// The file system has no direct I/O.
    #[error("the file system of {path} has no direct I/O (O_DIRECT): put the log on a file system of a drive, such as ext4 or xfs", path = .0.display())]
    NoDirectIo(PathBuf),
    /// The blocks that direct I/O wants are larger than the log's.
    #[error("direct I/O to {path} wants blocks of {wanted} bytes, the log's are of {block}: choose Options::block accordingly", path = .path.display())]
    Block {
        /// The log's file.
        path: PathBuf,
        /// Bytes of the file system's or drive's blocks.
        wanted: u32,
        /// Bytes of the log's blocks.
        block: u32,
    },
    /// The log was to be continued behind the end of its file.
    #[error("{path} has {len} bytes: it cannot be continued at byte {end}", path = .path.display())]
    BehindFile {
        /// The log's file.
        path: PathBuf,
        /// The file's length in bytes.
        len: u64,
        /// Where the log was to be continued.
        end: u64,
    },
    /// An earlier write of the log failed. Bytes below `durable` are durable, and that number does not change any more; those above may be there or not.
    #[error(
        "an earlier write of the log failed ({reason}); {durable} bytes are durable: open the log again there"
    )]
    Poisoned {
        /// The failed write's error.
        reason: String,
        /// The failed write's errno, if it had one.
        errno: Option<i32>,
        /// Number of bytes, from the log's begin, that are durable.
        durable: u64,
    },
    /// A sync of bytes that were never appended.
    #[error("cannot sync up to byte {upto}: {end} bytes were appended")]
    BehindEnd {
        /// Where the sync was to end.
        upto: u64,
        /// Number of appended bytes.
        end: u64,
    },
    /// The log was opened by the parent of this process.
    #[error("the log belongs to the process that opened it, and this one was forked: open a log of its own")]
    Forked,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
    /// An option is out of its range.
    #[error("{0}")]
    Options(String),
}
