//! A log in an ordinary file, on any file system and drive, whose synced writes stay fast beside other writers of the drive.
//!
//! "Mitigating Write-ahead Log Contention on Shared Storage Devices" (section 4.2) gives the log's writer real-time I/O priority. This crate gives it to the log's
//! *requests*, which needs no process of its own, and writes so that a sync is one durable write; while room is being zeroed, also a commit of the file system's journal:
//!
//! ```text
//!   append ----> [ bytes not written yet ] ---- sync ---> durable writes, real-time ---+
//!   (any thread)                                                                      v
//!   file   | appended bytes .................... | zeros: room ahead ......... |  end of file
//!                                                 ^ zeros, written in bulk class
//! ```
//!
//! - The file is the appended bytes, and zeros behind them until [`LogFile::close`], which truncates it to the appended bytes. A program that recovers a log after a
//!   crash finds the end by its own records, as with any log whose file is longer than its records.
//! - A log belongs to the process that opened it: a forked child's calls are refused.
//! - Room is zeroed ahead of the log: the first write into a preallocated extent would cost a commit of the file system's journal.
//! - Writes are direct (`O_DIRECT`) and durable (`RWF_DSYNC`). The last block is written again, with the same prefix, when it gets more bytes. Each sector of the block is old or new after
//!   a power cut, and both are right.
//! - A failed write poisons the log: every later append fails, and every sync of bytes that were not durable by then, until the log is opened again.
//!
//! [`Log`] is the same over any [`Storage`]; the crash explorer runs it on emulated drives.
#![forbid(unsafe_code)]

mod error;
mod file;
mod log;
mod options;
mod plan;
mod process;
mod rules;
mod storage;

pub use error::{Error, Result};
pub use file::LogFile;
pub use log::Log;
pub use options::{How, Options};
#[doc(hidden)]
pub use process::serve;
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use storage::{Finish, Request, Storage};
