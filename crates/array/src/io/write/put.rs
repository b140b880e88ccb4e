//! The operations of one write: data and final parity to their places, or to the logs where the places are stale.

use std::ops::Range;
use std::sync::Arc;

use zoned::{Action, Blocks, Buf, BufMut, Completer, Done, Durability, Io, ZoneId};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::layout::steps::{Step, steps};
use crate::layout::xor::{xor, xor_parts};
use crate::layout::{Piece, Stripe};
use crate::member::drive_ios::DriveIos;
use crate::member::member_drive::MemberDrive;
use crate::metrics::add;
use crate::zone::Zone;
use crate::zone::stale_rows::RelocatedParity;

impl Writes {
    /// Writes a piece of data to its drive: in place, and to the metadata log where the rows are stale.
    fn write_data(&self, zone: &mut Zone, id: ZoneId, piece: Piece, data: Buf, ios: &mut DriveIos) {
        let row = self.ctx.layout.row(piece.stripe) + piece.row;
        let member = self.members.member_of(id, piece.role);
        if zone.stale.is_empty() {
            return ios.push(member.slot, member.write(id, row, data));
        }
        for (rows, stale) in zone.stale.split(piece.role, row..row + piece.len) {
            let part = data.slice(self.ctx.bytes(rows.start - row)..self.ctx.bytes(rows.end - row));
            if !stale {
                ios.push(member.slot, member.write(id, rows.start, part));
                continue;
            }
            add(&self.ctx.metrics.relocations, 1);
            zone.stale.put(&self.ctx.layout, self.ctx.bytes(1), piece.role, rows.start, &part);
            let start = piece.offset.plus(Blocks(rows.start - row));
            let end = start.plus(Blocks(rows.end - rows.start));
            let body = Body::RelocatedData { zone: id, generation: zone.generation, start, end, data: part };
            ios.push(
                member.slot,
                member.append_reserved(&body, self.ctx.geometry.block_size, Durability::Cached),
            );
        }
    }

    /// Writes rows of parity that are final. If any row of the unit is stale, the whole unit goes to the log together with
    /// its last row, and earlier rows are not written. True if the rows were written.
    fn write_parity(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        stripe: Stripe,
        rows: Range<u64>,
        ios: &mut DriveIos,
    ) -> bool {
        let layout = &self.ctx.layout;
        let (role, first, unit) = (layout.parity(stripe), layout.row(stripe), layout.unit_of(stripe));
        let member = self.members.member_of(id, role);
        let slot = member.slot;
        let last = rows.end == unit;
        if zone.stale.is_empty() || !zone.stale.has_stale(role, &(first..first + unit)) {
            let bytes = self.ctx.bytes(rows.start)..self.ctx.bytes(rows.end);
            let parity = if last {
                let whole = std::mem::take(&mut zone.parity).freeze();
                zone.keep_parity(stripe, &whole);
                whole.slice(bytes)
            } else {
                let part = zone.parity.get(bytes);
                Buf::copy_from(part.expect("memory holds the parity of the open stripe"))
            };
            add(&self.ctx.metrics.parity_bytes, parity.len() as u64);
            ios.push(slot, member.write(id, first + rows.start, parity));
            return true;
        }
        if !last {
            return false;
        }
        let parity = std::mem::take(&mut zone.parity).freeze();
        zone.keep_parity(stripe, &parity);
        add(&self.ctx.metrics.parity_bytes, parity.len() as u64);
        add(&self.ctx.metrics.relocations, 1);
        // Parity rows below the stale ones are in place already. Rows above are written too: the drive's
        // pointer must not fall behind.
        let parts = zone.stale.split(role, first..first + unit);
        if let Some((rows, false)) = parts.last().cloned() {
            let part = parity.slice(self.ctx.bytes(rows.start - first)..self.ctx.bytes(rows.end - first));
            ios.push(slot, member.write(id, rows.start, part));
        }
        let (start, end) = (layout.start(stripe), layout.end(stripe));
        zone.relocated.insert(stripe, RelocatedParity { end, unit: parity.clone() });
        let body = Body::RelocatedParity { zone: id, generation: zone.generation, start, end, unit: parity };
        ios.push(slot, member.append_reserved(&body, self.ctx.geometry.block_size, Durability::Cached));
        true
    }

    /// True if final rows of the parity of the open stripe wait for the rows above them: no block of the stripe can be
    /// acknowledged before writes below the stripe have landed, and the stripe may become whole meanwhile.
    fn holds_parity(&self, zone: &Zone, id: ZoneId, stripe: Stripe) -> bool {
        let layout = &self.ctx.layout;
        let (role, first) = (layout.parity(stripe), layout.row(stripe));
        zone.has_flight_below(layout.start(stripe))
            && zone.poison.is_none()
            && self.ctx.rules.logs_partial_parity()
            && self.members.member_of(id, role).is_good()
            && !zone.stale.has_stale(role, &(first..first + layout.unit_of(stripe)))
    }

    /// Writes the held rows of the parity of the open stripe to their place. The result is there once an error has been
    /// judged: the error poisons the zone. Called before a commit that covers the rows' blocks in another way.
    pub(crate) fn write_held_parity(self: &Arc<Self>, zone: &mut Zone, id: ZoneId) -> Option<Io<()>> {
        let layout = &self.ctx.layout;
        let (row, stripe) = zone.held_parity.take().zip(zone.open_stripe(layout))?;
        let end = layout.final_parity(stripe, zone.pointer);
        let parity = zone.parity.get(self.ctx.bytes(row)..self.ctx.bytes(end)).map(Buf::copy_from);
        let parity = parity.expect("memory holds the parity of the open stripe");
        let member = self.members.member_of(id, layout.parity(stripe));
        let (slot, bytes) = (member.slot, parity.len() as u64);
        let io = member.write(id, layout.row(stripe) + row, parity)?;
        add(&self.ctx.metrics.parity_bytes, bytes);
        let this = Arc::clone(self);
        let judged = Io::spawn(&self.ctx.driver, &self.ctx.geometry.name, async move {
            if let Err(error) = io.await
                && let Err(error) = this.failures.judge_writes(id, vec![(slot, error)]).await
            {
                let mut zone = this.zones.zone(id);
                zone.poison = zone.poison.take().or(Some(error));
            }
            Ok(Done::Unit)
        });
        Some(judged.typed())
    }

    /// Writes `data` at the zone's write pointer. The zone has room, and the logs have reserved room for
    /// relocated content.
    #[expect(clippy::too_many_arguments, reason = "a write with all that it needs")]
    pub(crate) fn put(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        data: Buf,
        how: Durability,
        done: Done,
        completer: Completer,
        deferred: &mut Deferred,
    ) {
        let (layout, from) = (self.ctx.layout, zone.pointer);
        let blocks = data.len() as u64 / u64::from(self.ctx.geometry.block_size);
        let end = from.plus(Blocks(blocks));
        let flight = zone.push_flight(end, data.clone(), how, done, completer);
        let mut ios = DriveIos::default();
        let mut covered: Vec<Blocks> = Vec::new();
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
                        if zone.parity.is_empty() {
                            zone.parity = BufMut::with_capacity(unit);
                        }
                        let whole = data.get(at..at + unit * layout.data_units() as usize);
                        if let Some(whole) = whole.filter(|_| piece.row == 0) {
                            xor_parts(&mut zone.parity, whole, unit);
                            folded = Some(piece.stripe);
                        } else {
                            zone.parity.extend_from_slice(&part);
                        }
                    } else if folded != Some(piece.stripe) {
                        let row = self.ctx.bytes(piece.row);
                        let rows = zone.parity.get_mut(row..row + part.len());
                        xor(rows.expect("memory holds the first unit of the stripe"), &part);
                    }
                    self.write_data(zone, id, piece, part, &mut ios);
                }
                Step::Parity { stripe, row, len } => {
                    if row + len < layout.unit_of(stripe) && self.holds_parity(zone, id, stripe) {
                        zone.held_parity.get_or_insert(row);
                        continue;
                    }
                    let first = zone.held_parity.take().unwrap_or(row);
                    let rows = first..row + len;
                    let to = layout.unit_start(stripe, layout.data_units() - 1).plus(Blocks(row + len));
                    let before = ios.len();
                    let covers = self.write_parity(zone, id, stripe, rows.clone(), &mut ios);
                    // A commit covers all lower blocks: by the whole unit, or by partial parity that was logged.
                    let all =
                        to == layout.end(stripe) || zone.logged.plus(Blocks(rows.end - rows.start)) == to;
                    if covers && all {
                        zone.commit(to, ios.len() == before);
                        covered.push(to);
                    }
                }
            }
        }
        zone.pointer = end;
        if end == layout.capacity() {
            // A physical zone that is larger than those of the other drives would stay open, so it is
            // finished.
            for member in self.members.iter() {
                let larger = |d: MemberDrive| d.geometry().zone_capacity.0 > layout.part_rows;
                if member.device_for_zone(id).is_some_and(larger) {
                    ios.push(member.slot, member.act(id, Action::Finish));
                }
            }
        }
        self.log_parity(zone, id, deferred);
        let this = Arc::clone(self);
        deferred.run(async move {
            let slots = ios.slots();
            let failures = ios.join().await;
            let judged = this.failures.judge_writes(id, failures).await;
            this.landed(id, flight, &covered, (slots, how), judged);
        });
    }
}
