//! Writes that have landed: which may be acknowledged, and after which flushes.

use std::sync::Arc;

use zoned::{Blocks, Done, Durability, Error, ZoneId, ZoneState};

use crate::Sabotage;
use crate::core::{After, Core};
use crate::io::flush::Slots;
use crate::zone::Zone;

impl Core {
    /// The blocks of a write are on their drives, or never will be.
    pub(super) fn landed(
        self: &Arc<Core>,
        id: ZoneId,
        flight: u64,
        covered: &[Blocks],
        (slots, how): (Slots, Durability),
        judged: Result<(), Error>,
    ) {
        let mut after = After::default();
        {
            let mut zone = self.zone(id);
            if let Err(e) = judged {
                zone.poison = zone.poison.take().or(Some(e));
            }
            self.landed_on(&mut zone, slots, how);
            covered.iter().for_each(|end| zone.committed(*end));
            zone.land(flight);
            self.log_parity(&mut zone, id, &mut after);
            self.release(&mut zone, id, &mut after);
        }
        after.finish(self);
        self.pump(id);
    }

    /// Acknowledges what may be.
    pub(crate) fn release(self: &Arc<Core>, zone: &mut Zone, id: ZoneId, after: &mut After) {
        zone.take_back(&self.layout, self.bytes(1));
        for flight in zone.release() {
            if let Some(poison) = &zone.poison {
                after.complete(flight.completer, Err(poison.duplicate()));
                continue;
            }
            let durable = flight.how == Durability::Durable && self.sabotage != Some(Sabotage::Fua);
            if !durable {
                after.complete(flight.completer, Ok(flight.done));
                continue;
            }
            // Everything below it in the zone is acknowledged: a flush now makes all of that durable with it.
            let (core, slots) = (Arc::clone(self), self.not_durable(zone));
            after.run(async move {
                let result = core.flush_slots(slots).await;
                flight.completer.complete(result.map(|()| flight.done));
            });
        }
        if zone.state == ZoneState::Full
            && zone.pointer == self.layout.capacity()
            && zone.end.is_none()
            && zone.flights.is_empty()
            && zone.poison.is_none()
        {
            self.filled.lock().push((id, zone.generation, self.layout.capacity()));
        }
        for completer in zone.fallen() {
            after.complete(completer, Ok(Done::Unit));
        }
    }
}
