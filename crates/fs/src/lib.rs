//! A file system for zoned devices: files as extents in zones, ordered and parallel logs, and a metadata log with group commit.
//!
//! [`Fs::format`] makes a file system, [`Fs::mount`] returns its handle. All calls are async on the device's driver; a thread
//! without an executor wraps them in [`units::block_on`].
//!
//! ```text
//!   zone 0, 1     superblock and its copy
//!   zone 2..      metadata log: epochs, each a snapshot followed by the records since (metadata/{chain, log, roll, replay})
//!   the others    file data by expected lifetime (zones/allocator), log segments (wal), or empty
//!
//!   Fs --> metadata/state: names, inodes, extents, zones    every change is a record, applied to the state and queued
//!            '--> metadata/log: group commit: flushes the data, then writes the records durably
//!   Writer --> files/pages --> writeback/write_out --> zones/place: writes in write pointer order --> record of the extents
//!   Reader --> files/read: pages in memory (cache, files/pages), or the device
//!   logs --> wal --> zones/lease: the next zone, opened ahead by zones/ahead
//!   zones/cleaner: finish, reset, reclaim
//!
//!   all of these --> device: the one way to the device, by class
//! ```
//!
//! At any power cut: the metadata survives as a prefix of the changes made, and never points to data that is not durable. A zone
//! is reset only when the durable metadata does not need it and no read in it is under way.
#![forbid(unsafe_code)]

mod background;
mod cache;
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
mod writeback;
mod zones;

#[cfg(feature = "cache-trace")]
pub use cache::{CacheEvent, take_cache_events};
pub use cache::{CacheStats, check_cache_size, default_cache_size};
pub use device::Purpose;
pub use error::{Class, Error, ErrorKind, Result};
pub use files::reader::{Reader, SequentialReader};
pub use files::stat::{CheckReport, DirEntry, Stat, StatFs, Superblock, ZoneCounts, ZoneRole, ZoneUse};
pub use files::streams::AccessPattern;
pub use files::writer::Writer;
pub use fs::{FileLock, Fs, Recovery};
pub use options::{CacheMode, CreateOptions, FileKind, FormatOptions, Lifetime, MountOptions};
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use units::{Blocks, Bytes, ZoneId};
pub use uuid::Uuid;
pub use wal::parallel::{Batching, ParallelLog, ParallelOptions, Replay, Ticket};
pub use zoned::IoClass;
