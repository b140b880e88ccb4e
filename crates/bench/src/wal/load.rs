//! The settings of a load on a log.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use fs::wal::{IoMode, LogOptions, LogZones};
use serde::{Serialize, Serializer};
use zoned::Bytes;

use crate::{Clock, Error, Result};

/// Bytes of the longest record of a load.
const MAX_RECORD_BYTES: u64 = 64 << 20;
/// Bytes of a log entry's header.
pub(super) const ENTRY_HEADER_BYTES: u64 = 64;
/// Most writers of a load.
const MAX_THREADS: u32 = 4096;

/// Which log takes the records, and which thread appends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogMode {
    /// An ordered log; a leader appends and syncs for all writers that wait, as RocksDB does.
    Group,
    /// An ordered log; each writer appends and syncs its own record.
    Each,
    /// A parallel log; each record is an append of its own.
    Waltz,
    /// A parallel log that joins records in one append when the drive has no parallelism to spare.
    Auto,
}

/// When a record is made durable before the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// Records are not synced; the end of the run waits until all are durable.
    None,
    /// Every record is synced.
    Each,
    /// One record in this many is synced.
    Every(NonZeroU64),
}

/// A load on a log.
#[derive(Clone, Debug, Serialize)]
pub struct WalLoad {
    /// The URL of the drive, which is formatted.
    pub device: String,
    /// The clock of the run; `None` as in [`Drive::open`](crate::Drive::open).
    pub clock: Option<Clock>,
    /// Whether to format a drive that holds data.
    #[serde(skip)]
    pub force: bool,
    /// Whether entries reach the drive by writes or by appends.
    #[serde(serialize_with = "io_mode")]
    pub io: IoMode,
    /// In which zones ordered logs lie.
    #[serde(serialize_with = "log_zones")]
    pub zones: LogZones,
    /// The kind of log, and the thread that appends; `batch` in JSON.
    #[serde(rename = "batch")]
    pub wal: LogMode,
    /// Number of writers: threads on a real clock, tasks on the virtual one.
    pub threads: u32,
    /// Bytes of a record.
    #[serde(serialize_with = "bytes")]
    pub record: Bytes,
    /// Bytes of the log's buffer.
    #[serde(serialize_with = "bytes")]
    pub buffer: Bytes,
    /// Most appends of the log in flight.
    pub window: u32,
    /// Bytes between the log's barriers; zero for a barrier at each zone's end.
    #[serde(serialize_with = "bytes")]
    pub barrier: Bytes,
    /// When records are made durable.
    pub sync: Sync,
    /// Bytes of all records together.
    #[serde(serialize_with = "bytes")]
    pub total: Bytes,
    /// Bytes on the drive after which a new log is begun and the old one removed; `None` for as many as fit on the drive.
    #[serde(serialize_with = "optional_bytes")]
    pub roll: Option<Bytes>,
}

impl Default for WalLoad {
    fn default() -> WalLoad {
        let log = LogOptions::default();
        WalLoad {
            device: String::from("emu:mem?profile=zn540"),
            clock: None,
            force: false,
            io: log.mode,
            zones: log.zones,
            wal: LogMode::Each,
            threads: 1,
            record: Bytes(4096),
            buffer: Bytes(log.buffer as u64),
            window: u32::try_from(log.window).unwrap_or(u32::MAX),
            barrier: Bytes(log.barrier as u64),
            sync: Sync::None,
            total: Bytes(64 << 20),
            roll: None,
        }
    }
}

impl WalLoad {
    /// Checks that the load's settings make sense.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`] names the setting that does not.
    pub fn validate(&self) -> Result<()> {
        let problem = if self.threads == 0 || self.threads > MAX_THREADS {
            format!("{} threads: from 1 to {MAX_THREADS}", self.threads)
        } else if self.record == Bytes::ZERO || self.record.0 > MAX_RECORD_BYTES {
            format!("a record of {} bytes: from 1 to {MAX_RECORD_BYTES}", self.record.0)
        } else if self.window == 0 || self.window as usize > LogOptions::MAX_WINDOW {
            format!("a window of {}: from 1 to {}", self.window, LogOptions::MAX_WINDOW)
        } else if self.buffer == Bytes::ZERO || usize::try_from(self.buffer.0).is_err() {
            String::from("the buffer has at least one byte, and fits into memory")
        } else if usize::try_from(self.barrier.0).is_err() {
            String::from("the barrier does not fit into memory: use 0 for none")
        } else if self.total < self.record {
            format!("{} bytes in all: not one record of {}", self.total.0, self.record.0)
        } else if self.roll == Some(Bytes::ZERO) {
            String::from("a log has at least one byte before the next one is begun")
        } else {
            return Ok(());
        };
        Err(Error::settings(problem))
    }

    /// Number of records in all.
    pub fn records(&self) -> u64 {
        self.total.0 / self.record.0.max(1)
    }

    pub(super) fn log_options(&self) -> LogOptions {
        let size = |bytes: Bytes| usize::try_from(bytes.0).expect("checked when the load was validated");
        #[allow(
            clippy::needless_update,
            reason = "LogOptions has one more field where fs is built with broken-rules"
        )]
        LogOptions {
            buffer: size(self.buffer),
            mode: self.io,
            window: self.window as usize,
            zones: self.zones,
            barrier: size(self.barrier),
            ..LogOptions::default()
        }
    }
}

impl Sync {
    /// Whether record `number`, from 0 on, is synced.
    pub(super) fn wants(self, number: u64) -> bool {
        match self {
            Sync::None => false,
            Sync::Each => true,
            Sync::Every(n) => (number + 1).is_multiple_of(n.get()),
        }
    }
}

impl FromStr for LogMode {
    type Err = String;

    fn from_str(text: &str) -> Result<LogMode, String> {
        match text {
            "group" => Ok(LogMode::Group),
            "each" => Ok(LogMode::Each),
            "waltz" => Ok(LogMode::Waltz),
            "auto" => Ok(LogMode::Auto),
            _ => Err(format!("'{text}' is no mode of a log: group, each, waltz or auto")),
        }
    }
}

impl fmt::Display for LogMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogMode::Group => "group",
            LogMode::Each => "each",
            LogMode::Waltz => "waltz",
            LogMode::Auto => "auto",
        })
    }
}

impl FromStr for Sync {
    type Err = String;

    fn from_str(text: &str) -> Result<Sync, String> {
        match text.split_once('=') {
            None if text == "none" => Ok(Sync::None),
            None if text == "each" => Ok(Sync::Each),
            Some(("every", n)) => match n.parse() {
                Ok(n) => Ok(Sync::Every(n)),
                Err(_) => Err(format!("every={n}: a number of records from 1 on is needed")),
            },
            _ => Err(format!("'{text}' is no sync: none, each or every=N")),
        }
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sync::None => f.write_str("none"),
            Sync::Each => f.write_str("each"),
            Sync::Every(n) => write!(f, "every={n}"),
        }
    }
}

impl Serialize for LogMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Sync {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The name of a write mode, as in flags and results.
pub fn io_name(mode: IoMode) -> &'static str {
    match mode {
        IoMode::Write => "write",
        IoMode::Append => "append",
    }
}

pub(crate) fn io_mode<S: Serializer>(mode: &IoMode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(io_name(*mode))
}

fn log_zones<S: Serializer>(zones: &LogZones, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match zones {
        LogZones::Auto => "auto",
        LogZones::Conventional => "conventional",
        LogZones::Sequential => "sequential",
    })
}

pub(crate) fn bytes<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(bytes.0)
}

pub(crate) fn optional_bytes<S: Serializer>(bytes: &Option<Bytes>, serializer: S) -> Result<S::Ok, S::Error> {
    bytes.map(|bytes| bytes.0).serialize(serializer)
}
