//! A program's log, in an ordinary file or on a zoned drive, behind the same calls.
//!
//! ```text
//!   Log ----> prio::LogFile   an ordinary file, on any file system and drive; requests with priority
//!    |
//!    '------> ZoneLog         a log of the zoned file system on Options::drive, which this process mounts (crate `mounts`)
//! ```
//!
//! Appends end in memory, and [`Log::sync`] makes them durable, by any number of threads. After a crash a program reads the log by a [`LogReader`], finds its end by its own records,
//! and goes on there with [`Log::open`].
//!
//! One process holds a zoned drive at a time: the process that has a log there. Its other logs on the same drive share the mount.
#![forbid(unsafe_code)]

mod error;
mod log;
mod reader;
mod zone_log;

pub use error::{Error, Result};
pub use log::{Log, Options, remove};
pub use reader::LogReader;
