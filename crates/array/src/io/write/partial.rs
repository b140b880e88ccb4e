//! Partial parity: the parity of a stripe that is not full, in the log of the drive that the stripe's parity belongs to.

use std::sync::Arc;

use zoned::{Blocks, BufMut, Durability, Error, ZoneId};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::layout::Stripe;
use crate::member::NoRoom;
use crate::zone::Zone;

impl Writes {
    /// Logs the parity of the blocks of the open stripe that no commit covers yet. One record of a zone is in flight at a
    /// time: blocks that are written meanwhile are covered by the next record, or by the stripe's full parity.
    pub(crate) fn log_parity(self: &Arc<Self>, zone: &mut Zone, id: ZoneId, deferred: &mut Deferred) {
        if zone.logging || zone.logged >= zone.pointer || zone.poison.is_some() {
            return;
        }
        if self.members.is_broken() {
            zone.poison = Some(self.members.broken_error("write").in_zone(id));
            return;
        }
        let layout = &self.ctx.layout;
        let Some(stripe) = zone.open_stripe(layout) else { return };
        let (start, end) = (zone.logged.max(layout.start(stripe)), zone.pointer);
        if zone.has_flight_below(layout.start(stripe)) {
            // No block of the stripe can be acknowledged before the lower writes have landed, and the stripe
            // may become full meanwhile. `landed` calls this function again.
            return;
        }
        let member = self.members.member_of(id, layout.parity(stripe));
        let slot = member.slot;
        if !self.ctx.rules.logs_partial_parity() {
            return zone.commit(end, true);
        }
        if !member.is_good() {
            return self.commit_without_parity(zone, id, end, deferred);
        }
        let body = self.partial(zone, id, stripe, start, end);
        let io = {
            let mut log = member.log.lock();
            if body.blocks(self.ctx.geometry.block_size) > log.blocks_left() {
                // Without room in the log, `room_freed` goes on after the log roll.
                zone.logging = true;
                log.waiting.push(id);
                None
            } else {
                Some(member.append_to(&mut log, &body, false, Durability::Cached))
            }
        };
        match io {
            None => self.members.roll(slot, deferred),
            Some(Ok(Some(io))) => {
                let held = self.write_held_parity(zone, id);
                zone.commit(end, false);
                zone.logging = true;
                let this = Arc::clone(self);
                deferred.run(async move {
                    let failure = io.await.err().map(|e| (slot, e));
                    let mut judged = this.failures.judge_writes(id, failure.into_iter().collect()).await;
                    if let Some(held) = held {
                        judged = judged.and(held.await);
                    }
                    this.parity_logged(id, end, judged);
                });
                self.members.roll_early(slot, deferred);
            }
            // The drive of the parity failed since the check above.
            Some(Ok(None)) => self.commit_without_parity(zone, id, end, deferred),
            Some(Err(NoRoom)) => unreachable!("the room was checked under the same lock"),
        }
    }

    /// The drive of the parity has failed: the data alone is committed, once the other superblocks contain the failure.
    fn commit_without_parity(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        end: Blocks,
        deferred: &mut Deferred,
    ) {
        zone.held_parity = None;
        if !self.members.is_persisting() {
            return zone.commit(end, true);
        }
        zone.commit(end, false);
        zone.logging = true;
        let this = Arc::clone(self);
        deferred.run(async move {
            let persisted = this.members.failures_persisted("write").await;
            this.parity_logged(id, end, persisted);
        });
    }

    /// The record of the parity of a stripe whose blocks `start..end` are new.
    pub(crate) fn partial(
        &self,
        zone: &Zone,
        id: ZoneId,
        stripe: Stripe,
        start: Blocks,
        end: Blocks,
    ) -> Body {
        let ranges = self.ctx.layout.rows(stripe, start, end);
        let mut rows = BufMut::with_capacity(self.ctx.bytes(ranges.iter().map(|r| r.end - r.start).sum()));
        for range in ranges {
            let part = zone.parity.get(self.ctx.bytes(range.start)..self.ctx.bytes(range.end));
            rows.extend_from_slice(part.expect("memory holds the parity of the open stripe"));
        }
        Body::PartialParity { zone: id, generation: zone.generation, start, end, rows: rows.freeze() }
    }

    /// The write of partial parity that covers the blocks below `end` ended. The next record of the zone may begin.
    fn parity_logged(self: &Arc<Self>, id: ZoneId, end: Blocks, judged: Result<(), Error>) {
        self.zones.change(id, |zone, deferred| {
            zone.logging = false;
            self.end_commit(zone, id, end, &judged);
            self.log_parity(zone, id, deferred);
            self.release(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// A checkpoint contains the partial parity that covers the blocks below `end`, or the parity is not needed any more.
    pub(crate) fn commit_ended(self: &Arc<Self>, id: ZoneId, end: Blocks, judged: &Result<(), Error>) {
        self.zones.change(id, |zone, deferred| {
            self.end_commit(zone, id, end, judged);
            self.release(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// Ends the commit that covers the blocks below `end`; a failure poisons the zone.
    fn end_commit(&self, zone: &mut Zone, id: ZoneId, end: Blocks, judged: &Result<(), Error>) {
        self.parity_landed(zone, id, end);
        match judged {
            Ok(()) => zone.commit_landed(end),
            Err(e) => zone.poison = zone.poison.take().or_else(|| Some(e.duplicate())),
        }
    }

    /// The log that a zone waited for has room again, or its drive failed.
    pub(crate) fn room_freed(self: &Arc<Self>, id: ZoneId) {
        self.zones.change(id, |zone, deferred| {
            zone.logging = false;
            self.log_parity(zone, id, deferred);
            self.release(zone, id, deferred);
        });
    }
}
