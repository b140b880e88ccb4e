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

mod check;
mod device;
mod error;
mod files;
mod fs;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod metadata;
mod options;
mod rules;
mod shared;
pub mod wal;

mod zones;

pub use device::IoClass;
pub use error::{Class, Error, ErrorKind, Result};
pub use files::reader::{Reader, SequentialReader};
pub use files::stat::{CheckReport, DirEntry, Stat, StatFs, Superblock, ZoneCounts, ZoneRole, ZoneUse};
pub use files::writer::Writer;
pub use fs::{FileLock, Fs};
pub use options::{CreateOptions, FileKind, FormatOptions, Lifetime, MountOptions, Pace};
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use units::{Blocks, Bytes, ZoneId};
pub use uuid::Uuid;
pub use wal::parallel::{Batching, ParallelLog, ParallelOptions, Replay, Ticket};
