//! Several zones written side by side: on a drive whose zones lie on one die each, a single zone is slower than the drive.
//!
//! ```text
//!   append --> the zone with the fewest appends in flight --+--> the newest zone
//!                                                           +--> its neighbours, while they have room
//!   two appends in flight, or a record of several writers --> maintenance adds zones, up to the width
//! ```
//!
//! A log is striped only on drives without a volatile cache: an acknowledged record is durable there, so that entries in two
//! zones need no order between them. `needs` names the tickets that an entry follows, in any zone. The width stays until the
//! log is closed: the zones fill at the same pace, so that none of them delays the retirement of the others.

use std::sync::Arc;

use super::sync::{ArcSwap, AtomicBool, AtomicUsize, Ordering};
use super::zone::LogZone;

/// The most zones that a log chooses by itself to write side by side.
pub(super) const MAX_STRIPE_ZONES: usize = 8;
/// A log chooses to write at most one in this many of the drive's zones side by side.
const DRIVE_ZONES_PER_STRIPE_ZONE: usize = 8;
/// A drive that allows this many open zones has enough for several zones per log. Drives with fewer have
/// large zones, each spread over all dies.
pub(super) const MANY_OPEN_ZONES: usize = 32;

/// The number of longest appends that a new zone of a stripe gets before the stripe's other zones get more.
pub(super) const HEAD_START_APPENDS: u64 = 4;

/// The zones that a log writes beside its newest one.
#[derive(Debug)]
pub(super) struct Stripe {
    /// The largest width.
    pub(super) max_width: usize,
    /// The number of zones that the log should write side by side.
    pub(super) width: AtomicUsize,
    /// The neighbours of the newest zone. Changed under the lock of the spare zones. Empty while the newest
    /// zone is the only one.
    pub(super) neighbours: ArcSwap<Vec<Arc<LogZone>>>,
    /// True while a task waits until a zone is free, to wake maintenance then.
    pub(super) waiting: Arc<AtomicBool>,
}

impl Stripe {
    /// The stripe of a log that was just opened. `width`: the configured width, or 0: one for a single
    /// writer, several for more writers if the drive allows many open zones (`slots`). `zones`: number of the
    /// drive's zones.
    pub(super) fn new(width: usize, slots: usize, zones: u32, volatile: bool) -> Stripe {
        let (max_width, width) = match width {
            _ if volatile => (1, 1),
            0 if slots >= MANY_OPEN_ZONES => {
                (MAX_STRIPE_ZONES.min(zones as usize / DRIVE_ZONES_PER_STRIPE_ZONE).max(1), 1)
            }
            width => (width.max(1), width.max(1)),
        };
        Stripe {
            max_width,
            width: AtomicUsize::new(width),
            neighbours: ArcSwap::default(),
            waiting: Arc::default(),
        }
    }

    /// True if the log writes several zones side by side.
    pub(super) fn is_wide(&self) -> bool {
        self.max_width > 1 && !self.neighbours.load().is_empty()
    }

    /// Number of zones beyond the first that the log wants to write.
    pub(super) fn extra(&self) -> usize {
        self.width.load(Ordering::Acquire) - 1
    }

    /// Number of zones that the log writes side by side.
    pub(super) fn zones(&self) -> usize {
        self.neighbours.load().len() + 1
    }

    pub(super) fn neighbours(&self) -> Vec<Arc<LogZone>> {
        self.neighbours.load().to_vec()
    }

    /// True if the log writes fewer zones than the width.
    pub(super) fn is_narrow(&self) -> bool {
        self.max_width > 1 && self.zones() < self.width.load(Ordering::Acquire)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Vec<Arc<LogZone>>)) {
        let mut neighbours = self.neighbours();
        change(&mut neighbours);
        self.neighbours.store(Arc::new(neighbours));
    }

    /// Takes all neighbours of the newest zone, when the log is closed. The caller holds the lock of the
    /// spare zones.
    pub(super) fn take(&self) -> Vec<Arc<LogZone>> {
        let neighbours = self.neighbours();
        self.neighbours.store(Arc::default());
        neighbours
    }

    /// Sets a new zone's load to that of its neighbours less `first` blocks, so that it gets `first` blocks
    /// before them: the buffer of its die is empty, and theirs may be full.
    pub(super) fn set_load_of_new_zone(&self, zone: &LogZone, first: u64) {
        if let Some(most) = self.neighbours.load().iter().map(|neighbour| neighbour.load()).max() {
            zone.set_base(most.saturating_sub(first));
        }
    }

    /// Removes `zone` from the neighbours of the newest zone. False if it is none. The caller holds the lock
    /// of the spare zones.
    pub(super) fn remove(&self, zone: &Arc<LogZone>) -> bool {
        let found = self.neighbours.load().iter().any(|neighbour| Arc::ptr_eq(neighbour, zone));
        if found {
            self.change(|neighbours| neighbours.retain(|neighbour| !Arc::ptr_eq(neighbour, zone)));
        }
        found
    }
}
