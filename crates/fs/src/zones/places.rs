//! Where writes may go: the open zones of a mount by use, and the empty zones kept for a purpose.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use units::ZoneId;

use crate::wal::segment::Segment;
use crate::zones::open_zone::OpenZone;
use crate::zones::slots::Slots;

/// Where writes may go.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// Zones that file data is being written to.
    pub open: Vec<Arc<OpenZone>>,
    /// The shares of open zones; `None` before the mount has set them.
    pub slots: Option<Slots>,
    /// Zones that wait for a finish. Each holds a slot until the finish.
    pub finishing: Vec<ZoneId>,
    /// Zones with log segments in front and room behind them.
    pub rests: Vec<ZoneId>,
    /// The zone that each open log writes to, by the log's inode.
    pub leases: BTreeMap<u64, Lease>,
    /// Zones that logs have left while entries may still be in flight. Each holds a slot until it is full.
    pub leaving: Vec<Left>,
    /// Empty zones, opened ahead for the logs that need one next.
    pub ahead: VecDeque<ZoneId>,
    /// Number of further zones to open ahead while empty zones are plentiful: a striped log replaces its zones together.
    pub wide: usize,
    /// A zone is being opened ahead.
    pub opening: bool,
    /// Generations that are durably set aside and not yet used.
    pub generations: Range<u64>,
    /// The committer makes records up to this number durable, although no caller waits for them.
    pub commit_soon: u64,
    /// Number of empty zones kept for reclaim.
    pub kept: usize,
    /// A writer waits for space.
    pub wanted: bool,
    /// Number of logs that wait for an open zone.
    pub waiting_logs: usize,
    /// The cleaner found nothing to reclaim, and nothing was freed since.
    pub exhausted: bool,
    /// Counts the calls of [`note_reclaimable`](Places::note_reclaimable).
    pub changes: u64,
    /// Zones whose reclaim failed. The cleaner does not try them again.
    pub stuck: Vec<ZoneId>,
}

impl Places {
    /// Blocks were freed, or a zone became a candidate for reclaim: the cleaner has something to look at again.
    pub(crate) fn note_reclaimable(&mut self) {
        self.exhausted = false;
        self.changes += 1;
    }
}

/// The zone that an open log writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    pub zone: ZoneId,
    /// The segment handed to the log's writer last.
    pub segment: Segment,
    /// The log still writes to the zone, and the zone holds a slot.
    pub active: bool,
}

/// A zone that the open log with inode `ino` has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub ino: u64,
    pub zone: ZoneId,
}
