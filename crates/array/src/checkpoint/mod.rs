//! Checkpoints: everything in memory that a mount needs, written to a metadata log.
//!
//! A log roll, a rebuild's end and the end of a mount write one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use zoned::{Blocks, Io, Result, ZoneId, ZoneState};

use crate::context::Context;
use crate::format::frames::Frame;
use crate::format::record::Body;
use crate::format::{frames, zone_entries, zone_maps};
use crate::io::write::Writes;
use crate::layout::stored_maps::PlacedBy;
use crate::layout::{Parity, Role, Slot, Stripe};
use crate::member::NoRoom;
use crate::membership::{CheckpointWrites, LogClient, Membership, ParityCommit};
use crate::zone::stale_rows::RelocatedParity;
use crate::zone::zone_table::ZoneTable;
use crate::zone::{ComingPart, Zone};

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
        let placed_by = self.ctx.places.placed_by(id, role);
        for (row, data) in zone.stale.runs(role) {
            let stripe = Stripe(row / layout.unit);
            let Some(index) = layout.index_on(stripe, role) else { continue };
            let start = layout.unit_start(stripe, index).plus(Blocks(row - layout.row(stripe)));
            let end = start.plus(Blocks((data.len() / self.ctx.bytes(1)) as u64));
            let data = data.clone();
            bodies.push(Body::RelocatedData { zone: id, generation, placed_by, start, end, data });
        }
        let rows = zone.stale.of(role);
        if !rows.is_empty() {
            bodies.push(Body::StaleRows { zone: id, generation, placed_by, rows, rewritten: false });
        }
        bodies
    }

    /// The records of a part that is about to get another place, for the log of its new drive: bad rows, the partial parity of the open
    /// stripe, and parity that stays relocated.
    pub(crate) fn coming_records(&self, zone: &Zone, id: ZoneId, part: &ComingPart) -> Vec<Body> {
        let (layout, generation) = (&self.ctx.layout, zone.generation);
        let ComingPart { role, placed_by, .. } = *part;
        let bad = (!part.bad.is_empty()).then(|| {
            let rows = part.bad.clone();
            Body::BadRows { zone: id, generation, placed_by, rows }
        });
        // The zone's I/O waits while its part gets another place: the parity covers acknowledged blocks only, also that of a poisoned zone.
        let open = zone.open_stripe(layout);
        let parity = open.and_then(|stripe| Some((stripe, layout.parity_on(stripe, role)?)));
        let partial = parity.map(|at| self.writes.partial(zone, id, at, layout.start(at.0), zone.pointer));
        let is_full = zone.state == ZoneState::Full;
        let stays = |stripe: Stripe, unit: &RelocatedParity| !unit.is_in_copy(layout.end(stripe), is_full);
        let relocated = self.relocated_parities(zone, id, (role, placed_by), stays);
        bad.into_iter().chain(partial).chain(relocated).collect()
    }

    /// The records of those units of a part's relocated parity that `counts` names, for the place that the map's version `placed_by` gives
    /// the part.
    fn relocated_parities(
        &self,
        zone: &Zone,
        id: ZoneId,
        (role, placed_by): (Role, PlacedBy),
        counts: impl Fn(Stripe, &RelocatedParity) -> bool,
    ) -> Vec<Body> {
        let (layout, generation) = (&self.ctx.layout, zone.generation);
        let of_part = zone.relocated.iter().filter(|((stripe, parity), unit)| {
            layout.parity(*stripe, *parity) == role && counts(*stripe, unit)
        });
        let record =
            |((stripe, parity), relocated): (&(Stripe, Parity), &RelocatedParity)| Body::RelocatedParity {
                parity: *parity,
                zone: id,
                generation,
                placed_by,
                start: layout.start(*stripe),
                end: relocated.end,
                unit: relocated.unit.clone(),
            };
        of_part.map(record).collect()
    }

    /// The records of marks.
    fn mark_records(&self, marks: Vec<Frame>) -> impl Iterator<Item = Body> {
        let per_block = frames::per_block(self.ctx.geometry.block_size);
        let records =
            marks.chunks(per_block).map(|marks| Body::Frames { frames: marks.to_vec(), parity: None });
        records.collect::<Vec<_>>().into_iter()
    }

    /// Logs marks behind all writes that were in flight when the checkpoint began, which are acknowledged by now. Their frames may
    /// be in the log's old zone alone, which is reset after the checkpoint.
    async fn log_marks(&self, slot: Slot, incarnation: u64) -> Result<()> {
        let marks = self.zones.ids().filter_map(|id| mark_of(&self.zones.zone(id), id)).collect();
        for marks in self.mark_records(marks) {
            let io = self.members.member(slot).append_marks(incarnation, &marks);
            if let Some(io) = io.map_err(|NoRoom| self.members.full_error("checkpoint"))? {
                io.await?;
            }
        }
        Ok(())
    }

    /// The records of one zone for the checkpoint of `slot`, apart from partial parity.
    fn zone_records(&self, zone: &Zone, id: ZoneId, slot: Slot) -> Vec<Body> {
        let (generation, mut bodies) = (zone.generation, Vec::new());
        if zone.resetting {
            bodies.push(Body::ResetIntent { zone: id, generation });
        }
        if let Some(coming) = zone.coming.as_ref().filter(|coming| coming.slot == slot) {
            bodies.append(&mut self.coming_records(zone, id, coming));
        }
        let Some(role) = self.ctx.places.role(id, slot) else { return bodies };
        let placed_by = self.ctx.places.placed_by(id, role);
        bodies.extend(self.relocated_parities(zone, id, (role, placed_by), |_, _| true));
        bodies.append(&mut self.stale_records(zone, id, role));
        let rows = self.members.member(slot).bad_rows.of(id);
        if !rows.is_empty() {
            bodies.push(Body::BadRows { zone: id, generation, placed_by, rows });
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
        let mut maps = Vec::new();
        let mut marks: Vec<Frame> = Vec::new();
        for id in self.zones.ids() {
            let mut zone = self.zones.zone(id);
            entries.push(zone.entry());
            if let Some(stored) = self.ctx.places.stored() {
                maps.extend(stored.map(id, zone.generation));
            }
            marks.extend(mark_of(&zone, id));
            for body in self.zone_records(&zone, id, slot) {
                writes.ios.extend(member.append_of(incarnation, &body)?);
            }
            let role = self.ctx.places.role(id, slot);
            if let Some(stripe) = zone.open_stripe(layout)
                && let Some(parity) = role.and_then(|role| layout.parity_on(stripe, role))
                && member.is_incarnation(incarnation)
            {
                let end = zone.pointer;
                let start = layout.start(stripe);
                let mut body = self.writes.partial(&zone, id, (stripe, parity), start, end);
                if let Some(above) = zone.coverage_mut(parity).corrects.take() {
                    body = Body::Reorder { above: above.max(start), parity: Box::new(body) };
                }
                let io = member.append_of(incarnation, &body)?;
                if zone.coverage(parity).logged < end {
                    writes.ios.extend(self.writes.write_held_parity(&mut zone, id, parity));
                    let coverage = zone.coverage_mut(parity);
                    coverage.commit(end, false);
                    coverage.checkpoints += 1;
                    let generation = zone.generation;
                    writes.commits.push(ParityCommit { zone: id, generation, parity, end });
                }
                writes.ios.extend(io);
            }
            if !zone.flights.is_empty() {
                let (completer, io) = Io::pair(&self.ctx.driver, &self.ctx.geometry.name);
                zone.barrier(completer);
                writes.barriers.push(io.typed::<()>());
            }
        }
        for maps in zone_maps::split(&maps, self.ctx.geometry.block_size) {
            writes.ios.extend(member.append_of(incarnation, &Body::ZoneMaps(maps))?);
        }
        for marks in self.mark_records(marks) {
            writes.ios.extend(member.append_of(incarnation, &marks)?);
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
            self.log_marks(slot, incarnation).await?;
            let layout = &self.ctx.layout;
            for id in self.zones.ids() {
                let io = {
                    let zone = self.zones.zone(id);
                    let role = self.ctx.places.role(id, slot);
                    let open = zone.open_stripe(layout).filter(|_| zone.poison.is_some());
                    let ours = open.and_then(|stripe| Some((stripe, layout.parity_on(stripe, role?)?)));
                    let Some((stripe, parity)) = ours else { continue };
                    let start = layout.start(stripe);
                    let body = self.writes.partial(&zone, id, (stripe, parity), start, zone.pointer);
                    self.members.member(slot).append_of(incarnation, &body)
                };
                if let Some(io) = io.map_err(|NoRoom| self.members.full_error("checkpoint"))? {
                    io.await?;
                }
            }
            Ok(())
        })
    }

    fn commit_ended(&self, commit: ParityCommit, result: &Result<()>) {
        self.writes.commit_ended(commit, result);
    }

    fn room_freed(&self, (zone, parity): (ZoneId, Option<Parity>)) {
        self.writes.room_freed(zone, parity);
    }
}

/// The mark of a zone of which an array with atomic writes has no recorded end: where its acknowledged writes end.
fn mark_of(zone: &Zone, id: ZoneId) -> Option<Frame> {
    let at = zone.frames.as_ref()?.acknowledged;
    let open = zone.entry().end.is_none() && at > Blocks::ZERO;
    open.then(|| Frame::mark(id, zone.generation, at))
}

#[cfg(test)]
mod tests;
