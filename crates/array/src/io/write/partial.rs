//! Partial parity: of stripes that are not full, in the log of the drive that their parity belongs to.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zoned::{Blocks, BufMut, Durability, Error, ZoneId};

use crate::Sabotage;
use crate::core::{After, Core};
use crate::format::record::Body;
use crate::layout::Stripe;
use crate::member::NoRoom;
use crate::zone::Zone;

impl Core {
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
        if self.sabotage == Some(Sabotage::PartialParity) {
            return zone.commit(end, true);
        }
        if !member.is_good() {
            return self.without_parity(zone, id, end, after);
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
            // It failed a moment ago.
            Some(Ok(None)) => self.without_parity(zone, id, end, after),
            Some(Err(NoRoom)) => unreachable!("looked at under the same lock"),
        }
    }

    /// The drive of the parity is lacking: data alone has to do, once that is in the others' superblocks.
    fn without_parity(self: &Arc<Core>, zone: &mut Zone, id: ZoneId, end: Blocks, after: &mut After) {
        if self.unpersisted.load(Ordering::Acquire) == 0 {
            return zone.commit(end, true);
        }
        zone.commit(end, false);
        zone.logging = true;
        let core = Arc::clone(self);
        after.run(async move {
            let settled = core.settled("write").await;
            core.logged(id, end, settled);
        });
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
}
