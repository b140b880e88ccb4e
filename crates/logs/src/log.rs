//! The log that a program writes.

use std::path::Path;

use crate::error::{Error, Result};
use crate::zone_log::{DrivePath, ZoneLog};

/// Settings of a log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The URL of the zoned drive that the log lies on, such as `blk:/dev/nvme0n1`; paths are those of the file system there. `None`: the log is an ordinary file.
    pub drive: Option<String>,
    /// Settings of an ordinary file. A log on a zoned drive follows the `FURROW_WAL_*` variables instead.
    pub file: prio::Options,
}

/// A log that is being written. All methods may be called by any thread; appends and syncs of several threads are in flight side by side.
///
/// Dropping the log loses bytes that were not synced, or not.
#[derive(Debug)]
pub struct Log(Kind);

#[derive(Debug)]
enum Kind {
    File(prio::LogFile),
    Zones(ZoneLog),
}

impl Log {
    /// Creates a log, and makes its name durable. Fails if the path is taken. On a zoned drive the folders of the path are made too.
    pub fn create(path: impl AsRef<Path>, options: &Options) -> Result<Log> {
        Ok(Log(match &options.drive {
            None => Kind::File(prio::LogFile::create(path, &options.file)?),
            Some(drive) => Kind::Zones(ZoneLog::create(&DrivePath::new(drive, path.as_ref())?)?),
        }))
    }

    /// Opens a log to go on at byte `end`, where the caller found its last record to end. Bytes from there on are dropped first, durably: they are zeros, or entries that no
    /// finished sync covers. Zones cannot be cut: where a log there has bytes behind `end`, those below are copied to a new one, which takes its name.
    pub fn open(path: impl AsRef<Path>, end: u64, options: &Options) -> Result<Log> {
        Ok(Log(match &options.drive {
            None => Kind::File(prio::LogFile::open(path, end, &options.file)?),
            Some(drive) => Kind::Zones(ZoneLog::open(&DrivePath::new(drive, path.as_ref())?, end)?),
        }))
    }

    /// Appends bytes, which stay together. Returns where they end, for [`sync`](Log::sync). Ends in memory; waits while the log's buffer is full.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        match &self.0 {
            Kind::File(log) => Ok(log.append(bytes)?),
            Kind::Zones(log) => log.append(bytes),
        }
    }

    /// Makes all bytes below `upto` durable, and waits for that. After a failed write every append fails, and every sync of bytes above
    /// [`durable`](Log::durable): open the log again there.
    pub fn sync(&self, upto: u64) -> Result<()> {
        match &self.0 {
            Kind::File(log) => Ok(log.sync(upto)?),
            Kind::Zones(log) => log.sync(upto),
        }
    }

    /// Number of appended bytes.
    pub fn end(&self) -> u64 {
        match &self.0 {
            Kind::File(log) => log.end(),
            Kind::Zones(log) => log.end(),
        }
    }

    /// Number of bytes, from the log's begin, that are durable.
    pub fn durable(&self) -> u64 {
        match &self.0 {
            Kind::File(log) => log.durable(),
            Kind::Zones(log) => log.durable(),
        }
    }

    /// True if the log's writes come before all others of its drive: as real-time requests of the kernel, or on a zoned drive by its scheduler, whose class of logs is never held.
    pub fn is_real_time(&self) -> bool {
        match &self.0 {
            Kind::File(log) => log.is_real_time(),
            Kind::Zones(_) => true,
        }
    }

    /// Why no room is zeroed ahead of the log any more, such as a full drive; `None` while there is room, and on a zoned drive. Without room each write may cost a commit of the file
    /// system's journal.
    pub fn room_failure(&self) -> Option<String> {
        match &self.0 {
            Kind::File(log) => log.room_failure(),
            Kind::Zones(_) => None,
        }
    }

    /// Makes everything durable, and ends the log: an ordinary file is truncated to the appended bytes.
    pub fn close(self) -> Result<()> {
        match self.0 {
            Kind::File(log) => Ok(log.close()?),
            Kind::Zones(log) => log.close(),
        }
    }
}

/// Removes a log that nobody writes, durably.
pub fn remove(path: impl AsRef<Path>, options: &Options) -> Result<()> {
    let path = path.as_ref();
    match &options.drive {
        Some(drive) => DrivePath::new(drive, path)?.remove(),
        None => {
            std::fs::remove_file(path).map_err(|e| Error::io("remove", path, e))?;
            let parent =
                path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let folder = std::fs::File::open(parent).and_then(|folder| folder.sync_all());
            folder.map_err(|e| Error::io("sync the folder", parent, e))
        }
    }
}
