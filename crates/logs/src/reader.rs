//! Reads of a log, for the recovery of the program that wrote it.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::log::Options;
use crate::zone_log::{DrivePath, ZoneLogReader};

/// An open log that is read at any offset, by any thread.
#[derive(Debug)]
pub struct LogReader(Kind);

#[derive(Debug)]
enum Kind {
    File(File, PathBuf),
    Zones(ZoneLogReader),
}

impl LogReader {
    /// Opens a log for reading, also while it is written.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<LogReader> {
        let path = path.as_ref();
        Ok(LogReader(match &options.drive {
            None => Kind::File(File::open(path).map_err(|e| Error::io("open", path, e))?, path.to_owned()),
            Some(drive) => Kind::Zones(ZoneLogReader::open(DrivePath::new(drive, path)?)?),
        }))
    }

    /// Number of bytes of the log. In an ordinary file zeros behind the appended bytes are among them, until the log is closed.
    pub fn len(&self) -> Result<u64> {
        match &self.0 {
            Kind::File(file, path) => Ok(file.metadata().map_err(|e| Error::io("stat", path, e))?.len()),
            Kind::Zones(log) => log.len(),
        }
    }

    /// True if the log has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads the bytes at `offset`. Returns their number: fewer than asked for only at the end of the log.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        match &self.0 {
            Kind::Zones(log) => log.read_at(offset, into),
            Kind::File(file, path) => {
                let mut done = 0;
                while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
                    match file.read_at(rest, offset.saturating_add(done as u64)) {
                        Ok(0) => break,
                        Ok(read) => done += read,
                        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(Error::io("read", path, e)),
                    }
                }
                Ok(done)
            }
        }
    }
}
