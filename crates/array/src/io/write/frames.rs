//! Frames (ADR 0022): for each write the blocks and the checksum, in the logs of one drive more than the stripes have parities,
//! so that a mount can tell whole writes from torn ones.
//!
//! Frames go out with the next record of partial parity of their zone: as many as fit its last block cost nothing there, and one
//! block in the log of each other drive. Without such a record, frames go out in records of their own.

use std::cmp::Reverse;
use std::sync::Arc;

use zoned::{Blocks, Buf, Durability, Error, ZoneId};

use super::Writes;
use crate::deferred::Deferred;
use crate::format::crc32c;
use crate::format::frames::{self, Frame};
use crate::format::record::Body;
use crate::layout::slots::Slots;
use crate::layout::{Role, Slot};
use crate::member::drive_ios::DriveIos;
use crate::zone::Zone;
use crate::zone::frames::Frames;

/// Blocks of a record of frames.
const RECORD_BLOCKS: u64 = 1;

/// Frames that lie in a record of partial parity, and the drives with their other copies, whose logs have reserved the room.
pub(super) struct JoinedFrames {
    frames: Vec<Frame>,
    others: Vec<Slot>,
}

impl JoinedFrames {
    fn body(&self, parity: Option<Body>) -> Body {
        Body::Frames { frames: self.frames.clone(), parity: parity.map(Box::new) }
    }

    /// The record of the partial parity `parity` with the frames.
    pub(super) fn around(joined: Option<&JoinedFrames>, parity: Body) -> Body {
        match joined {
            Some(joined) => joined.body(Some(parity)),
            None => parity,
        }
    }
}

impl Writes {
    /// Adds the frame of a new write, if the array's writes are atomic.
    pub(super) fn add_frame(&self, zone: &mut Zone, id: ZoneId, start: Blocks, end: Blocks, data: &Buf) {
        let generation = zone.generation;
        if let Some(frames) = &mut zone.frames {
            let crc = crc32c(&[data]);
            frames.push(Frame { zone: id, generation, start, end, crc });
        }
    }

    /// The drives that get the next frames of a zone: first `slot`, if one is given, then those that the zone's consecutive writes
    /// used longest ago and use last from now on.
    fn frame_slots(&self, zone: &Zone, id: ZoneId, slot: Option<Slot>) -> Vec<Slot> {
        let layout = &self.ctx.layout;
        let last = layout.locate(Blocks(zone.pointer.0.saturating_sub(1))).role;
        // Consecutive units of data lie on consecutive roles.
        let distance = |role: &Role| {
            let ahead = (role.0 + layout.width - last.0) % layout.width;
            Reverse(ahead.min(layout.width - ahead))
        };
        let mut roles: Vec<Role> = layout.roles().collect();
        roles.sort_by_key(distance);
        let others = roles.into_iter().filter_map(|role| Some(self.members.part(id, role)?.slot()));
        let others = others.filter(|other| Some(*other) != slot && self.members.member(*other).is_good());
        let copies = if self.ctx.rules.logs_all_frame_copies() { layout.parities().count() + 1 } else { 1 };
        slot.into_iter().chain(others).take(copies).collect()
    }

    /// Reserves room for a record of frames in the logs of `slots`. False if one has none: nothing is reserved then, and the
    /// frames wait until the log has moved.
    fn reserve_frames(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        slots: &[Slot],
        deferred: &mut Deferred,
    ) -> bool {
        for (n, slot) in slots.iter().enumerate() {
            if self.members.member(*slot).reserve_or_wait(RECORD_BLOCKS, id) {
                continue;
            }
            for slot in slots.get(..n).unwrap_or_default() {
                self.members.member(*slot).unreserve(RECORD_BLOCKS);
            }
            if let Some(frames) = &mut zone.frames {
                frames.waiting = true;
            }
            self.members.roll(*slot, deferred);
            return false;
        }
        true
    }

    /// Takes pending frames that go out with a record of partial parity in the log of `slot`.
    pub(super) fn join_frames(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        slot: Slot,
        deferred: &mut Deferred,
    ) -> Option<JoinedFrames> {
        if !zone.frames.as_ref()?.may_be_logged() {
            return None;
        }
        let mut slots = self.frame_slots(zone, id, Some(slot));
        slots.retain(|other| *other != slot);
        if !self.reserve_frames(zone, id, &slots, deferred) {
            return None;
        }
        let most = frames::per_block(self.ctx.geometry.block_size);
        Some(JoinedFrames { frames: zone.frames.as_mut()?.take(most), others: slots })
    }

    /// The record of partial parity was not written: its frames are pending again.
    pub(super) fn undo_join(&self, zone: &mut Zone, joined: Option<JoinedFrames>) {
        let Some(JoinedFrames { frames, others }) = joined else { return };
        others.iter().for_each(|slot| self.members.member(*slot).unreserve(RECORD_BLOCKS));
        if let Some(known) = &mut zone.frames {
            known.put_back(frames);
        }
    }

    /// The record of partial parity with the frames was submitted: submits their other copies. Returns the number of the batch.
    pub(super) fn log_joined_frames(
        self: &Arc<Self>,
        zone: &mut Zone,
        id: ZoneId,
        joined: Option<JoinedFrames>,
        deferred: &mut Deferred,
    ) -> Option<u64> {
        let joined = joined?;
        let copies = 1 + u32::from(!joined.others.is_empty());
        let end = joined.frames.last()?.end;
        let batch = zone.frames.as_mut()?.begin_batch(end, copies);
        if !joined.others.is_empty() {
            self.submit_frames(id, &joined.body(None), &joined.others, batch, deferred);
        }
        Some(batch)
    }

    /// Logs pending frames in records of their own, as far as they are due.
    pub(super) fn log_frames(self: &Arc<Self>, zone: &mut Zone, id: ZoneId, deferred: &mut Deferred) {
        while zone.poison.is_none() && zone.frames.as_ref().is_some_and(Frames::is_due) {
            if self.members.is_broken() {
                zone.poison = Some(self.members.broken_error("write").in_zone(id));
                return;
            }
            let slots = self.frame_slots(zone, id, None);
            if !self.reserve_frames(zone, id, &slots, deferred) {
                return;
            }
            let most = frames::per_block(self.ctx.geometry.block_size);
            let Some(known) = &mut zone.frames else { return };
            let joined = JoinedFrames { frames: known.take(most), others: Vec::new() };
            let Some(last) = joined.frames.last() else { return };
            let batch = known.begin_batch(last.end, 1);
            self.submit_frames(id, &joined.body(None), &slots, batch, deferred);
        }
    }

    /// Submits a record of frames to the logs of `slots`, which have reserved the room.
    fn submit_frames(
        self: &Arc<Self>,
        id: ZoneId,
        body: &Body,
        slots: &[Slot],
        batch: u64,
        deferred: &mut Deferred,
    ) {
        let mut ios = DriveIos::default();
        for slot in slots {
            let member = self.members.member(*slot);
            ios.push(*slot, member.append_reserved(body, self.ctx.geometry.block_size, Durability::Cached));
            self.members.roll_early(*slot, deferred);
        }
        let this = Arc::clone(self);
        deferred.run(async move {
            let slots = ios.slots();
            let failures = ios.join().await;
            let judged = this.failures.judge_writes(id, failures).await;
            this.frames_logged(id, batch, slots, judged);
        });
    }

    /// The write of a batch's record ended.
    fn frames_logged(self: &Arc<Self>, id: ZoneId, batch: u64, slots: Slots, judged: Result<(), Error>) {
        self.zones.change(id, |zone, deferred| {
            if let Err(e) = judged {
                zone.poison = zone.poison.take().or(Some(e));
            }
            self.stamp_slots(zone, slots, Durability::Cached);
            self.frame_copy_landed(zone, Some(batch));
            self.log_frames(zone, id, deferred);
            self.release(zone, id, deferred);
        });
        self.zones.begin_queued(id);
    }

    /// Notes that a record with frames of `batch` has landed.
    pub(super) fn frame_copy_landed(&self, zone: &mut Zone, batch: Option<u64>) {
        if let Some((frames, batch)) = zone.frames.as_mut().zip(batch) {
            frames.copy_landed(batch);
        }
    }
}
