//! A drive file: the lock on the file, the layout of its bytes, and the zones that changed since the last
//! flush.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FlockOperation};

use crate::ZoneId;
use crate::emu::file::format::{Header, TableEntry};

/// Unflushed bytes above which a flush starts without a request, as a drive may flush at any time.
const MAX_UNFLUSHED: u64 = 64 << 20;

/// A drive file locked by this process.
#[derive(Debug)]
pub(in crate::emu) struct Drive {
    pub(super) file: File,
    pub(super) header: Header,
    /// Zones that changed since the last flush of the drive file.
    pub(super) touched: Mutex<Vec<ZoneId>>,
    /// Bytes written to the drive since the last flush.
    pub(super) unflushed: AtomicU64,
    /// The zone table of the drive file. Locked during a flush.
    pub(super) table: Mutex<Table>,
    /// Id of the process that locked the file.
    pub(super) locked_by: u32,
}

impl Drop for Drive {
    /// Unlocks the file. Closing the file would unlock it later: a child that another thread has forked shares the lock
    /// until the child executes its program. A forked child that drops its copy of the drive leaves the lock alone.
    fn drop(&mut self) {
        if self.locked_by == std::process::id()
            && let Err(e) = rustix::fs::flock(&self.file, FlockOperation::Unlock)
        {
            tracing::debug!("the drive file stays locked until it is closed: {e}");
        }
    }
}

/// The zone table of a drive file.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) zones: Vec<TableEntry>,
    /// True after a failed flush, which leaves the file's content unknown: every later flush fails.
    pub(super) failed: bool,
}

impl Drive {
    /// Offset in the drive file of a byte of a zone.
    pub(super) fn at(&self, zone: ZoneId, byte: u64) -> u64 {
        self.header.data_at() + u64::from(zone.0) * self.header.zone_stride() + byte
    }

    /// Fills `into` from the drive file, starting at byte `at` of `zone`.
    pub(in crate::emu) fn read(&self, zone: ZoneId, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, self.at(zone, at))
    }

    /// Records that a zone changed for the first time since the last flush.
    pub(in crate::emu) fn mark_changed(&self, zone: ZoneId) {
        self.touched.lock().push(zone);
    }

    /// Counts unflushed bytes of the drive file; true if a flush is due.
    pub(in crate::emu) fn add_unflushed(&self, bytes: usize) -> bool {
        self.unflushed.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64 > MAX_UNFLUSHED
    }

    /// Writes bytes to the drive file.
    pub(super) fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        #[cfg(test)]
        super::tests::note_write(Some((at, bytes)));
        self.file.write_all_at(bytes, at)
    }

    /// Syncs the drive file.
    pub(super) fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        super::tests::note_write(None);
        self.file.sync_data()
    }

    /// Frees the file's space of a reset zone.
    pub(super) fn free_zone_space(&self, zone: ZoneId) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(e) = rustix::fs::fallocate(&self.file, flags, self.at(zone, 0), self.header.zone_stride())
        {
            tracing::debug!(zone = zone.0, "the host keeps a reset zone's space: {e}");
        }
    }
}
