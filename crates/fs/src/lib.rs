//! A file system for zoned devices: files as extents in zones, append logs, and a metadata log that a power cut
//! cannot break.
//!
//! [`Fs::format`] makes one, [`Fs::mount`] gives the handle. Everything is async on the device's driver;
//! a plain thread wraps calls in [`units::block_on`].
//!
//! ```text
//!   zone 0, 1     superblock and its copy
//!   zone 2..      metadata log: epochs, each a snapshot followed by what changed since (chain, meta, replay)
//!   the others    file data by expected lifetime (alloc), log segments (logs, log), or empty
//!
//!   Fs --> state: names, inodes, extents, zones     every change is a record, applied there and queued
//!            |--> meta: group commit: flush the data, then write the records durably
//!   Writer --> alloc: a zone, submitted in pointer order --> record of the extents
//!   cleaner: finish, reset, reclaim; reserve: zones opened ahead for logs
//! ```
//!
//! What holds at any power cut: metadata survives as a prefix of the changes made, and never points to data that
//! is not durable; a zone is reset only when durable metadata does not need it and no reader is in it.
#![forbid(unsafe_code)]

mod alloc;
mod chain;
mod check;
mod cleaner;
mod error;
mod extents;
mod file;
mod format;
mod fs;
mod lease;
pub mod log;
mod log_read;
mod logs;
mod meta;
mod mkfs;
mod mount;
mod options;
mod path;
mod plog;
mod pool;
mod reader;
mod replay;
mod reserve;
mod shared;
mod stat;
mod state;
mod usage;
mod writer;
mod zones;

pub use error::{Class, Error, ErrorKind, Result};
pub use fs::{FileLock, Fs};
pub use options::{CreateOptions, FileKind, FormatOptions, Lifetime, MountOptions, Pace, Sabotage};
pub use plog::{ParallelLog, ParallelOptions, ParallelStats, Replay, Ticket};
pub use reader::{Reader, SequentialReader};
pub use stat::{CheckReport, DirEntry, Kind, Stat, StatFs, Superblock, ZoneCounts, ZoneRole, ZoneUse};
pub use units::{Blocks, Bytes, ZoneId};
pub use uuid::Uuid;
pub use writer::Writer;
