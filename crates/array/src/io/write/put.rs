//! What a write gives to the drives: data to its place, parity that changes no more to its place, and to the logs what is
//! hidden there.

use std::ops::Range;
use std::sync::Arc;

use zoned::{Action, Blocks, Buf, BufMut, Completer, Done, Durability, ZoneId};

use super::Children;
use crate::core::{After, Core};
use crate::format::record::Body;
use crate::layout::steps::{Step, steps};
use crate::layout::xor::{fold, xor};
use crate::layout::{Piece, Stripe};
use crate::metrics::add;
use crate::zone::{Relocated, Zone};

impl Core {
    /// Writes a piece of data to its drive: to its place, and to the log where that is hidden.
    fn put_data(&self, zone: &mut Zone, id: ZoneId, piece: Piece, data: Buf, children: &mut Children) {
        let row = self.layout.row(piece.stripe) + piece.row;
        let member = self.member(piece.slot);
        if zone.patches.is_empty() {
            return children.push(piece.slot, member.write(id, row, data));
        }
        for (rows, hidden) in zone.patches.split(piece.slot, row..row + piece.len) {
            let part = data.slice(self.bytes(rows.start - row)..self.bytes(rows.end - row));
            if !hidden {
                children.push(piece.slot, member.write(id, rows.start, part));
                continue;
            }
            add(&self.tally.relocations, 1);
            zone.patches.put(&self.layout, self.bytes(1), piece.slot, rows.start, &part);
            let start = piece.offset.plus(Blocks(rows.start - row));
            let end = start.plus(Blocks(rows.end - rows.start));
            let body = Body::RelocatedData { zone: id, generation: zone.generation, start, end, data: part };
            children.push(piece.slot, member.append_reserved(&body, self.geometry.block_size));
        }
    }

    /// Writes rows of parity that change no more to their place. Where any of the unit's rows is hidden, the whole unit
    /// goes to the log with its last row, and nothing before that. Says whether these rows are there.
    fn put_parity(
        &self,
        zone: &mut Zone,
        id: ZoneId,
        stripe: Stripe,
        rows: Range<u64>,
        children: &mut Children,
    ) -> bool {
        let (slot, first, unit) =
            (self.layout.parity(id, stripe), self.layout.row(stripe), self.layout.unit_of(stripe));
        let member = self.member(slot);
        let last = rows.end == unit;
        if zone.patches.is_empty() || !zone.patches.hides(slot, &(first..first + unit)) {
            let bytes = self.bytes(rows.start)..self.bytes(rows.end);
            let parity = if last {
                let whole = std::mem::take(&mut zone.parity).freeze();
                zone.made_whole(stripe, &whole);
                whole.slice(bytes)
            } else {
                let part = zone.parity.get(bytes);
                Buf::copy_from(part.expect("the rows of what is written are there"))
            };
            add(&self.tally.parity_bytes, parity.len() as u64);
            children.push(slot, member.write(id, first + rows.start, parity));
            return true;
        }
        if !last {
            return false;
        }
        let parity = std::mem::take(&mut zone.parity).freeze();
        zone.made_whole(stripe, &parity);
        add(&self.tally.parity_bytes, parity.len() as u64);
        add(&self.tally.relocations, 1);
        // Rows below what is hidden are written already; those above keep the drive's pointer where it belongs.
        let parts = zone.patches.split(slot, first..first + unit);
        if let Some((rows, false)) = parts.last().cloned() {
            let part = parity.slice(self.bytes(rows.start - first)..self.bytes(rows.end - first));
            children.push(slot, member.write(id, rows.start, part));
        }
        let (start, end) = (self.layout.start(stripe), self.layout.end(stripe));
        zone.relocated.insert(stripe, Relocated { end, unit: parity.clone() });
        let body = Body::Relocated { zone: id, generation: zone.generation, start, end, unit: parity };
        children.push(slot, member.append_reserved(&body, self.geometry.block_size));
        true
    }

    /// Writes `data` at the pointer. It fits, and so do its relocated units.
    #[expect(clippy::too_many_arguments, reason = "a write with all that it needs")]
    pub(crate) fn put(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        data: Buf,
        how: Durability,
        done: Done,
        completer: Completer,
        after: &mut After,
    ) {
        let (layout, from) = (self.layout, zone.pointer);
        let blocks = data.len() as u64 / u64::from(self.geometry.block_size);
        let end = from.plus(Blocks(blocks));
        let flight = zone.take_off(end, data.clone(), how, done, completer);
        let mut children = Children::default();
        let mut covered: Vec<Blocks> = Vec::new();
        // The stripe whose parity was made in one go: all of it is in this write.
        let mut folded = None;
        add(&self.tally.data_bytes, data.len() as u64);
        for step in steps(&layout, id, from, blocks) {
            match step {
                Step::Data(piece) => {
                    let at = self.bytes(piece.offset.minus(from).0);
                    let part = data.slice(at..at + self.bytes(piece.len));
                    if piece.index == 0 {
                        let unit = self.bytes(layout.unit_of(piece.stripe));
                        if zone.parity.is_empty() {
                            zone.parity = BufMut::with_capacity(unit);
                        }
                        let whole = data.get(at..at + unit * layout.data_units() as usize);
                        if let Some(whole) = whole.filter(|_| piece.row == 0) {
                            fold(&mut zone.parity, whole, unit);
                            folded = Some(piece.stripe);
                        } else {
                            zone.parity.extend_from_slice(&part);
                        }
                    } else if folded != Some(piece.stripe) {
                        let row = self.bytes(piece.row);
                        let rows = zone.parity.get_mut(row..row + part.len());
                        xor(rows.expect("the stripe's first unit is there"), &part);
                    }
                    self.put_data(zone, id, piece, part, &mut children);
                }
                Step::Parity { stripe, row, len } => {
                    let to = layout.unit_start(stripe, layout.data_units() - 1).plus(Blocks(row + len));
                    let before = children.len();
                    let covers = self.put_parity(zone, id, stripe, row..row + len, &mut children);
                    // What comes before must be covered too: by the whole unit, or by what was logged.
                    let all = to == layout.end(stripe) || zone.logged.plus(Blocks(len)) == to;
                    if covers && all {
                        zone.commit(to, children.len() == before);
                        covered.push(to);
                    }
                }
            }
        }
        zone.pointer = end;
        if end == layout.capacity() {
            // A drive whose zones are larger would leave this one open for ever.
            for member in &self.members {
                let larger =
                    |d: Arc<dyn zoned::ZonedDevice>| d.geometry().zone_capacity.0 > layout.zone_capacity;
                if member.device_of(id).is_some_and(larger) {
                    children.push(member.slot, member.act(id, Action::Finish));
                }
            }
        }
        self.log_parity(zone, id, after);
        let core = Arc::clone(self);
        after.run(async move {
            let slots = children.slots();
            let failures = children.join().await;
            let judged = core.judge(id, failures).await;
            core.landed(id, flight, &covered, (slots, how), judged);
        });
    }
}
