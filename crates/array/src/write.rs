//! Writes: carried out under the zone's lock, so that every drive sees them in order; judged when they land.

use std::ops::Range;
use std::sync::Arc;

use zoned::{
    Action, Admission, Blocks, Buf, BufMut, Completer, Done, Durability, Error, ErrorKind, Io, Resources,
    ZoneEvent, ZoneId, ZoneState, join_all,
};

use crate::Sabotage;
use crate::core::{After, Core};
use crate::format::header;
use crate::format::record::Body;
use crate::layout::{Piece, Slot, Stripe};
use crate::member::NoRoom;
use crate::metrics::add;
use crate::persistence::Slots;
use crate::plan::{Step, steps};
use crate::xor::{fold, xor};
use crate::zone::{Relocated, Zone};

/// What a write gave to the drives.
#[derive(Default)]
pub(crate) struct Children {
    slots: Vec<Slot>,
    ios: Vec<Io<()>>,
}

impl Children {
    pub(crate) fn push(&mut self, slot: Slot, io: Option<Io<()>>) {
        if let Some(io) = io {
            self.slots.push(slot);
            self.ios.push(io);
        }
    }

    fn len(&self) -> usize {
        self.ios.len()
    }

    /// The drives that have something to do.
    fn slots(&self) -> Slots {
        let mut slots = Slots::default();
        self.slots.iter().for_each(|slot| slots.add(*slot));
        slots
    }

    /// Waits for all; gives the failures.
    pub(crate) async fn join(self) -> Vec<(Slot, Error)> {
        let results = join_all(self.ios).await;
        let failure = |(slot, result): (Slot, zoned::Result<()>)| result.err().map(|e| (slot, e));
        self.slots.into_iter().zip(results).filter_map(failure).collect()
    }
}

impl Core {
    /// Why a write must not begin.
    fn refuse_write(
        &self,
        zone: &Zone,
        id: ZoneId,
        name: &'static str,
        offset: Option<Blocks>,
        blocks: u64,
    ) -> Option<Error> {
        let at = self.geometry.start(id).plus(offset.unwrap_or(zone.pointer));
        let refuse = |kind| Some(self.error(kind, name).in_zone(id).at(at));
        match zone.state {
            ZoneState::Offline => return refuse(ErrorKind::ZoneOffline),
            ZoneState::ReadOnly => {
                let error = self.error(ErrorKind::ZoneReadOnly, name).in_zone(id).at(at);
                return Some(match self.worn_words(id) {
                    Some(why) => error.because(why),
                    None => error,
                });
            }
            ZoneState::Full => return refuse(ErrorKind::ZoneFull),
            _ => {}
        }
        if let Some(poison) = &zone.poison {
            return Some(poison.duplicate());
        }
        if self.is_broken() {
            return Some(self.broken_error(name).in_zone(id).at(at));
        }
        if offset.is_some_and(|offset| offset != zone.pointer) {
            let pointer = self.geometry.start(id).plus(zone.pointer);
            return refuse(ErrorKind::NotAtWritePointer)
                .map(|e| e.because(format!("the pointer is at block {pointer}")));
        }
        let left = self.layout.capacity().minus(zone.pointer).0;
        if blocks > left {
            return refuse(ErrorKind::ZoneFull).map(|e| e.because(format!("{blocks} blocks, {left} left")));
        }
        None
    }

    /// Makes the zone open, closing another one where that is the rule.
    pub(crate) fn admit(
        &self,
        limits: &mut Resources,
        zone: &mut Zone,
        id: ZoneId,
        name: &'static str,
        event: ZoneEvent,
    ) -> Result<(), Error> {
        let to = zone.state.transition(event).map_err(|_| self.illegal(zone, id, name))?;
        let (max_open, max_active) = (self.geometry.max_open, self.geometry.max_active);
        match limits.admit(zone.state, max_open, max_active) {
            Ok(Admission::Granted) => {}
            Ok(Admission::Close(victim)) => {
                // Two zones' locks: only whoever holds the limits may do that.
                limits.moved(victim, ZoneState::ImplicitOpen, ZoneState::Closed);
                self.zone(victim).state = ZoneState::Closed;
            }
            Err(kind) => {
                let any = |n: Option<u32>| n.map_or("any number".into(), |n| n.to_string());
                return Err(self.error(kind, name).in_zone(id).because(format!(
                    "{} open of {}, {} active of {}: close or finish another zone first",
                    limits.open(),
                    any(max_open),
                    limits.active(),
                    any(max_active)
                )));
            }
        }
        limits.moved(id, zone.state, to);
        zone.state = to;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a write with all that it needs")]
    pub(crate) fn begin_write(
        self: &Arc<Core>,
        zone: &mut Zone,
        id: ZoneId,
        limits: Option<&mut Resources>,
        name: &'static str,
        offset: Option<Blocks>,
        data: Buf,
        how: Durability,
        completer: Completer,
        after: &mut After,
    ) {
        let blocks = data.len() as u64 / u64::from(self.geometry.block_size);
        if let Some(error) = self.refuse_write(zone, id, name, offset, blocks) {
            return after.complete(completer, Err(error));
        }
        let fills = zone.pointer.0 + blocks == self.layout.capacity().0;
        if let Some(limits) = limits
            && let Err(error) = self.admit(limits, zone, id, name, ZoneEvent::Write { fills })
        {
            return after.complete(completer, Err(error));
        }
        let done = match offset {
            Some(_) => Done::Unit,
            None => Done::At(self.geometry.start(id).plus(zone.pointer)),
        };
        let needs = self.relocations(zone, id, blocks);
        if !needs.is_empty() && !self.reserve_now(&needs) {
            // Nothing else of the zone goes on before there is room.
            zone.busy = true;
            let core = Arc::clone(self);
            after.run(async move {
                core.reserve(&needs).await;
                let mut after = After::default();
                {
                    let mut zone = core.zone(id);
                    zone.busy = false;
                    let refused = zone.poison.as_ref().map(Error::duplicate);
                    let refused =
                        refused.or_else(|| core.is_broken().then(|| core.broken_error(name).in_zone(id)));
                    match refused {
                        Some(error) => {
                            core.unreserve(&needs);
                            after.complete(completer, Err(error));
                        }
                        None => core.put(&mut zone, id, data, how, done, completer, &mut after),
                    }
                }
                after.finish(&core);
                core.pump(id);
            });
            return;
        }
        self.put(zone, id, data, how, done, completer, after);
    }

    /// Blocks of each drive's log that a write of `blocks` blocks at the pointer takes, for what is relocated.
    pub(crate) fn relocations(&self, zone: &Zone, id: ZoneId, blocks: u64) -> Vec<(Slot, u64)> {
        let mut needs = Vec::new();
        if zone.patches.is_empty() {
            return needs;
        }
        let layout = &self.layout;
        let block = u64::from(self.geometry.block_size);
        let header = |rows: u64| (header::SIZE as u64).div_ceil(block) + rows;
        for step in steps(layout, id, zone.pointer, blocks) {
            match step {
                Step::Data(piece) => {
                    let row = layout.row(piece.stripe) + piece.row;
                    for (rows, hidden) in zone.patches.split(piece.slot, row..row + piece.len) {
                        if hidden {
                            needs.push((piece.slot, header(rows.end - rows.start)));
                        }
                    }
                }
                Step::Parity { stripe, row, len } => {
                    if row + len < layout.unit_of(stripe) {
                        continue;
                    }
                    let (slot, row) = (layout.parity(id, stripe), layout.row(stripe));
                    if zone.patches.hides(slot, &(row..row + layout.unit_of(stripe))) {
                        needs.push((slot, header(layout.unit_of(stripe))));
                    }
                }
            }
        }
        needs
    }

    /// Reserves room in the logs, if all have it.
    fn reserve_now(&self, needs: &[(Slot, u64)]) -> bool {
        for (n, (slot, blocks)) in needs.iter().enumerate() {
            if !self.member(*slot).reserve(*blocks) {
                self.unreserve(needs.get(..n).unwrap_or_default());
                return false;
            }
        }
        true
    }

    /// Reserves room in the logs, moving them where there is none.
    pub(crate) async fn reserve(self: &Arc<Core>, needs: &[(Slot, u64)]) {
        for (slot, blocks) in needs {
            let member = self.member(*slot);
            loop {
                let seen = member.rolled.version();
                if member.reserve(*blocks) {
                    break;
                }
                let mut after = After::default();
                self.roll(*slot, &mut after);
                after.finish(self);
                member.rolled.changed_since(seen).await;
            }
        }
    }

    fn unreserve(&self, needs: &[(Slot, u64)]) {
        needs.iter().for_each(|(slot, blocks)| self.member(*slot).unreserve(*blocks));
    }

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

    /// Logs the parity of what is written of the open stripe and not covered yet, unless that is under way: what
    /// comes meanwhile is covered by the next record, or by the stripe's parity.
    pub(crate) fn log_parity(self: &Arc<Core>, zone: &mut Zone, id: ZoneId, after: &mut After) {
        if zone.logging || zone.logged >= zone.pointer || zone.poison.is_some() {
            return;
        }
        if self.is_broken() {
            zone.poison = Some(self.broken_error("write").in_zone(id));
            return;
        }
        let Some(stripe) = zone.open_stripe(&self.layout) else { return };
        let (start, end) = (zone.logged.max(self.layout.start(stripe)), zone.pointer);
        if zone.flies_below(self.layout.start(stripe)) {
            // Nothing of this stripe can be acknowledged yet, and it may become whole meanwhile: `landed` looks again.
            return;
        }
        let slot = self.layout.parity(id, stripe);
        let member = self.member(slot);
        if !member.is_good() || self.sabotage == Some(Sabotage::PartialParity) {
            return zone.commit(end, true);
        }
        let body = self.partial(zone, id, stripe, start, end);
        let io = {
            let mut log = member.log.lock();
            if body.blocks(self.geometry.block_size) > log.left() {
                // Room is on its way: see `roll`.
                zone.logging = true;
                log.waiting.push(id);
                None
            } else {
                Some(member.append_to(&mut log, &body, false, Durability::Cached))
            }
        };
        match io {
            None => self.roll(slot, after),
            Some(Ok(Some(io))) => {
                zone.commit(end, false);
                zone.logging = true;
                let core = Arc::clone(self);
                after.run(async move {
                    let failure = io.await.err().map(|e| (slot, e));
                    let judged = core.judge(id, failure.into_iter().collect()).await;
                    core.logged(id, end, judged);
                });
                self.roll_early(slot, after);
            }
            // It failed a moment ago: data alone has to do.
            Some(Ok(None)) => zone.commit(end, true),
            Some(Err(NoRoom)) => unreachable!("looked at under the same lock"),
        }
    }

    /// The record of the parity of a stripe that is written up to `end`.
    pub(crate) fn partial(
        &self,
        zone: &Zone,
        id: ZoneId,
        stripe: Stripe,
        start: Blocks,
        end: Blocks,
    ) -> Body {
        let ranges = self.layout.rows(stripe, start, end);
        let mut rows = BufMut::with_capacity(self.bytes(ranges.iter().map(|r| r.end - r.start).sum()));
        for range in ranges {
            let part = zone.parity.get(self.bytes(range.start)..self.bytes(range.end));
            rows.extend_from_slice(part.expect("the rows of what is written are there"));
        }
        Body::PartialParity { zone: id, generation: zone.generation, start, end, rows: rows.freeze() }
    }

    /// Partial parity up to `end` is in the log.
    fn logged(self: &Arc<Core>, id: ZoneId, end: Blocks, judged: Result<(), Error>) {
        let mut after = After::default();
        {
            let mut zone = self.zone(id);
            zone.logging = false;
            self.parity_landed(&mut zone, id, end);
            match judged {
                Ok(()) => zone.committed(end),
                Err(e) => zone.poison = zone.poison.take().or(Some(e)),
            }
            self.log_parity(&mut zone, id, &mut after);
            self.release(&mut zone, id, &mut after);
        }
        after.finish(self);
        self.pump(id);
    }

    /// Partial parity up to `end` is in a checkpoint, or is not needed any more.
    pub(crate) fn logged_by_checkpoint(
        self: &Arc<Core>,
        id: ZoneId,
        end: Blocks,
        judged: &Result<(), Error>,
    ) {
        let mut after = After::default();
        {
            let mut zone = self.zone(id);
            self.parity_landed(&mut zone, id, end);
            match judged {
                Ok(()) => zone.committed(end),
                Err(e) => zone.poison = zone.poison.take().or_else(|| Some(e.duplicate())),
            }
            self.release(&mut zone, id, &mut after);
        }
        after.finish(self);
        self.pump(id);
    }

    /// The blocks of a write are on their drives, or never will be.
    fn landed(
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
