//! RocksDB over the zoned file system.
//!
//! The C++ half (`cpp/`) is a file system for RocksDB over the C functions of `furrow-abi`, and a C face of RocksDB's database. The
//! Rust half is the database wrapper that the engine calls ([`Db`]), and the set-up that runs RocksDB's stock programs on a
//! zoned device ([`stock`]).
//!
//! ```text
//!   kv -> Db -> ffi -> cpp/db.cc -> librocksdb -> cpp/file_system.cc -> abi -> fs
//!              db_bench, ldb, ... -> librocksdb -> (plug-in) cpp/file_system.cc -> abi -> fs
//! ```

pub mod stock;

#[cfg(feature = "shim")]
mod batch;
#[cfg(feature = "shim")]
mod cursor;
#[cfg(feature = "shim")]
mod db;
#[cfg(feature = "shim")]
pub mod engine;
mod error;
#[cfg(feature = "shim")]
mod ffi;
#[cfg(feature = "shim")]
mod flush_events;
#[cfg(feature = "shim")]
mod options;
#[cfg(feature = "shim")]
mod parallel_abi;
#[cfg(feature = "shim")]
mod perf;
#[cfg(feature = "shim")]
mod pinned;
#[cfg(feature = "shim")]
mod unlogged;

#[cfg(feature = "shim")]
pub use abi::LogReplay;
#[cfg(feature = "shim")]
pub use batch::WriteBatch;
#[cfg(feature = "shim")]
pub use cursor::Cursor;
#[cfg(feature = "shim")]
pub use db::Db;
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "shim")]
pub use flush_events::FlushEvents;
#[cfg(feature = "shim")]
pub use options::DbOptions;
#[cfg(feature = "shim")]
pub use perf::{WriteTimes, take_write_times, time_writes};
#[cfg(feature = "shim")]
pub use pinned::Pinned;
#[cfg(feature = "shim")]
pub use unlogged::AppliedMark;
