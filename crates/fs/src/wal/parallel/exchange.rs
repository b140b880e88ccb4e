//! Which zone a writer's record goes to, and how one zone follows another.
//!
//! Knows nothing of devices, nor of files: `tests/replacement.rs` compiles this a second time, on loom's atomics and with an
//! `Inner` and a `Zone` that have only what is used here, and goes through what writers and the keeper may do to each other.

use std::sync::Arc;

use super::gate::Entered;
use super::inner::Inner;
use super::spread::FIRST;
use super::sync::{Ordering, fence};
use super::zone::Zone;
use crate::{Error, Result};

/// The zones of a log: the one that is written is in [`Inner::active`](super::inner::Inner).
#[derive(Debug, Default)]
pub(super) struct Switch {
    /// Ready to be written.
    pub(super) next: Option<Arc<Zone>>,
    /// Left, with appends in flight perhaps.
    pub(super) old: Vec<Arc<Zone>>,
}

/// Why there was no zone, and how often that was so.
#[derive(Debug, Default)]
pub(super) struct Starved {
    pub(super) times: u64,
    pub(super) why: Option<Error>,
}

impl Inner {
    /// A place for `blocks` in the zone that is written, if there is one at once.
    pub(super) fn try_enter(&self, blocks: u64) -> Result<Arc<Zone>, Entered> {
        if let Some(zone) = self.enter_any(blocks) {
            return Ok(zone);
        }
        let zone = self.active.load_full().ok_or(Entered::Shut)?;
        match zone.gate.enter(blocks) {
            Entered::In => Ok(zone),
            other => Err(other),
        }
    }

    /// A place for `blocks`; waits for the next zone where it must.
    pub(super) async fn enter(&self, blocks: u64) -> Result<Arc<Zone>> {
        let mut times = None;
        loop {
            let seen = self.switched.version();
            self.check_usable()?;
            if let Some(zone) = self.enter_any(blocks) {
                return Ok(zone);
            }
            let active = self.active.load_full();
            if let Some(zone) = &active {
                match zone.gate.enter(blocks) {
                    Entered::In => return Ok(Arc::clone(zone)),
                    Entered::Taken => {
                        if !self.get_behind() {
                            self.switched.changed_since(seen).await;
                        }
                        continue;
                    }
                    Entered::Shut => {}
                }
            }
            if self.no_room(active.as_ref()) {
                continue;
            }
            {
                let starved = self.starved.lock();
                if let (Some(before), Some(why)) = (times, &starved.why)
                    && before != starved.times
                {
                    return Err(why.clone());
                }
                times.get_or_insert(starved.times);
            }
            self.asked.store(true, Ordering::Release);
            self.work.notify();
            self.counters.waits.fetch_add(1, Ordering::Relaxed);
            self.switched.changed_since(seen).await;
        }
    }

    /// Before one waits for who has the zone to itself. True if the gate is to be looked at once more: whoever leaves now
    /// tells, and one who has left may not have.
    pub(super) fn get_behind(&self) -> bool {
        let first = !self.behind.swap(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        first
    }

    /// The one who had a zone to itself has left.
    pub(super) fn left_alone(&self) {
        fence(Ordering::SeqCst);
        if self.behind.load(Ordering::SeqCst) && self.behind.swap(false, Ordering::SeqCst) {
            self.switched.notify();
            self.work.notify();
        }
    }

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

    /// There is no room in `zone` for what somebody has: the log goes on in the next one, if there is one. True if it did.
    pub(super) fn no_room(&self, zone: Option<&Arc<Zone>>) -> bool {
        let mut switch = self.switch.lock();
        let active = self.active.load_full();
        let same = match (zone, &active) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if !same {
            return true;
        }
        if switch.next.is_none() {
            return false;
        }
        if let Some(zone) = &active {
            // The last one to leave turns to the next one, if it is not to be done here.
            let _drained = zone.gate.close();
        }
        self.turn(&mut switch)
    }

    /// Goes on in the next zone, if nothing speaks against it; otherwise the keeper does. The active one is closed.
    ///
    /// On a drive with a volatile cache, everything that was submitted to the zone before is acknowledged first, so
    /// that `needs` of what comes covers it: what lies in two zones has no order otherwise.
    fn turn(&self, switch: &mut Switch) -> bool {
        let Some(next) = &switch.next else { return false };
        let free = match &*self.active.load() {
            None => true,
            Some(zone) => {
                let all_done = || zone.gate.is_drained() && self.tickets.low() == self.tickets.next();
                next.beside && (!self.volatile || all_done() || self.rules.leaves_zones_early())
            }
        };
        let drained = self.active.load().as_ref().is_none_or(|zone| zone.gate.is_drained());
        if free {
            self.install(switch);
        }
        if free || drained {
            self.work.notify();
        }
        free
    }

    /// The next zone is the active one from now on.
    pub(super) fn install(&self, switch: &mut Switch) {
        let Some(next) = switch.next.take() else { return };
        self.spread.level(&next, FIRST * self.cutting.longest);
        if let Some(before) = self.active.swap(Some(next)) {
            switch.old.push(before);
            self.counters.replaced.fetch_add(1, Ordering::Relaxed);
        }
        self.switched.notify();
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

    /// The zone is closed, and nobody is in it any more.
    pub(super) fn drained(&self, zone: &Arc<Zone>) {
        if self.leave_side(zone) {
            return;
        }
        let mut switch = self.switch.lock();
        if self.active.load().as_ref().is_some_and(|active| Arc::ptr_eq(active, zone)) {
            self.turn(&mut switch);
        }
        drop(switch);
        self.work.notify();
        self.switched.notify();
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

    /// A zone that was left, and that nobody is in any more.
    pub(super) fn take_left(&self) -> Option<Arc<Zone>> {
        let mut switch = self.switch.lock();
        let broken = self.rules.leaves_zones_early();
        let at = switch.old.iter().position(|zone| zone.gate.is_drained() || broken)?;
        Some(switch.old.remove(at))
    }

    /// The active zone, if nobody is in it any more and there is a next one; and whether that may be active beside it.
    pub(super) fn left_for_next(&self) -> Option<(Arc<Zone>, bool)> {
        let switch = self.switch.lock();
        let next = switch.next.as_ref()?;
        // Void jobs leave a zone that is closed without anybody asking.
        let active = self.active.load_full().filter(|active| active.gate.is_drained())?;
        Some((active, next.beside))
    }

    /// There is another zone. It is written at once where there is none, or where one more is wanted.
    pub(super) fn give(&self, zone: Arc<Zone>) {
        let mut switch = self.switch.lock();
        switch.next = Some(zone);
        if self.active.load().is_none() {
            self.install(&mut switch);
        }
        self.widen(&mut switch);
    }

    /// Turns to the next zone where the last writer to leave could not: the one before must be full, or what was
    /// acknowledged there durable, first. True if it did.
    pub(super) async fn turn_late(&self) -> Result<bool> {
        let Some((active, beside)) = self.left_for_next() else { return Ok(false) };
        if !beside {
            self.fill(&active).await;
        }
        if self.volatile && self.tickets.low() != self.tickets.next() {
            self.make_durable().await?;
        }
        self.install(&mut self.switch.lock());
        Ok(true)
    }
}
