//! The C interface of the file system, for engines in C++: `cpp/furrow_abi.h` declares the functions, and this crate defines them.
//!
//! The shim of an engine, such as RocksDB's in `furrow-rocks`, calls them. Each function only converts arguments and results. A panic
//! becomes an I/O error and never crosses into C++. Drives are mounted by URL ([`mounts`]).
//!
//! ```text
//!   file                    open files
//!   dir                     a mounted file system: names, directories, locks
//!   recovery  replay        databases that are being opened; the logs that they read
//!   status  strings         outcomes and byte strings in C++'s form
//! ```
//!
//! For the libraries that unmodified programs preload, [`preload`] starts such programs and [`jump!`] exports an engine's symbols.

mod dir;
mod file;
mod jump;
pub mod preload;
mod recovery;
mod replay;
mod status;
mod strings;

pub use dir::{FurrowFs, FurrowLock, FurrowStat};
pub use file::{FurrowReader, FurrowWriter};
pub use replay::{LogReplay, Replays};
pub use status::{Failure, FurrowStatus, StatusCode, run_entry, run_infallible_entry, run_without_drive};
pub use strings::{bytes, path};
