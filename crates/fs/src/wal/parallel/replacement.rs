//! Zone replacement of a parallel log: which zone an append goes to, and how the next zone takes over from a
//! full one.
//!
//! Uses no device and no file: `tests/replacement.rs` compiles this file a second time, on loom's atomics and
//! with models of the modules that it names, and explores the interleavings of writers and maintenance.

use std::sync::Arc;

use super::counters::Counters;
use super::gate::Entered;
use super::health::Health;
use super::order::Order;
use super::stripe::{HEAD_START_APPENDS, Stripe};
use super::sync::{ArcSwapOption, AtomicBool, Event, Mutex, Ordering, fence};
use super::zone::LogZone;
use crate::error::{Error, Result};
use crate::rules::Rules;

/// Log zones that no writer enters any more, and the zone that will be written next.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// Ready to be written.
    pub(super) next: Option<Arc<LogZone>>,
    /// Zones that the log has left. Appends may still be in flight in them.
    pub(super) left: Vec<Arc<LogZone>>,
}

/// Number of failed attempts to get a zone for the log, and the error of the last one.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    pub(super) times: u64,
    pub(super) error: Option<Error>,
}

/// The zones that a parallel log writes, and their replacement.
#[derive(Debug)]
pub(super) struct Replacement {
    /// The log's newest zone. Changed under the lock of `spare`.
    pub(super) active: ArcSwapOption<LogZone>,
    pub(super) spare: Mutex<Spare>,
    /// The zones that the log writes beside the newest one.
    pub(super) stripe: Stripe,
    /// Notified when another log zone is available, when none can be had, and when an exclusive operation has
    /// ended.
    pub(super) changed: Event,
    /// True while a writer waits for the end of an exclusive operation.
    pub(super) blocked: AtomicBool,
    /// True while a writer waits for a zone.
    pub(super) wanted: AtomicBool,
    pub(super) shortage: Mutex<Shortage>,
    pub(super) order: Arc<Order>,
    pub(super) health: Arc<Health>,
    pub(super) counters: Arc<Counters>,
    /// Wakes maintenance.
    pub(super) work: Event,
    /// True if the device has a volatile cache.
    pub(super) volatile: bool,
    /// Blocks of the longest append.
    pub(super) longest: u64,
    pub(super) rules: Rules,
}

impl Replacement {
    /// Allots `blocks` in a zone that the log writes, if one has room at once.
    pub(super) fn try_enter(&self, blocks: u64) -> Result<Arc<LogZone>, Entered> {
        if let Some(zone) = self.enter_stripe(blocks) {
            return Ok(zone);
        }
        let zone = self.active.load_full().ok_or(Entered::Shut)?;
        match zone.gate.enter(blocks) {
            Entered::In => Ok(zone),
            other => Err(other),
        }
    }

    /// Allots `blocks` in a log zone; waits for the next zone if need be.
    pub(super) async fn enter(&self, blocks: u64) -> Result<Arc<LogZone>> {
        let mut times = None;
        loop {
            let seen = self.changed.version();
            self.health.check_usable()?;
            if let Some(zone) = self.enter_stripe(blocks) {
                return Ok(zone);
            }
            let active = self.active.load_full();
            if let Some(zone) = &active {
                match zone.gate.enter(blocks) {
                    Entered::In => return Ok(Arc::clone(zone)),
                    Entered::Exclusive => {
                        if !self.block() {
                            self.changed.changed_since(seen).await;
                        }
                        continue;
                    }
                    Entered::Shut => {}
                }
            }
            if self.replace(active.as_ref()) {
                continue;
            }
            if let Some(error) = self.failed_since(&mut times) {
                return Err(error);
            }
            self.request();
            self.counters.waits.fetch_add(1, Ordering::Relaxed);
            self.changed.changed_since(seen).await;
        }
    }

    /// Asks maintenance for a further log zone.
    pub(super) fn request(&self) {
        self.wanted.store(true, Ordering::Release);
        self.work.notify();
    }

    /// The error of the last attempt to get a log zone, if an attempt failed since there were `times`
    /// failures.
    pub(super) fn failed_since(&self, times: &mut Option<u64>) -> Option<Error> {
        let shortage = self.shortage.lock();
        if let (Some(before), Some(error)) = (*times, &shortage.error)
            && before != shortage.times
        {
            return Some(error.clone());
        }
        times.get_or_insert(shortage.times);
        None
    }

    /// True if the last attempt to get a log zone failed.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.lock().error.is_some()
    }

    /// Announces a wait for the end of an exclusive operation. True if the caller must check the gate once
    /// more before it waits: an operation that ends from now on notifies, and one that has ended may not
    /// have.
    pub(super) fn block(&self) -> bool {
        let first = !self.blocked.swap(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        first
    }

    /// Notes that an exclusive operation has left its zone: writers that wait for its end go on.
    pub(super) fn unblock(&self) {
        fence(Ordering::SeqCst);
        if self.blocked.load(Ordering::SeqCst) && self.blocked.swap(false, Ordering::SeqCst) {
            self.changed.notify();
            self.work.notify();
        }
    }

    /// Allots `blocks` in the stripe's zone with the fewest appends in flight, if one has room.
    fn enter_stripe(&self, blocks: u64) -> Option<Arc<LogZone>> {
        if !self.stripe.is_wide() {
            return None;
        }
        let mut full = Vec::new();
        let entered = self.zones_by_load().into_iter().find(|zone| match zone.gate.enter(blocks) {
            Entered::In => true,
            Entered::Exclusive => false,
            Entered::Shut => {
                full.push(Arc::clone(zone));
                false
            }
        });
        for zone in full {
            if !self.leave_neighbour(&zone) && entered.is_some() {
                let _replaced = self.replace(Some(&zone));
            }
        }
        entered
    }

    /// Allots `blocks` to one operation that has the zone for itself alone; returns the zone, and the number
    /// of its blocks allotted before. `None` if an operation is in flight in every zone.
    pub(super) fn try_enter_exclusive(&self, blocks: u64) -> Option<(Arc<LogZone>, u64)> {
        let enter = |zone: Arc<LogZone>| {
            let used = zone.gate.enter_exclusive(blocks)?;
            Some((zone, used))
        };
        if !self.stripe.is_wide() {
            return enter(self.active.load_full()?);
        }
        self.zones_by_load().into_iter().find_map(enter)
    }

    /// All zones that the log writes: those with the fewest appends in flight first, and of these the one
    /// with the lowest load.
    fn zones_by_load(&self) -> Vec<Arc<LogZone>> {
        let mut zones = self.stripe.neighbours();
        zones.extend(self.active.load_full());
        // The numbers of a zone are read once, because they change meanwhile.
        zones.sort_by_cached_key(|zone| (zone.gate.in_flight(), zone.load()));
        zones
    }

    /// The zones that the log writes, and those that it has left.
    pub(super) fn all(&self) -> Vec<Arc<LogZone>> {
        let spare = self.spare.lock();
        let (left, neighbours, active) =
            (spare.left.clone(), self.stripe.neighbours(), self.active.load_full());
        drop(spare);
        left.into_iter().chain(neighbours).chain(active).collect()
    }

    /// Replaces the active zone, which has no room, by the next zone, if there is one. `full`: the active
    /// zone as the caller saw it. True if another zone is active now.
    pub(super) fn replace(&self, full: Option<&Arc<LogZone>>) -> bool {
        let mut spare = self.spare.lock();
        let active = self.active.load_full();
        let same = match (full, &active) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if !same {
            return true;
        }
        if spare.next.is_none() {
            return false;
        }
        if let Some(zone) = &active {
            // If the active zone cannot be replaced here, the last operation to leave it tries again.
            let _drained = zone.gate.close();
        }
        self.try_install(&mut spare)
    }

    /// Makes the next zone active if nothing has to happen before; otherwise maintenance does it later. The
    /// active zone is closed.
    ///
    /// On a drive with a volatile cache, everything submitted to the old zone is acknowledged first, so that
    /// `needs` of the entries in the new zone covers it: a power cut keeps no order between two zones.
    fn try_install(&self, spare: &mut Spare) -> bool {
        let Some(next) = &spare.next else { return false };
        let free = match &*self.active.load() {
            None => true,
            Some(zone) => {
                let all_complete = || zone.gate.is_drained() && self.order.all_complete();
                next.beside && (!self.volatile || all_complete() || self.rules.leaves_zones_early())
            }
        };
        let drained = self.active.load().as_ref().is_none_or(|zone| zone.gate.is_drained());
        if free {
            self.install(spare);
        }
        if free || drained {
            self.work.notify();
        }
        free
    }

    /// Makes the next log zone active.
    fn install(&self, spare: &mut Spare) {
        let Some(next) = spare.next.take() else { return };
        self.stripe.set_load_of_new_zone(&next, HEAD_START_APPENDS * self.longest);
        if let Some(before) = self.active.swap(Some(next)) {
            spare.left.push(before);
            self.counters.replaced.fetch_add(1, Ordering::Relaxed);
        }
        self.changed.notify();
    }

    /// Adds the next zone to those written side by side, if the stripe is narrower than its width.
    fn widen(&self, spare: &mut Spare) {
        // A close of the log has collected its zones, or will.
        let closed = self.health.is_closed();
        if closed || !self.stripe.is_narrow() || spare.next.as_ref().is_none_or(|next| !next.beside) {
            return;
        }
        let Some(active) = self.active.load_full().filter(|active| !active.gate.is_closed()) else { return };
        // The active zone is added to the neighbours before it is replaced: at no moment is it in neither
        // place.
        self.stripe.change(|neighbours| neighbours.push(active));
        if let Some(next) = &spare.next {
            self.stripe.set_load_of_new_zone(next, HEAD_START_APPENDS * self.longest);
        }
        self.active.store(spare.next.take());
        self.changed.notify();
        self.work.notify();
    }

    /// Adds the next zone to those written side by side, if there is one and the stripe is narrower than its
    /// width.
    pub(super) fn widen_now(&self) {
        self.widen(&mut self.spare.lock());
    }

    /// Closes a log zone after a failed operation.
    pub(super) fn zone_failed(&self, zone: &Arc<LogZone>) {
        zone.set_failed();
        if zone.gate.close() {
            self.drained(zone);
        }
    }

    /// Handles a zone that is closed and that its last operation has left.
    pub(super) fn drained(&self, zone: &Arc<LogZone>) {
        if self.leave_neighbour(zone) {
            return;
        }
        let mut spare = self.spare.lock();
        if self.active.load().as_ref().is_some_and(|active| Arc::ptr_eq(active, zone)) {
            self.try_install(&mut spare);
        }
        drop(spare);
        self.work.notify();
        self.changed.notify();
    }

    /// Removes a neighbour of the newest zone that is full or has failed. False if `zone` is no neighbour.
    fn leave_neighbour(&self, zone: &Arc<LogZone>) -> bool {
        let mut spare = self.spare.lock();
        if !self.stripe.remove(zone) {
            return false;
        }
        // Maintenance checks later whether the zone is drained.
        let _drained = zone.gate.close();
        spare.left.push(Arc::clone(zone));
        self.counters.replaced.fetch_add(1, Ordering::Relaxed);
        self.widen(&mut spare);
        drop(spare);
        self.work.notify();
        self.changed.notify();
        true
    }

    /// Takes a zone that the log has left and that has no operation in flight.
    pub(super) fn take_drained_left_zone(&self) -> Option<Arc<LogZone>> {
        let mut spare = self.spare.lock();
        let early = self.rules.leaves_zones_early();
        let at = spare.left.iter().position(|zone| zone.gate.is_drained() || early)?;
        Some(spare.left.remove(at))
    }

    /// The active zone, if it is drained and there is a next zone; and whether the next zone may be active
    /// beside it.
    pub(super) fn drained_active(&self) -> Option<(Arc<LogZone>, bool)> {
        let spare = self.spare.lock();
        let next = spare.next.as_ref()?;
        // Void entries close the active zone without asking for the next one.
        let active = self.active.load_full().filter(|active| active.gate.is_drained())?;
        Some((active, next.beside))
    }

    /// Makes the next zone active, after [`drained_active`](Replacement::drained_active): the old zone was
    /// filled if necessary, and its content is durable.
    pub(super) fn install_next(&self) {
        self.install(&mut self.spare.lock());
    }

    /// Takes a new zone as the log's next one. The log writes to it at once if it writes to no zone, or if
    /// the stripe wants one more.
    pub(super) fn give_next_zone(&self, zone: Arc<LogZone>) {
        let mut spare = self.spare.lock();
        spare.next = Some(zone);
        if self.active.load().is_none() {
            self.install(&mut spare);
        }
        self.widen(&mut spare);
    }
}
