//! Several zones at a time: where a zone lies on one of many dies, it is slower than the drive, and appends wait for that die.
//!
//! ```text
//!   append --> the zone with the fewest in flight --+--> the newest one
//!                                                   +--> those beside it, while they have room
//!   two are in flight, or a record has several writers --> the keeper takes zones beside the first
//! ```
//!
//! Only on drives without a volatile cache: what is acknowledged there is durable, so that what lies in two zones needs no
//! order between them; `needs` says what an entry follows, wherever that lies. The log goes on with as many zones as it has
//! come to until it is closed: they fill at the same pace, so none of them keeps the others from being given up.

use std::sync::Arc;

use super::sync::{ArcSwap, AtomicBool, AtomicUsize, Ordering};
use super::zone::Zone;

/// Zones at a time, where the drive has open zones to spare.
pub(super) const MOST: usize = 8;
/// And no more than one in so many of the drive's.
const PART: usize = 8;
/// A drive that allows so many open zones has more than the file system uses otherwise. Those with fewer have large
/// zones, which lie on all dies.
pub(super) const SLOTS: usize = 32;

/// What a new zone gets before the others get more, in longest appends.
pub(super) const FIRST: u64 = 4;

/// Which zones are written beside the newest one.
#[derive(Debug)]
pub(super) struct Spread {
    /// The most zones at a time.
    pub(super) most: usize,
    /// So many there are to be.
    pub(super) width: AtomicUsize,
    /// Changed under the lock of `switch`. Empty where the newest zone is the only one.
    pub(super) sides: ArcSwap<Vec<Arc<Zone>>>,
    /// The keeper is told when there may be a zone for one more.
    pub(super) waits: AtomicBool,
}

impl Spread {
    /// `asked`: so many zones, or 0: one for a lone writer, and several for more where the drive has `slots` open zones.
    /// The drive has `zones` in all.
    pub(super) fn new(asked: usize, slots: usize, zones: u32, volatile: bool) -> Spread {
        let (most, width) = match asked {
            _ if volatile => (1, 1),
            0 if slots >= SLOTS => (MOST.min(zones as usize / PART).max(1), 1),
            asked => (asked.max(1), asked.max(1)),
        };
        let width = AtomicUsize::new(width);
        Spread { most, width, sides: ArcSwap::default(), waits: AtomicBool::new(false) }
    }

    /// Whether there are zones beside the newest one.
    pub(super) fn is_wide(&self) -> bool {
        self.most > 1 && !self.sides.load().is_empty()
    }

    /// What the log counts for among those that write several zones.
    pub(super) fn more(&self) -> usize {
        self.width.load(Ordering::Acquire) - 1
    }

    /// Zones that are written.
    pub(super) fn zones(&self) -> usize {
        self.sides.load().len() + 1
    }

    pub(super) fn sides(&self) -> Vec<Arc<Zone>> {
        self.sides.load().to_vec()
    }

    /// Whether one zone more is wanted beside those that there are.
    pub(super) fn is_narrow(&self) -> bool {
        self.most > 1 && self.zones() < self.width.load(Ordering::Acquire)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Arc<Zone>>)) {
        let mut sides = self.sides();
        change(&mut sides);
        self.sides.store(Arc::new(sides));
    }

    /// The log is closed: they are no sides any more. Under the lock of `switch`, as the next.
    pub(super) fn take(&self) -> Vec<Arc<Zone>> {
        let sides = self.sides();
        self.sides.store(Arc::default());
        sides
    }

    /// Has a zone that is new beside others get as much as they from now on, and `first` blocks before them: its die has an
    /// empty buffer, and theirs are full perhaps.
    pub(super) fn level(&self, zone: &Zone, first: u64) {
        if let Some(most) = self.sides.load().iter().map(|side| side.turn()).max() {
            zone.begin_at(most.saturating_sub(first));
        }
    }

    /// True if it was one.
    pub(super) fn remove(&self, zone: &Arc<Zone>) -> bool {
        let there = self.sides.load().iter().any(|side| Arc::ptr_eq(side, zone));
        if there {
            self.change(|sides| sides.retain(|side| !Arc::ptr_eq(side, zone)));
        }
        there
    }
}
