//! Appends that go to their drive as appends (RAIZN+, section 5.2.1), in any number side by side.
//!
//! A piece of an append goes to its drive as an append if its unit has other blocks in flight. Alone, at the first row of a unit
//! or over a unit's border it is a write at its row, which the drive orders between the appends: the blocks of different units
//! never mix. A write that completes a stripe waits until the rows of the stripe's appends are known, because full parity is
//! written once.
//!
//! Partial parity is logged at once, for the order of submission. If a drive gives another order, the zone takes no more writes
//! until everything in flight has ended; then the writes get their addresses, and a reorder record in the log of each parity
//! corrects what was logged. What the record covers is acknowledged after it.

use std::sync::Arc;

use zoned::{Blocks, Buf, Done, Durability, Error, ErrorKind, Instant, Io, IoClass, Lba, ZoneId};

use super::Writes;
use crate::deferred::Deferred;
use crate::layout::{Piece, Slot};
use crate::metrics::add;
use crate::options::AppendMode;
use crate::zone::Zone;
use crate::zone::append_choice::ChosenWay;

/// A write to be carried out as an append to one drive.
pub(super) struct UnitAppend {
    slot: Slot,
    /// Address of the first row of the drive's part, and the operation.
    first: Lba,
    io: Io<Lba>,
    piece: Piece,
}

impl Writes {
    /// The way of a write of `blocks`. Appends that go side by side have records of partial parity that do not wait for one another.
    pub(super) fn append_way(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        done: &Done,
        (blocks, submitted): (u64, Option<Instant>),
    ) -> ChosenWay {
        if self.ctx.appends == AppendMode::Ordered || !self.may_be_parallel(zone, id, done) {
            return ChosenWay { is_parallel: false, sample: None };
        }
        let in_flight = zone.flights.len() + zone.queue.len() + 1;
        let depth = zone.appends.depth.add(in_flight as u64);
        self.ways.way(Blocks(blocks), depth, submitted)
    }

    /// True if appends of the zone may go side by side.
    fn may_be_parallel(&self, zone: &Zone, id: ZoneId, done: &Done) -> bool {
        matches!(done, Done::At(_))
            && zone.frames.is_none()
            && zone.stale.is_empty()
            && zone.poison.is_none()
            && self
                .ctx
                .layout
                .roles()
                .all(|role| self.members.part(id, role).is_some_and(|part| part.member().is_good()))
    }

    /// Submits a write at the zone's pointer as an append to its drive, if it lies within one unit that has blocks in flight.
    pub(super) fn append_to_unit(
        &self,
        class: IoClass,
        zone: &Zone,
        id: ZoneId,
        blocks: u64,
        data: &Buf,
    ) -> Option<UnitAppend> {
        let layout = &self.ctx.layout;
        let piece = layout.locate(zone.pointer);
        let unit_start = layout.unit_start(piece.stripe, piece.index);
        let end = zone.pointer.plus(Blocks(blocks));
        if piece.row == 0
            || blocks > piece.len
            || end >= layout.end(piece.stripe)
            || !zone.is_in_flight_from(unit_start)
        {
            return None;
        }
        let part = self.members.part(id, piece.role)?;
        let (first, io) = part.append(class, data.clone())?;
        Some(UnitAppend { slot: part.slot(), first, io, piece })
    }

    /// Waits for an append to a drive, and gives the write its address.
    pub(super) fn await_append(
        self: &Arc<Self>,
        id: ZoneId,
        flight: u64,
        append: UnitAppend,
        how: Durability,
        deferred: &mut Deferred,
    ) {
        let this = Arc::clone(self);
        deferred.run(async move {
            let UnitAppend { slot, first, io, piece } = append;
            let layout = &this.ctx.layout;
            let (found, failures) = match io.await {
                Ok(at) => (Some(at), Vec::new()),
                Err(error) => (None, vec![(slot, error)]),
            };
            let mut judged = this.failures.judge_writes(id, failures).await;
            let unit = layout.row(piece.stripe);
            let rows = unit..unit + layout.unit_of(piece.stripe);
            let row = found.map(|at| at.0.wrapping_sub(first.0));
            let address = match row {
                Some(row) if rows.contains(&row) => {
                    let start = layout.unit_start(piece.stripe, piece.index);
                    Some(start.plus(Blocks(row - rows.start)))
                }
                Some(_) => {
                    judged = judged.and(Err(this.impossible_address_error(id)));
                    None
                }
                None => None,
            };
            this.append_ended(id, flight, address, (slot, how), judged);
        });
    }

    fn impossible_address_error(&self, id: ZoneId) -> Error {
        let error = self.ctx.error(ErrorKind::Damaged, "append").in_zone(id);
        error.because(
            "a drive gave an append an address that another block has, or that lies outside of its unit",
        )
    }

    /// An append to a drive has ended. `address`: where its blocks lie in the logical zone; `None` if it failed.
    fn append_ended(
        self: &Arc<Self>,
        id: ZoneId,
        flight: u64,
        address: Option<Blocks>,
        (slot, how): (Slot, Durability),
        judged: Result<(), Error>,
    ) {
        self.zones.change(id, |zone, deferred| {
            if let Err(e) = judged {
                zone.poison = zone.poison.take().or(Some(e));
            }
            let mut slots = crate::layout::slots::Slots::default();
            slots.add(slot);
            self.stamp_slots(zone, slots, how);
            zone.append_ended(flight, address);
            self.log_parity(zone, id, deferred);
            // Before writes are acknowledged: a reset, a pause or a rebuild waits for them.
            self.write_awaited_parity(zone, id, deferred);
            self.release(zone, id, deferred);
            self.settle(zone, id, deferred);
            self.write_awaited_parity(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// Writes rows of parity to their place that waited for the addresses of appends. A zone without operations in flight has all
    /// final rows in their place.
    fn write_awaited_parity(self: &Arc<Self>, zone: &mut Zone, id: ZoneId, deferred: &mut Deferred) {
        if zone.appends.are_unsettled() || zone.poison.is_some() {
            return;
        }
        for parity in self.ctx.layout.parities() {
            if let Some(io) = self.write_held_parity(zone, id, parity) {
                // No acknowledgement waits for the write, so that a move of the parity's part has to.
                let guard = zone.readers.begin();
                deferred.run(async move {
                    drop(io.await);
                    drop(guard);
                });
            }
        }
    }

    /// Once all that a zone with reordered appends has in flight has ended: gives the writes their addresses, and corrects the
    /// logged parity.
    pub(super) fn settle(self: &Arc<Self>, zone: &mut Zone, id: ZoneId, deferred: &mut Deferred) {
        if !zone.may_settle() {
            return;
        }
        let first = self.ctx.geometry.start(id);
        let correct = self.ctx.rules.corrects_reordered();
        add(&self.ctx.metrics.reorderings, 1);
        if !zone.settle(&self.ctx.layout, self.ctx.bytes(1), first, correct) {
            zone.poison = Some(self.impossible_address_error(id));
        }
        self.log_parity(zone, id, deferred);
        self.release(zone, id, deferred);
    }
}
