//! LevelDB databases on a mounted zoned file system, for Furrow's own programs: the crash explorer and the benchmarks.
//!
//! Unmodified LevelDB programs, and those with LevelDB within themselves, need the crate `furrow-leveldb` instead. Both compile the same
//! Env (`crates/leveldb/cpp`), so that what the explorer finds here holds for those programs too.
//!
//! ```text
//!   db       an open database
//!   batch    changes that are applied atomically
//!   cursor   iteration over keys in order
//!   ffi      LevelDB's C interface (leveldb/c.h) and ours to its Env (cpp/mounted_env.cc)
//! ```

mod batch;
mod cursor;
mod db;
mod error;
mod ffi;
mod options;

pub use batch::WriteBatch;
pub use cursor::Cursor;
pub use db::Db;
pub use error::{Error, Result};
pub use options::DbOptions;
