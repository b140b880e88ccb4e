//! A zone that a parallel log writes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::wal::entry::Home;
use crate::wal::parallel::gate::Gate;
use crate::wal::segment::{Next, Segment};

/// A segment, and who is in it.
#[derive(Debug)]
pub(super) struct Zone {
    pub(super) segment: Segment,
    pub(super) home: Home,
    pub(super) gate: Gate,
    /// Blocks that it counts as having been given before its first, among zones that are written at a time.
    begins_at: AtomicU64,
    /// It may be active beside the one that the log leaves.
    pub(super) beside: bool,
    /// An operation failed: nobody knows where the pointer is.
    broken: AtomicBool,
    /// The keeper was told that little is left.
    warned: AtomicBool,
    /// What was left is filled: the device counts the zone as full.
    filled: AtomicBool,
}

impl Zone {
    pub(super) fn new(next: Next, uuid: uuid::Uuid) -> Arc<Zone> {
        let Next { segment, beside } = next;
        Arc::new(Zone {
            segment,
            home: Home { uuid, zone: segment.zone },
            gate: Gate::new(segment.end.minus(segment.start).0),
            begins_at: AtomicU64::new(0),
            beside,
            broken: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            filled: AtomicBool::new(false),
        })
    }

    /// What it was given, for a comparison with others that are written at a time.
    pub(super) fn turn(&self) -> u64 {
        self.begins_at.load(Ordering::Relaxed) + self.gate.used()
    }

    /// Its first block is to count as so many.
    pub(super) fn begin_at(&self, blocks: u64) {
        self.begins_at.store(blocks, Ordering::Relaxed);
    }

    pub(super) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// True the first time.
    pub(super) fn warn(&self) -> bool {
        !self.warned.load(Ordering::Relaxed) && !self.warned.swap(true, Ordering::AcqRel)
    }

    /// True the first time.
    pub(super) fn fill(&self) -> bool {
        !self.filled.swap(true, Ordering::AcqRel)
    }
}

/// Which tickets are in which segment, in the order of the log's segments in the metadata.
#[derive(Debug)]
pub(super) struct Tops(pub(super) Mutex<Vec<Top>>);

/// A segment of the log.
#[derive(Debug)]
pub(super) struct Top {
    /// The zone, where it is being written or was by this writer.
    pub(super) zone: Option<Arc<Zone>>,
    /// Above every ticket in it; `None` while that may grow.
    pub(super) top: Option<u64>,
}
