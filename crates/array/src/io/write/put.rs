//! The operations of one write: data and final parity to their places, or to the logs where the places are stale.

use std::ops::Range;
use std::sync::Arc;

use zoned::{Action, Blocks, Buf, Completer, Done, Durability, Io, IoClass, ZoneId};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::layout::steps::{Step, steps};
use crate::layout::{Parity, Piece, Stripe};
use crate::member::drive_ios::DriveIos;
use crate::member::member_drive::MemberDrive;
use crate::metrics::add;
use crate::zone::Zone;
use crate::zone::append_choice::ChosenWay;
use crate::zone::shared_zones::SharedZones;
use crate::zone::stale_rows::RelocatedParity;
use crate::zone::work::WriteRequest;

impl Writes {
    /// Writes a piece of data to its drive: in place, and to the metadata log where the rows are stale.
    fn write_data(&self, zone: &mut Zone, id: ZoneId, piece: Piece, data: Buf, ios: &mut DriveIos) {
        let row = self.ctx.layout.row(piece.stripe) + piece.row;
        let Some(to) = self.members.part(id, piece.role) else { return };
        if zone.stale.is_empty() {
            return ios.push(to.slot(), to.write(ios.class(), row, data));
        }
        for (rows, stale) in zone.stale.split(piece.role, row..row + piece.len) {
            let part = data.slice(self.ctx.bytes(rows.start - row)..self.ctx.bytes(rows.end - row));
            if !stale {
                ios.push(to.slot(), to.write(ios.class(), rows.start, part));
                continue;
            }
            add(&self.ctx.metrics.relocations, 1);
            zone.stale.put(&self.ctx.layout, self.ctx.bytes(1), piece.role, rows.start, &part);
            let start = piece.offset.plus(Blocks(rows.start - row));
            let end = start.plus(Blocks(rows.end - rows.start));
            let (generation, placed_by) = (zone.generation, self.ctx.places.placed_by(id, piece.role));
            let body = Body::RelocatedData { zone: id, generation, placed_by, start, end, data: part };
            let block = self.ctx.geometry.block_size;
            ios.push(to.slot(), to.member().append_reserved(&body, block, Durability::Cached));
        }
    }

    /// Writes rows of a parity that are final. If any row of the unit is stale, the whole unit goes to the log together with
    /// its last row, and earlier rows are not written. True if the rows were written.
    fn write_parity(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        (stripe, parity): (Stripe, Parity),
        rows: Range<u64>,
        ios: &mut DriveIos,
    ) -> bool {
        let layout = &self.ctx.layout;
        let (role, first, unit) = (layout.parity(stripe, parity), layout.row(stripe), layout.unit_of(stripe));
        let Some(to) = self.members.part(id, role) else { return false };
        let slot = to.slot();
        let last = rows.end == unit;
        if zone.stale.is_empty() || !zone.stale.has_stale(role, &(first..first + unit)) {
            let bytes = self.ctx.bytes(rows.start)..self.ctx.bytes(rows.end);
            let content = if last {
                let whole = zone.parity.take(parity);
                zone.keep_parity(stripe, parity, &whole);
                whole.slice(bytes)
            } else {
                let part = zone.parity.get(parity, bytes);
                Buf::copy_from(part.expect("memory holds the parity of the open stripe"))
            };
            add(&self.ctx.metrics.parity_bytes, content.len() as u64);
            ios.push(slot, to.write(ios.class(), first + rows.start, content));
            return true;
        }
        if !last {
            return false;
        }
        let whole = zone.parity.take(parity);
        zone.keep_parity(stripe, parity, &whole);
        add(&self.ctx.metrics.parity_bytes, whole.len() as u64);
        add(&self.ctx.metrics.relocations, 1);
        // Parity rows below the stale ones are in place already. Rows above are written too: the drive's
        // pointer must not fall behind.
        let parts = zone.stale.split(role, first..first + unit);
        if let Some((rows, false)) = parts.last().cloned() {
            let part = whole.slice(self.ctx.bytes(rows.start - first)..self.ctx.bytes(rows.end - first));
            ios.push(slot, to.write(ios.class(), rows.start, part));
        }
        let (start, end) = (layout.start(stripe), layout.end(stripe));
        zone.relocated.insert((stripe, parity), RelocatedParity { end, unit: whole.clone() });
        let generation = zone.generation;
        let placed_by = self.ctx.places.placed_by(id, role);
        let body = Body::RelocatedParity { parity, zone: id, generation, placed_by, start, end, unit: whole };
        ios.push(slot, to.member().append_reserved(&body, self.ctx.geometry.block_size, Durability::Cached));
        true
    }

    /// True if final rows of a parity of the open stripe wait: for the addresses of appends, or for the rows above them, as no block of the stripe can be
    /// acknowledged before writes below the stripe have landed, and the stripe may become whole meanwhile.
    fn holds_parity(&self, zone: &Zone, id: ZoneId, stripe: Stripe, parity: Parity) -> bool {
        let layout = &self.ctx.layout;
        let (role, first) = (layout.parity(stripe, parity), layout.row(stripe));
        if zone.appends.are_unsettled() {
            // The rows of parity are computed once the rows of all data are known.
            return true;
        }
        zone.has_flight_below(layout.start(stripe))
            && zone.poison.is_none()
            && self.ctx.rules.logs_partial_parity()
            && self.members.part(id, role).is_some_and(|part| part.member().is_good())
            && !zone.stale.has_stale(role, &(first..first + layout.unit_of(stripe)))
    }

    /// Writes the held rows of a parity of the open stripe to their place. The result is there once an error has been
    /// judged: the error poisons the zone. Called before a commit that covers the rows' blocks in another way.
    pub(crate) fn write_held_parity(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        parity: Parity,
    ) -> Option<Io<()>> {
        if zone.appends.are_unsettled() {
            return None;
        }
        let layout = &self.ctx.layout;
        let held = zone.coverage_mut(parity).held.take();
        let (row, stripe) = held.zip(zone.open_stripe(layout))?;
        let end = layout.final_parity(stripe, zone.pointer);
        let rows = zone.parity.get(parity, self.ctx.bytes(row)..self.ctx.bytes(end)).map(Buf::copy_from);
        let rows = rows.expect("memory holds the parity of the open stripe");
        let to = self.members.part(id, layout.parity(stripe, parity))?;
        let (slot, bytes) = (to.slot(), rows.len() as u64);
        // A commit waits for the rows.
        let io = to.write(IoClass::Log, layout.row(stripe) + row, rows)?;
        add(&self.ctx.metrics.parity_bytes, bytes);
        let (this, generation) = (Arc::clone(self), zone.generation);
        let judged = Io::spawn(&self.ctx.driver, &self.ctx.geometry.name, async move {
            if let Err(error) = io.await
                && let Err(error) = this.failures.judge_writes(id, vec![(slot, error)]).await
            {
                let mut zone = this.zones.zone(id);
                if zone.generation == generation {
                    zone.poison = zone.poison.take().or(Some(error));
                }
            }
            Ok(Done::Unit)
        });
        Some(judged.typed())
    }

    /// Writes rows of a parity that became final, and those held back below, unless they are held back too. Returns the end of the
    /// blocks that the rows cover, if they complete a commit.
    fn put_parity(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        (stripe, parity): (Stripe, Parity),
        rows: Range<u64>,
        ios: &mut DriveIos,
    ) -> Option<Blocks> {
        let layout = &self.ctx.layout;
        if rows.end < layout.unit_of(stripe) && self.holds_parity(zone, id, stripe, parity) {
            zone.coverage_mut(parity).held.get_or_insert(rows.start);
            return None;
        }
        let first = zone.coverage_mut(parity).held.take().unwrap_or(rows.start);
        let rows = first..rows.end;
        let to = layout.unit_start(stripe, layout.data_units() - 1).plus(Blocks(rows.end));
        let before = ios.len();
        let covers = self.write_parity(zone, id, (stripe, parity), rows.clone(), ios);
        // A commit covers all lower blocks: by the whole unit, or by partial parity that was logged.
        let coverage = zone.coverage_mut(parity);
        let all = to == layout.end(stripe) || coverage.logged.plus(Blocks(rows.end - rows.start)) == to;
        if !(covers && all) {
            return None;
        }
        coverage.commit(to, ios.len() == before);
        Some(to)
    }

    /// Writes the data of `request` at the zone's write pointer. The zone has room, and the logs have reserved room for
    /// relocated content.
    pub(crate) fn put(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        request: WriteRequest,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        let (layout, from) = (self.ctx.layout, zone.pointer);
        let WriteRequest { class, offset, data, how, submitted, .. } = request;
        let done = match offset {
            Some(_) => Done::Unit,
            None => Done::At(self.ctx.geometry.start(id).plus(from)),
        };
        let blocks = data.len() as u64 / u64::from(self.ctx.geometry.block_size);
        let end = from.plus(Blocks(blocks));
        let ChosenWay { is_parallel: parallel, sample } =
            self.append_way(zone, id, &done, (blocks, submitted));
        let append = if parallel { self.append_to_unit(class, zone, id, blocks, &data) } else { None };
        let flight = zone.push_flight(end, data.clone(), how, done, completer);
        if let Some(flight) = zone.flights.back_mut() {
            (flight.sample, flight.class) = (sample, class);
        }
        if zone.flights.iter().any(|flight| class < flight.class) {
            // The write is acknowledged after those below it, whose data and parity lie on other drives too.
            zone.flights.iter_mut().for_each(|flight| flight.class = flight.class.min(class));
            self.members.parts(id).for_each(|part| part.raise(class, 0..layout.part_rows));
        }
        if append.is_some() {
            zone.expect_address(&layout, self.ctx.bytes(1));
        }
        self.add_frame(zone, id, from, end, &data);
        let mut ios = DriveIos::of_class(class);
        self.write_map(zone, id, &mut ios);
        let mut covered: Vec<(Parity, Blocks)> = Vec::new();
        // The stripe whose parity was computed at once, because the write contains the whole stripe.
        let mut folded = None;
        add(&self.ctx.metrics.data_bytes, data.len() as u64);
        for step in steps(&layout, from, blocks) {
            match step {
                Step::Data(piece) => {
                    let at = self.ctx.bytes(piece.offset.minus(from).0);
                    let part = data.slice(at..at + self.ctx.bytes(piece.len));
                    if piece.index == 0 {
                        let unit = self.ctx.bytes(layout.unit_of(piece.stripe));
                        zone.parity.reserve(unit);
                        let whole = data.get(at..at + unit * layout.data_units() as usize);
                        if let Some(whole) = whole.filter(|_| piece.row == 0) {
                            zone.parity.add_stripe(whole, unit);
                            folded = Some(piece.stripe);
                        } else {
                            zone.parity.add_first_unit(&part);
                        }
                    } else if folded != Some(piece.stripe) {
                        zone.parity.add_later_unit(self.ctx.bytes(piece.row), &part);
                    }
                    if append.is_none() {
                        self.write_data(zone, id, piece, part, &mut ios);
                    }
                }
                Step::Parity { stripe, row, len } => {
                    for parity in layout.parities() {
                        let rows = row..row + len;
                        covered.extend(
                            self.put_parity(zone, id, (stripe, parity), rows, &mut ios)
                                .map(|to| (parity, to)),
                        );
                    }
                }
            }
        }
        zone.pointer = end;
        if end == layout.capacity() {
            // A physical zone that is larger than those of the other drives would stay open, so it is
            // finished. One with room for the part of another logical zone stays as it is.
            for part in self.members.parts(id) {
                let end = part.place().row + layout.part_rows;
                let larger = |d: MemberDrive| d.geometry().zone_capacity.0 > end;
                let is_last = |shared: &SharedZones| shared.is_last_slot(part.place());
                if part.device().is_some_and(larger) && self.zones.shared().is_none_or(is_last) {
                    ios.push(part.slot(), part.act(Action::Finish));
                }
            }
        }
        self.log_new_parity(zone, id, parallel, deferred);
        if let Some(append) = append {
            return self.await_append(id, flight, append, how, deferred);
        }
        let this = Arc::clone(self);
        deferred.run(async move {
            let slots = ios.slots();
            let failures = ios.join().await;
            let judged = this.failures.judge_writes(id, failures).await;
            this.landed(id, flight, &covered, (slots, how), judged);
        });
    }
}
