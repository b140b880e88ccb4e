//! The end of a write, whose blocks have landed: which writes may be acknowledged, and after which flushes.

use std::sync::Arc;

use zoned::{Blocks, Done, Durability, Error, ZoneId, ZoneState};

use super::Writes;
use crate::deferred::Deferred;
use crate::layout::Parity;
use crate::layout::slots::Slots;
use crate::metrics::add;
use crate::zone::Zone;

impl Writes {
    /// All operations of a write have ended. `covered`: the commits that the write's parity completes;
    /// `slots`: the drives that the write went to; `judged`: an error poisons the zone.
    pub(super) fn landed(
        self: &Arc<Self>,
        id: ZoneId,
        flight: u64,
        covered: &[(Parity, Blocks)],
        (slots, how): (Slots, Durability),
        judged: Result<(), Error>,
    ) {
        self.zones.change(id, |zone, deferred| {
            if let Err(e) = judged {
                zone.poison = zone.poison.take().or(Some(e));
            }
            self.stamp_slots(zone, slots, how);
            covered.iter().for_each(|(parity, end)| zone.coverage_mut(*parity).commit_landed(*end));
            zone.mark_landed(flight);
            self.log_parity(zone, id, deferred);
            self.release(zone, id, deferred);
            self.settle(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// Acknowledges all writes of the zone whose lower blocks are acknowledged, landed and covered by parity.
    pub(crate) fn release(self: &Arc<Self>, zone: &mut Zone, id: ZoneId, deferred: &mut Deferred) {
        zone.drop_unacknowledged(&self.ctx.layout, self.ctx.bytes(1));
        for flight in zone.release(&self.ctx.layout) {
            if let Some(poison) = &zone.poison {
                deferred.complete(flight.completer, Err(poison.duplicate()));
                continue;
            }
            if let Some(sample) = flight.sample
                && self.ways.acknowledged(sample, self.ctx.driver.now())
            {
                add(&self.ctx.metrics.append_changes, 1);
            }
            let durable = flight.how == Durability::Durable && self.ctx.rules.flushes_durable_writes();
            if !durable {
                deferred.complete(flight.completer, Ok(flight.done));
                continue;
            }
            // All lower blocks of the zone are acknowledged, so that a flush from now on makes them durable
            // too.
            let (this, slots) = (Arc::clone(self), self.not_durable(zone));
            deferred.run(async move {
                let result = this.members.flush_slots(slots).await;
                flight.completer.complete(result.map(|()| flight.done));
            });
        }
        if zone.state == ZoneState::Full
            && zone.pointer == self.ctx.layout.capacity()
            && zone.end.is_none()
            && zone.flights.is_empty()
            && zone.poison.is_none()
        {
            self.zones.filled.lock().push((id, zone.generation, self.ctx.layout.capacity()));
            self.zones.end_parts(id, self.ctx.layout.part_rows);
        }
        for completer in zone.reached_barriers() {
            deferred.complete(completer, Ok(Done::Unit));
        }
    }
}
