//! Checkpoints: everything in memory that a mount needs, written to a metadata log.
//!
//! A log roll, a rebuild's end and the end of a mount write one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use zoned::{Blocks, Io, Result, ZoneId};

use crate::context::Context;
use crate::format::record::Body;
use crate::format::zone_entries;
use crate::io::write::Writes;
use crate::layout::{Role, Slot, Stripe};
use crate::member::NoRoom;
use crate::membership::{CheckpointWrites, LogClient, Membership};
use crate::zone::Zone;
use crate::zone::zone_table::ZoneTable;

/// Writes checkpoints of all zones.
pub(crate) struct Checkpoints {
    pub ctx: Arc<Context>,
    pub members: Arc<Membership>,
    pub zones: Arc<ZoneTable>,
    pub writes: Arc<Writes>,
}

impl Checkpoints {
    /// The records of a part's stale rows and relocated data.
    fn stale_records(&self, zone: &Zone, id: ZoneId, role: Role) -> Vec<Body> {
        if !self.ctx.rules.records_stale_rows() {
            return Vec::new();
        }
        let (layout, generation, mut bodies) = (&self.ctx.layout, zone.generation, Vec::new());
        for (row, data) in zone.stale.runs(role) {
            let stripe = Stripe(row / layout.unit);
            let Some(index) = layout.index_on(stripe, role) else { continue };
            let start = layout.unit_start(stripe, index).plus(Blocks(row - layout.row(stripe)));
            let end = start.plus(Blocks((data.len() / self.ctx.bytes(1)) as u64));
            bodies.push(Body::RelocatedData { zone: id, generation, start, end, data: data.clone() });
        }
        let rows = zone.stale.of(role);
        if !rows.is_empty() {
            bodies.push(Body::StaleRows { zone: id, generation, rows, rewritten: false });
        }
        bodies
    }

    /// The records of one zone for the checkpoint of `slot`, apart from partial parity.
    fn zone_records(&self, zone: &Zone, id: ZoneId, slot: Slot) -> Vec<Body> {
        let (layout, generation, mut bodies) = (&self.ctx.layout, zone.generation, Vec::new());
        let role = self.ctx.placement.role(id, slot);
        if zone.resetting {
            bodies.push(Body::ResetIntent { zone: id, generation });
        }
        for (stripe, relocated) in &zone.relocated {
            if layout.parity(*stripe) == role {
                bodies.push(Body::RelocatedParity {
                    zone: id,
                    generation,
                    start: layout.start(*stripe),
                    end: relocated.end,
                    unit: relocated.unit.clone(),
                });
            }
        }
        bodies.append(&mut self.stale_records(zone, id, role));
        let rows = self.members.member(slot).bad_rows.of(id);
        if !rows.is_empty() {
            bodies.push(Body::BadRows { zone: id, generation, rows });
        }
        bodies
    }
}

impl LogClient for Checkpoints {
    fn write_checkpoint(
        &self,
        slot: Slot,
        incarnation: u64,
        writes: &mut CheckpointWrites,
    ) -> Result<(), NoRoom> {
        let (member, layout) = (self.members.member(slot), &self.ctx.layout);
        let mut entries = Vec::with_capacity(self.ctx.geometry.zones as usize);
        for id in self.zones.ids() {
            let mut zone = self.zones.zone(id);
            entries.push(zone.entry());
            for body in self.zone_records(&zone, id, slot) {
                writes.ios.extend(member.append_of(incarnation, &body)?);
            }
            if let Some(stripe) = zone.open_stripe(layout)
                && layout.parity(stripe) == self.ctx.placement.role(id, slot)
                && member.is_incarnation(incarnation)
            {
                let end = zone.pointer;
                let body = self.writes.partial(&zone, id, stripe, layout.start(stripe), end);
                let io = member.append_of(incarnation, &body)?;
                if zone.logged < end {
                    writes.ios.extend(self.writes.write_held_parity(&mut zone, id));
                    zone.commit(end, false);
                    writes.commits.push((id, end));
                }
                writes.ios.extend(io);
            }
            if !zone.flights.is_empty() {
                let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
                zone.barrier(completer);
                writes.barriers.push(io.typed::<()>());
            }
        }
        for (first, entries) in zone_entries::split(&entries, self.ctx.geometry.block_size) {
            writes.ios.extend(member.append_of(incarnation, &Body::Zones { first, entries })?);
        }
        Ok(())
    }

    /// Everything that was in flight when the checkpoint began has ended. The checkpoint's partial parity of a poisoned
    /// zone may cover blocks that were refused since and dropped, so that no mount can use that parity.
    fn log_poisoned_zones(
        &self,
        slot: Slot,
        incarnation: u64,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            let layout = &self.ctx.layout;
            for id in self.zones.ids() {
                let io = {
                    let zone = self.zones.zone(id);
                    let role = self.ctx.placement.role(id, slot);
                    let ours = |stripe: &Stripe| layout.parity(*stripe) == role;
                    let open = zone.open_stripe(layout).filter(ours);
                    let Some(stripe) = open.filter(|_| zone.poison.is_some()) else { continue };
                    let body = self.writes.partial(&zone, id, stripe, layout.start(stripe), zone.pointer);
                    self.members.member(slot).append_of(incarnation, &body)
                };
                if let Some(io) = io.map_err(|NoRoom| self.members.full_error("checkpoint"))? {
                    io.await?;
                }
            }
            Ok(())
        })
    }

    fn commit_ended(&self, zone: ZoneId, end: Blocks, result: &Result<()>) {
        self.writes.commit_ended(zone, end, result);
    }

    fn room_freed(&self, zone: ZoneId) {
        self.writes.room_freed(zone);
    }
}

#[cfg(test)]
mod tests;
