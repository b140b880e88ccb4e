//! The C interface of the file system, for engines in C++: `cpp/furrow_abi.h` declares the functions, and this crate defines them.
//!
//! The shim of an engine, such as RocksDB's in `furrow-rocks`, calls them. Each function only converts arguments and results. A panic
//! becomes an I/O error and never crosses into C++.
//!
//! ```text
//!   file                    open files
//!   dir                     a mounted file system: names, directories, locks
//!   mount                   one mount for each device URL, shared in the process
//!   counters  settings      what the environment says
//!   recovery  replay        databases that are being opened; the logs that they read
//!   open_logs               logs of programs that end without closing their databases
//!   status  strings  error  outcomes and byte strings in C++'s form
//!   fork                    children of a process that has mounted a drive
//! ```
//!
//! For the libraries that unmodified programs preload, [`preload`] starts such programs and [`jump!`] exports an engine's symbols.

mod counters;
mod dir;
mod error;
mod file;
mod fork;
mod jump;
mod mount;
mod open_logs;
pub mod preload;
mod recovery;
mod replay;
mod settings;
mod status;
mod strings;

pub use dir::{FurrowFs, FurrowLock, FurrowStat};
pub use file::{FurrowReader, FurrowWriter};
pub use replay::{LogReplay, Replays};
pub use status::{Failure, FurrowStatus, StatusCode, run_entry, run_infallible_entry, run_without_drive};
pub use strings::{bytes, path};
