//! An open data zone: file data is being written to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use units::ZoneId;
use zoned::IoClass;

use crate::options::Lifetime;

/// The kind of job that writes file data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum DataSource {
    /// A flush of a memtable, or a client.
    Flush,
    /// A compaction, or other bulk of a class below flushes.
    Compaction,
    /// A reclaim.
    Reclaim,
}

impl DataSource {
    /// The source of a file whose writes have `class` while no caller waits for them.
    pub(crate) fn of(class: IoClass) -> DataSource {
        if class > IoClass::Flush { DataSource::Compaction } else { DataSource::Flush }
    }
}

/// The expected lifetime of file data, and the kind of job that writes the data. The allocator chooses a zone by both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DataKind {
    pub lifetime: Lifetime,
    pub source: DataSource,
}

/// An open data zone, to which file data is being written.
#[derive(Debug)]
pub(crate) struct OpenZone {
    pub zone: ZoneId,
    pub lifetime: Lifetime,
    /// The source of the data that the zone was opened for.
    pub(super) source: DataSource,
    pub(super) capacity: u64,
    /// The inode of the file that the zone is kept for, 0 for a zone of all files. Changes under the lock of the file system's state.
    owner: AtomicU64,
    /// The next block of the zone to write. Locked while a write is submitted, so that submission order is
    /// write pointer order.
    pub(super) next: Mutex<u64>,
    /// A copy of `next` that is read without the lock: the choice of a zone must not wait for a writer.
    pub(super) hint: AtomicU64,
    /// Number of writes to the zone that no metadata refers to yet. Until the metadata does, the zone does
    /// not count as dead.
    pub(super) in_flight: AtomicU32,
    /// Number of writes to the zone that the device has not acknowledged.
    pub(super) writing: AtomicU32,
    /// True once a write to the zone failed.
    pub(super) failed: AtomicBool,
}

impl OpenZone {
    /// An open data zone whose write pointer is at block `next`.
    pub(crate) fn new(zone: ZoneId, kind: DataKind, capacity: u64, next: u64) -> Arc<OpenZone> {
        Arc::new(OpenZone {
            zone,
            lifetime: kind.lifetime,
            source: kind.source,
            capacity,
            owner: AtomicU64::new(0),
            next: Mutex::new(next),
            hint: AtomicU64::new(next),
            in_flight: AtomicU32::new(0),
            writing: AtomicU32::new(0),
            failed: AtomicBool::new(false),
        })
    }

    /// The inode of the file that the zone is kept for.
    pub(super) fn owner(&self) -> Option<u64> {
        Some(self.owner.load(Ordering::Acquire)).filter(|ino| *ino != 0)
    }

    /// Keeps the zone for a file, or gives it to all files.
    pub(super) fn set_owner(&self, owner: Option<u64>) {
        self.owner.store(owner.unwrap_or_default(), Ordering::Release);
    }

    pub(super) fn is_of_reclaim(&self) -> bool {
        self.source == DataSource::Reclaim
    }

    pub(super) fn has_room(&self) -> bool {
        !self.failed.load(Ordering::Acquire) && self.hint.load(Ordering::Acquire) < self.capacity
    }

    /// Number of blocks that can still be written.
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.pointer())
    }

    /// True if the device counts the zone as open: a zone written to its end is full.
    pub(super) fn takes_slot(&self) -> bool {
        self.hint.load(Ordering::Acquire) < self.capacity
            || self.writing.load(Ordering::Acquire) > 0
            || self.failed.load(Ordering::Acquire)
    }

    /// Stops all writing to the zone and returns the write pointer; `None` if writes are in flight.
    pub(super) fn retire(&self) -> Option<u64> {
        let mut next = self.next.lock();
        if self.in_flight.load(Ordering::Acquire) > 0 {
            return None;
        }
        self.hint.store(self.capacity, Ordering::Release);
        Some(std::mem::replace(&mut *next, self.capacity))
    }

    /// Blocks submitted.
    pub(crate) fn pointer(&self) -> u64 {
        self.hint.load(Ordering::Acquire)
    }
}
