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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use super::inner::Inner;
use super::zone::{Switch, Zone};
use crate::log::parallel::Entered;
use crate::state::State;

/// Zones at a time, where the drive has open zones to spare.
const MOST: usize = 8;
/// And no more than one in so many of the drive's.
const PART: usize = 8;
/// A drive that allows so many open zones has more than the file system uses otherwise. Those with fewer have large
/// zones, which lie on all dies.
const SLOTS: usize = 32;

/// What a new zone gets before the others get more, in longest appends.
pub(super) const FIRST: u64 = 4;

/// Which zones are written beside the newest one.
#[derive(Debug)]
pub(super) struct Spread {
    /// The most zones at a time.
    most: usize,
    /// So many there are to be.
    width: AtomicUsize,
    /// Changed under the lock of `switch`. Empty where the newest zone is the only one.
    sides: ArcSwap<Vec<Arc<Zone>>>,
    /// The keeper is told when there may be a zone for one more.
    waits: AtomicBool,
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
    fn is_narrow(&self) -> bool {
        self.most > 1 && self.zones() < self.width.load(Ordering::Acquire)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Zone>>)) {
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
    fn remove(&self, zone: &Arc<Zone>) -> bool {
        let there = self.sides.load().iter().any(|side| Arc::ptr_eq(side, zone));
        if there {
            self.change(|sides| sides.retain(|side| !Arc::ptr_eq(side, zone)));
        }
        there
    }
}

impl Inner {
    /// A place for `blocks` in the zone with the fewest in flight, where there are several and one has room.
    pub(super) fn enter_any(&self, blocks: u64) -> Option<Arc<Zone>> {
        if !self.spread.is_wide() {
            return None;
        }
        let mut full = Vec::new();
        let entered = self.in_turn().into_iter().find(|zone| match zone.gate.enter(blocks) {
            Entered::In => true,
            Entered::Taken => false,
            Entered::Shut => {
                full.push(Arc::clone(zone));
                false
            }
        });
        for zone in full {
            if !self.leave_side(&zone) && entered.is_some() {
                let _goes_on = self.no_room(Some(&zone));
            }
        }
        entered
    }

    /// All zones that are written: first those with the fewest in flight, of these the one that was given least.
    pub(super) fn in_turn(&self) -> Vec<Arc<Zone>> {
        let mut zones = self.spread.sides();
        zones.extend(self.active.load_full());
        // Each is looked at once: others enter and leave meanwhile.
        zones.sort_by_cached_key(|zone| (zone.gate.in_flight(), zone.turn()));
        zones
    }

    /// A zone beside the newest one is full, or broken: it is left. False where it is no such zone.
    pub(super) fn leave_side(&self, zone: &Arc<Zone>) -> bool {
        let mut switch = self.switch.lock();
        if !self.spread.remove(zone) {
            return false;
        }
        // The keeper looks whether it is drained.
        let _drained = zone.gate.close();
        switch.old.push(Arc::clone(zone));
        self.counters.replaced.fetch_add(1, Ordering::Relaxed);
        self.widen(&mut switch);
        drop(switch);
        self.work.notify();
        self.switched.notify();
        true
    }

    /// Goes on in the next zone beside those that there are, if one more is wanted.
    pub(super) fn widen(&self, switch: &mut Switch) {
        // One that closes has found its zones, or will.
        let closed = self.closed.load(Ordering::Acquire);
        if closed || !self.spread.is_narrow() || switch.next.as_ref().is_none_or(|next| !next.beside) {
            return;
        }
        let Some(active) = self.active.load_full().filter(|active| !active.gate.is_closed()) else { return };
        // Before the other is the newest: nobody finds it in neither place.
        self.spread.change(|sides| sides.push(active));
        if let Some(next) = &switch.next {
            self.spread.level(next, FIRST * self.cutting.longest);
        }
        self.active.store(switch.next.take());
        self.switched.notify();
        self.work.notify();
    }

    /// There are several writers: from now on as many zones as there may be.
    pub(super) fn spread_out(&self) {
        let spread = &self.spread;
        if spread.width.load(Ordering::Relaxed) == spread.most {
            return;
        }
        {
            // Under the lock, as what a close takes back.
            let mut state = self.shared().state.lock();
            let closed = self.closed.load(Ordering::Acquire);
            if closed || spread.width.swap(spread.most, Ordering::AcqRel) == spread.most {
                return;
            }
            state.places.wide += spread.most - 1;
        }
        self.shared().kick_cleaner();
        self.widen(&mut self.switch.lock());
        self.work.notify();
    }

    /// Whether a segment is to be fetched for one zone more: there is one ready, and nobody has to make room for it. Where there
    /// is not, the keeper is told when that changes.
    pub(super) fn wants_side(self: &Arc<Inner>) -> bool {
        let closed = self.is_dead() || self.closed.load(Ordering::Acquire);
        let starved = self.starved.lock().why.is_some();
        if !self.spread.is_narrow() || closed || starved || self.switch.lock().next.is_some() {
            return false;
        }
        let shared = self.shared();
        let seen = shared.space.version();
        let ready = !(self.spare && self.check_spare().is_err()) && shared.state.lock().has_zone_beside();
        if !ready && !self.spread.waits.swap(true, Ordering::AcqRel) {
            let (me, space) = (Arc::downgrade(self), shared.space.clone());
            self.driver().drive(Box::pin(async move {
                space.changed_since(seen).await;
                if let Some(log) = me.upgrade() {
                    log.spread.waits.store(false, Ordering::Release);
                    log.work.notify();
                }
            }));
        }
        ready
    }

    /// Whether a zone beside the newest one has little left.
    pub(super) fn side_is_nearly_full(&self) -> bool {
        self.spread.sides.load().iter().any(|zone| self.is_nearly_full(zone))
    }
}

impl State {
    /// Whether a log can have one zone more, beside those that it has, at once and without want for anybody.
    fn has_zone_beside(&self) -> bool {
        let places = &self.places;
        self.has_plenty()
            && self.lease_allowed()
            && !places.reserved.is_empty()
            && !places.generations.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_at_a_time_are_those_asked_for_or_some_where_the_drive_has_open_zones_to_spare() {
        let of = |asked, slots, zones, volatile| {
            let spread = Spread::new(asked, slots, zones, volatile);
            (spread.most, spread.width.load(Ordering::Relaxed))
        };
        assert_eq!(of(0, SLOTS, 1000, false), (MOST, 1));
        assert_eq!((of(0, SLOTS, 20, false), of(0, SLOTS, 4, false)), ((2, 1), (1, 1)));
        assert_eq!((of(0, SLOTS - 1, 1000, false), of(0, SLOTS, 1000, true)), ((1, 1), (1, 1)));
        assert_eq!((of(3, 4, 4, false), of(1, SLOTS, 1000, false)), ((3, 3), (1, 1)));
        assert_eq!(of(3, SLOTS, 1000, true), (1, 1));
    }
}
