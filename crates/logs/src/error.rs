//! Errors of logs.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The log cannot do what was asked for; errors of a file and of its drive, too.
    #[error(transparent)]
    Log(#[from] prio::Error),
    /// The file system on the drive cannot be mounted.
    #[error(transparent)]
    Mount(#[from] mounts::Error),
    /// The file system on the drive failed, or has no such log.
    #[error("cannot {doing} {path} on {drive}: {source}")]
    Drive {
        /// The failed step.
        doing: &'static str,
        /// The log's path in the file system on the drive.
        path: String,
        /// The drive's URL.
        drive: String,
        /// The file system's error.
        source: fs::Error,
    },
    /// A path in the file system of a zoned drive is UTF-8, and `.furrow-cut` ends the names of copies.
    #[error("the path {0:?} of a log on a zoned drive is not UTF-8, or ends with .furrow-cut")]
    Path(PathBuf),
}

impl Error {
    /// An error of a system call on the file at `path`.
    pub(crate) fn io(doing: &'static str, path: &std::path::Path, source: io::Error) -> Error {
        Error::Log(prio::Error::Io { doing, path: path.to_owned(), source })
    }
}
