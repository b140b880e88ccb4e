//! The error type of the LevelDB wrapper.

/// The result of a call of the LevelDB wrapper.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[non_exhaustive]
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// LevelDB refused or failed. After a write whose append to the log failed, every later one fails too.
    #[error("{doing}: LevelDB says: {message}")]
    LevelDb {
        /// The operation and its object.
        doing: String,
        /// LevelDB's own text: its class (`IO error`, `Corruption`, `Invalid argument`), the file, and the file system's reason.
        message: String,
    },
    /// A path holds a zero byte.
    #[error("{0:?} cannot be a database's path: it holds a zero byte")]
    Path(String),
}
