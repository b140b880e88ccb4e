//! Partial parity: the parities of a stripe that is not full, each in the log of the drive that the parity belongs to. Every parity
//! has records of its own, so that a log without room holds up no record of another log.

use std::sync::Arc;

use zoned::{Blocks, BufMut, Durability, Error, ZoneId};

use super::Writes;
use super::frames::JoinedFrames;
use crate::deferred::Deferred;
use crate::format::record::Body;
use crate::layout::{Parity, Stripe};
use crate::member::NoRoom;
use crate::membership::ParityCommit;
use crate::zone::Zone;

impl Writes {
    /// Logs the parity of the blocks of the open stripe that no commit covers yet. One record of a zone is in flight at a
    /// time: blocks that are written meanwhile are covered by the next record, or by the stripe's full parity.
    pub(crate) fn log_parity(self: &Arc<Self>, zone: &mut Zone, id: ZoneId, deferred: &mut Deferred) {
        self.log_new_parity(zone, id, false, deferred);
    }

    /// Logs parity as [`log_parity`](Writes::log_parity) does. `parallel`: beside the zone's records in flight.
    pub(super) fn log_new_parity(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        parallel: bool,
        deferred: &mut Deferred,
    ) {
        for parity in self.ctx.layout.parities() {
            self.log_one_parity(zone, id, parity, parallel, deferred);
        }
        self.log_frames(zone, id, deferred);
    }

    fn log_one_parity(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        parity: Parity,
        parallel: bool,
        deferred: &mut Deferred,
    ) {
        let coverage = zone.coverage(parity);
        let waits = if parallel { coverage.waiting } else { coverage.is_logging() };
        let is_covered = coverage.logged >= zone.pointer && coverage.corrects.is_none();
        if waits || is_covered || zone.poison.is_some() || zone.appends.are_reordered() {
            return;
        }
        if self.members.is_broken() {
            zone.poison = Some(self.members.broken_error("write").in_zone(id));
            return;
        }
        let layout = &self.ctx.layout;
        let Some(stripe) = zone.open_stripe(layout) else { return };
        let (start, end) = (zone.coverage(parity).logged.max(layout.start(stripe)), zone.pointer);
        if !parallel && zone.has_flight_below(layout.start(stripe)) {
            // No block of the stripe can be acknowledged before the lower writes have landed, and the stripe
            // may become full meanwhile. `landed` calls this function again.
            return;
        }
        let Some(part) = self.members.part(id, layout.parity(stripe, parity)) else { return };
        let (member, slot) = (part.member(), part.slot());
        let rules = self.ctx.rules;
        if !rules.logs_partial_parity() || parity == Parity::Q && !rules.logs_second_parity() {
            zone.coverage_mut(parity).corrects = None;
            return zone.coverage_mut(parity).commit(end, true);
        }
        if !member.is_good() {
            return self.commit_without_parity(zone, id, parity, end, deferred);
        }
        let joined = self.join_frames(zone, id, slot, deferred);
        let corrects = zone.coverage(parity).corrects;
        let io = {
            let mut log = member.log.lock();
            // The blocks below the corrected ones may have no record but one in a checkpoint, which does not count any more.
            let start = if corrects.is_some() { layout.start(stripe) } else { start };
            let body = self.partial(zone, id, (stripe, parity), start, end);
            let body = match corrects {
                Some(above) => {
                    Body::Reorder { above: above.max(layout.start(stripe)), parity: Box::new(body) }
                }
                None => JoinedFrames::around(joined.as_ref(), body),
            };
            if body.blocks(self.ctx.geometry.block_size) > log.blocks_left() {
                // Without room in the log, `room_freed` goes on after the log roll.
                zone.coverage_mut(parity).waiting = true;
                log.waiting.push((id, Some(parity)));
                None
            } else if parallel {
                Some(member.append_unordered(&mut log, &body))
            } else {
                Some(member.append_to(&mut log, &body, false, Durability::Cached))
            }
        };
        match io {
            None => {
                self.undo_join(zone, joined);
                self.members.roll(slot, deferred);
            }
            Some(Ok(Some(io))) => {
                let held = self.write_held_parity(zone, id, parity);
                let coverage = zone.coverage_mut(parity);
                coverage.commit(end, false);
                (coverage.records, coverage.corrects) = (coverage.records + 1, None);
                let commit = ParityCommit { zone: id, generation: zone.generation, parity, end };
                let framed = self.log_joined_frames(zone, id, joined, deferred);
                let this = Arc::clone(self);
                deferred.run(async move {
                    let failure = io.await.err().map(|e| (slot, e));
                    let mut judged = this.failures.judge_writes(id, failure.into_iter().collect()).await;
                    if let Some(held) = held {
                        judged = judged.and(held.await);
                    }
                    this.parity_logged(commit, framed, judged);
                });
                self.members.roll_early(slot, deferred);
            }
            // The drive of the parity failed since the check above.
            Some(Ok(None)) => {
                self.undo_join(zone, joined);
                self.commit_without_parity(zone, id, parity, end, deferred);
            }
            Some(Err(NoRoom)) => unreachable!("the room was checked under the same lock"),
        }
    }

    /// The drive of the parity has failed: the data alone is committed, once the other superblocks contain the failure.
    fn commit_without_parity(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        parity: Parity,
        end: Blocks,
        deferred: &mut Deferred,
    ) {
        let coverage = zone.coverage_mut(parity);
        (coverage.held, coverage.corrects) = (None, None);
        if !self.members.is_persisting() {
            return coverage.commit(end, true);
        }
        coverage.commit(end, false);
        coverage.records += 1;
        let commit = ParityCommit { zone: id, generation: zone.generation, parity, end };
        let this = Arc::clone(self);
        deferred.run(async move {
            let persisted = this.members.failures_persisted("write").await;
            this.parity_logged(commit, None, persisted);
        });
    }

    /// The record of a parity of a stripe whose blocks `start..end` are new.
    pub(crate) fn partial(
        &self,
        zone: &Zone,
        id: ZoneId,
        (stripe, parity): (Stripe, Parity),
        start: Blocks,
        end: Blocks,
    ) -> Body {
        let ranges = self.ctx.layout.rows(stripe, start, end);
        let mut rows = BufMut::with_capacity(self.ctx.bytes(ranges.iter().map(|r| r.end - r.start).sum()));
        for range in ranges {
            let part = zone.parity.get(parity, self.ctx.bytes(range.start)..self.ctx.bytes(range.end));
            rows.extend_from_slice(part.expect("memory holds the parity of the open stripe"));
        }
        Body::PartialParity { parity, zone: id, generation: zone.generation, start, end, rows: rows.freeze() }
    }

    /// The write of the partial parity of a commit ended. The next record of the zone may begin. `framed`: the batch of frames in the
    /// record.
    fn parity_logged(self: &Arc<Self>, commit: ParityCommit, framed: Option<u64>, judged: Result<(), Error>) {
        let id = commit.zone;
        self.zones.change(id, |zone, deferred| {
            // The reset of a poisoned zone waits for no record of parity: a record may end that belongs to the life before the reset.
            if zone.generation != commit.generation {
                return;
            }
            let coverage = zone.coverage_mut(commit.parity);
            coverage.records = coverage.records.saturating_sub(1);
            self.end_commit(zone, commit, &judged);
            self.frame_copy_landed(zone, framed);
            self.log_parity(zone, id, deferred);
            self.release(zone, id, deferred);
            self.settle(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// A checkpoint contains the partial parity of a commit, or the parity is not needed any more.
    pub(crate) fn commit_ended(self: &Arc<Self>, commit: ParityCommit, judged: &Result<(), Error>) {
        let id = commit.zone;
        self.zones.change(id, |zone, deferred| {
            if zone.generation != commit.generation {
                return;
            }
            let coverage = zone.coverage_mut(commit.parity);
            coverage.checkpoints = coverage.checkpoints.saturating_sub(1);
            self.end_commit(zone, commit, judged);
            self.release(zone, id, deferred);
            self.settle(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// Ends a commit; a failure poisons the zone.
    fn end_commit(&self, zone: &mut Zone, commit: ParityCommit, judged: &Result<(), Error>) {
        let ParityCommit { zone: id, parity, end, .. } = commit;
        self.parity_landed(zone, id, parity, end);
        match judged {
            Ok(()) => zone.coverage_mut(parity).commit_landed(end),
            Err(e) => zone.poison = zone.poison.take().or_else(|| Some(e.duplicate())),
        }
    }

    /// The log that a zone waited for has room again, or its drive failed. `parity`: the parity that waited; `None`: frames did.
    pub(crate) fn room_freed(self: &Arc<Self>, id: ZoneId, parity: Option<Parity>) {
        let corrects = self.zones.change(id, |zone, deferred| {
            let corrects = parity.is_some_and(|parity| zone.coverage(parity).corrects.is_some());
            match (parity, &mut zone.frames) {
                (Some(parity), _) => zone.coverage_mut(parity).waiting = false,
                (None, Some(frames)) => frames.waiting = false,
                (None, None) => {}
            }
            self.log_parity(zone, id, deferred);
            self.release(zone, id, deferred);
            corrects
        });
        if corrects {
            // Writes waited for the correction.
            self.zones.begin_queued(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use units::{VirtualDriver, block_on};
    use zoned::emu::{Emu, EmuOptions, Latency};
    use zoned::{Action, Buf, Bytes, Driver, ErrorKind, ZonedDevice};

    use super::*;
    use crate::{Array, CreateOptions, OpenOptions, create};

    #[test]
    fn a_commit_of_the_life_before_a_reset_ends_nothing() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = |n: u32| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                zones: 6,
                zone_size: Blocks(64),
                zone_capacity: Blocks(64),
                max_open: Some(8),
                max_active: Some(8),
                latency: Latency::all(std::time::Duration::from_micros(50)),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
        };
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..3).map(drive).collect();
        block_on(&*driver, async {
            let options = CreateOptions { stripe_unit: Bytes(8192), ..CreateOptions::default() };
            create(&drives, &options).await.expect("created");
            let array = Array::open(drives, OpenOptions::default()).await.expect("opened");
            let (device, id): (&dyn ZonedDevice, _) = (&*array, ZoneId(1));
            let start = device.geometry().start(id);
            let data = Buf::copy_from(&vec![7; 4096]);
            device.write(start, data.clone(), Durability::Cached).await.expect("written");
            let generation = array.core.zones.zone(id).generation;
            device.zone(id, Action::Reset).await.expect("reset");
            let next = device.write(start, data, Durability::Cached);
            let late = ParityCommit { zone: id, generation, parity: Parity::P, end: Blocks(1) };
            let failed = Err(array.core.ctx.error(ErrorKind::Invalid, "write"));
            array.core.checkpoints.writes.commit_ended(late, &failed);
            array.core.checkpoints.writes.parity_logged(late, None, failed);
            assert!(array.core.zones.zone(id).poison.is_none());
            assert!(
                array.core.zones.zone(id).coverage(Parity::P).is_logging(),
                "the next life's record is in flight"
            );
            next.await.expect("a failure of the life before fails no write of the next one");
        });
    }
}
