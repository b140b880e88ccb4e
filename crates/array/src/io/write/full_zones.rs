//! The first write of a zone, where zones that became full before count as active: a power cut may reopen their physical zones
//! (`zone::filling_zones`).
//!
//! At the limit of active zones the first write waits until those zones are full for good: for their last writes, and for a flush of the
//! drives with blocks of theirs in a volatile cache. So the zones that a power cut leaves partly written are no more than the array allows
//! active ones. Where logical zones share physical ones, `shared_places` flushes before each part takes its place.

use std::sync::Arc;

use zoned::{Blocks, Completer, Io, IoClass, Resources, ZoneId, ZoneState};

use super::Writes;
use crate::deferred::Deferred;
use crate::layout::slots::Slots;
use crate::zone::Zone;
use crate::zone::work::{Work, WriteRequest};

impl Writes {
    /// True if the first write of the locked zone has to wait for full zones whose physical zones a power cut may reopen.
    pub(super) fn must_await_full_zones(&self, zone: &Zone, id: ZoneId, limits: &Resources) -> bool {
        let Some(limit) = self.ctx.geometry.max_active else { return false };
        if zone.pointer > Blocks::ZERO || !self.ctx.rules.awaits_full_zones() {
            return false;
        }
        let active = limits.active() as usize + usize::from(!zone.state.is_active());
        let exceeds = |filling: usize| active + filling > limit as usize;
        let is_filling = |full| full != id && self.is_filling(&self.zones.zone(full));
        exceeds(self.zones.filling.len()) && exceeds(self.zones.filling.retain(is_filling))
    }

    /// True if a power cut may reopen physical zones of the zone, which became full.
    fn is_filling(&self, zone: &Zone) -> bool {
        zone.state == ZoneState::Full && (self.awaits_last_write(zone) || !self.cached_on(zone).is_empty())
    }

    /// True if the last write of the full zone is in flight, or waits for room in a log.
    fn awaits_last_write(&self, zone: &Zone) -> bool {
        let waits_for_room =
            zone.end.is_none() && zone.poison.is_none() && zone.pointer < self.ctx.layout.capacity();
        !zone.flights.is_empty() || waits_for_room
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
        (request, completer): (WriteRequest, Completer),
        deferred: &mut Deferred,
    ) {
        let class = request.class;
        zone.busy = true;
        zone.queue.push_front((Work::Write(request), completer));
        let this = Arc::clone(self);
        deferred.run(async move {
            this.end_full_zones(id, class).await;
            this.zones.zone(id).busy = false;
            this.zones.begin_queued(id);
        });
    }

    /// Waits until the zones that are full now, apart from `beside`, are full for good, or have failed. `class`: of who waits.
    async fn end_full_zones(&self, beside: ZoneId, class: IoClass) {
        let is_filling = |id: &ZoneId| *id != beside && self.is_filling(&self.zones.zone(*id));
        let filling: Vec<ZoneId> = self.zones.filling.all().into_iter().filter(is_filling).collect();
        for id in &filling {
            self.end_last_write(*id, class).await;
        }
        let mut slots = Slots::default();
        for id in filling {
            slots.add_all(self.cached_on(&self.zones.zone(id)));
        }
        if !slots.is_empty() {
            // A drive whose flush fails is failed, and not asked again. A broken array refuses the write.
            let _flushed_or_failed = self.members.flush_slots(slots).await;
        }
    }

    /// Waits for the last write of a full zone, by a pause of the zone, which begins when nothing of the zone is in flight.
    async fn end_last_write(&self, id: ZoneId, class: IoClass) {
        let generation = {
            let zone = self.zones.zone(id);
            if !self.awaits_last_write(&zone) {
                return;
            }
            zone.generation
        };
        let rows = self.ctx.layout.part_rows;
        self.members.parts(id).for_each(|part| part.raise(class, 0..rows));
        let pause = Work::Pause { generation: Some(generation) };
        let paused: Io<()> = self.zones.begin_or_queue(id, pause).typed();
        // An error says that the zone was reset meanwhile.
        if paused.await.is_ok() {
            self.zones.zone(id).busy = false;
            self.zones.begin_queued(id);
        }
    }
}
