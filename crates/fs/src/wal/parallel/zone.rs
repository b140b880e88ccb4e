//! A zone that a parallel log writes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uuid::Uuid;

use crate::wal::entry::Home;
use crate::wal::parallel::gate::Gate;
use crate::wal::segment::{Next, Segment};

/// A zone is nearly full if less than this fraction of its capacity is left, or fewer than this many of the
/// longest appends.
const NEARLY_FULL_FRACTION: u64 = 32;
const NEARLY_FULL_APPENDS: u64 = 4;

/// A log zone: its segment, the gate that allots the segment's blocks, and the zone's state.
#[derive(Debug)]
pub(super) struct LogZone {
    pub(super) segment: Segment,
    pub(super) home: Home,
    pub(super) gate: Gate,
    /// Blocks added to the allotted ones when zones of a stripe are compared.
    base: AtomicU64,
    /// True if the zone may be active beside the zone that the log leaves for it.
    pub(super) beside: bool,
    /// True once a device operation failed, so that the zone's write pointer is unknown.
    failed: AtomicBool,
    /// True once maintenance was notified that the zone is nearly full.
    announced: AtomicBool,
    /// True once the rest of the zone was filled, or is being filled.
    filled: AtomicBool,
}

impl LogZone {
    pub(super) fn new(next: Next, uuid: Uuid) -> Arc<LogZone> {
        let Next { segment, beside } = next;
        Arc::new(LogZone {
            segment,
            home: Home { uuid, zone: segment.zone },
            gate: Gate::new(segment.end.minus(segment.start).0),
            base: AtomicU64::new(0),
            beside,
            failed: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            filled: AtomicBool::new(false),
        })
    }

    /// The zone's load: blocks allotted, plus the base. The zone of a stripe with the lowest load is written
    /// next.
    pub(super) fn load(&self) -> u64 {
        self.base.load(Ordering::Relaxed) + self.gate.used()
    }

    pub(super) fn set_base(&self, blocks: u64) {
        self.base.store(blocks, Ordering::Relaxed);
    }

    pub(super) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// True if so little of the zone is left that the next segment should be fetched. `longest`: blocks of
    /// the longest append.
    pub(super) fn is_nearly_full(&self, longest: u64) -> bool {
        let capacity = self.segment.end.minus(self.segment.start).0;
        let least = (capacity / NEARLY_FULL_FRACTION).max(NEARLY_FULL_APPENDS * longest);
        self.gate.left() <= least.min(capacity / 2)
    }

    /// Notes that maintenance knows that the zone is nearly full. True for the first caller.
    pub(super) fn announce(&self) -> bool {
        !self.announced.load(Ordering::Relaxed) && !self.announced.swap(true, Ordering::AcqRel)
    }

    /// Notes that the caller fills the rest of the zone. True for the first caller.
    pub(super) fn begin_fill(&self) -> bool {
        !self.filled.swap(true, Ordering::AcqRel)
    }
}
