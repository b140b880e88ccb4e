//! The first write of a zone, where zones that became full before count as active: a power cut may reopen them (`zone::filling_zones`).
//!
//! At the limit of active zones the first write waits until they are full for good: for their last writes, and for a flush of the drives
//! with blocks of theirs in a volatile cache. So a power cut leaves no drive with more active zones than the array may have.

use std::sync::Arc;

use zoned::{Blocks, Completer, Io, Resources, ZoneId, ZoneState};

use super::Writes;
use crate::deferred::Deferred;
use crate::layout::slots::Slots;
use crate::zone::Zone;
use crate::zone::work::Work;

impl Writes {
    /// True if the first write of the locked zone has to wait for full zones that a power cut may reopen.
    pub(super) fn must_await_full_zones(&self, zone: &Zone, id: ZoneId, limits: &Resources) -> bool {
        let Some(most) = self.ctx.geometry.max_active else { return false };
        if zone.pointer > Blocks::ZERO || !self.ctx.rules.awaits_full_zones() {
            return false;
        }
        let active = limits.active() as usize + usize::from(!zone.state.is_active());
        let filling = &self.zones.filling;
        let most = most as usize;
        active + filling.most() > most
            && active + filling.retain(|full| full != id && self.is_filling(&self.zones.zone(full))).len()
                > most
    }

    /// True if a power cut may reopen the zone, which became full.
    fn is_filling(&self, zone: &Zone) -> bool {
        zone.state == ZoneState::Full && (!zone.flights.is_empty() || !self.cached_on(zone).is_empty())
    }

    /// The working drives that may have blocks of the zone, or the finish of its physical zone, in a volatile cache alone.
    fn cached_on(&self, zone: &Zone) -> Slots {
        let mut slots = Slots::default();
        let cached = self.members.working_members().filter(|member| {
            member.has_volatile_cache() && !member.is_flush_done(zone.flush_number(member.slot))
        });
        cached.for_each(|member| slots.add(member.slot));
        slots
    }

    /// Lets the first write of a zone wait, first in its zone's queue, until the full zones are full for good.
    pub(super) fn retry_after_full_zones(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        write: (Work, Completer),
        deferred: &mut Deferred,
    ) {
        zone.busy = true;
        zone.queue.push_front(write);
        let this = Arc::clone(self);
        deferred.run(async move {
            this.end_full_zones(id).await;
            this.zones.zone(id).busy = false;
            this.zones.begin_queued(id);
        });
    }

    /// Waits until the zones that are full now, apart from `beside`, are full for good, or have failed.
    async fn end_full_zones(&self, beside: ZoneId) {
        let is_filling = |id| id != beside && self.is_filling(&self.zones.zone(id));
        let filling = self.zones.filling.retain(is_filling);
        for id in &filling {
            let last_write = {
                let mut zone = self.zones.zone(*id);
                (!zone.flights.is_empty()).then(|| {
                    let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
                    zone.barrier(completer);
                    io
                })
            };
            if let Some(last_write) = last_write {
                let _ended_or_failed = last_write.await;
            }
        }
        let mut slots = Slots::default();
        for id in filling {
            slots.add_all(self.cached_on(&self.zones.zone(id)));
        }
        if !slots.is_empty() {
            // A drive whose flush fails is failed: its zones do not count any more. A broken array refuses the write.
            let _flushed_or_failed = self.members.flush_slots(slots).await;
        }
    }
}
