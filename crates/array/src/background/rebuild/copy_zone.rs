//! Copies one zone to a new drive.
//!
//! Blocks below the acknowledged ones change only by a reset. So whole stripes are copied while the zone is
//! in use, in chunks, several in flight: a row of one drive follows from the row on other drives, be it
//! data or parity. The zone's I/O waits only for the last stripe or two. The rebuild waits for its turn
//! beside clients before it makes the zone's I/O wait. From then on the zone's writes go to the new drive
//! too. A reset meanwhile restarts the copy.

use std::future::Future;
use std::sync::Arc;

use zoned::{Blocks, BufMut, Durability, ErrorKind, Io, Result, ZoneId, ZoneState};

use crate::background::job_runner::Runner;
use crate::background::part_copy::{CopiedPart, PartCopy, Purpose, ZoneProgress, valid_rows, zone_progress};
use crate::core::Core;
use crate::degraded::failed_zones::{fail_zone, offline_part};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::row_set::RowSet;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::zone::work::Work;

/// The number of a zone's last stripes that are copied while the zone's I/O waits.
const LAST_STRIPES: u64 = 2;
/// Rounds in which a copy follows the write pointer of a zone that clients write. Then other zones are copied
/// first.
const MAX_CATCH_UP_ROUNDS: u32 = 4;

/// Blocks that a rebuild fills with zeros at a time.
const FILL_CHUNK_BLOCKS: u64 = 256;

/// The result of copying one zone to a new drive.
pub(crate) enum CopyResult {
    /// The new drive holds its part of the zone: generation and end of the content.
    Done(ZoneEntry),
    /// Clients write the zone faster than the copy follows: the zone is copied later.
    Later,
    /// The zone was reset during its copy: the copy starts again.
    Again,
}

/// How long a copy follows a zone that clients write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyPatience {
    /// Other zones are copied first if the copy of this one would take long.
    Patient,
    /// The copy follows the zone's write pointer to the end.
    Follows,
    /// Resets ended all earlier copies of the zone: the zone's I/O waits for the whole copy.
    Last,
}

/// The new drive that a rebuild fills for a slot.
pub(crate) struct RebuildTarget {
    slot: Slot,
    pub copy: PartCopy,
}

/// Rows of a zone that the new drive of `slot` needs: none while the zone is being reset.
pub(crate) fn needed_rows(core: &Core, id: ZoneId, slot: Slot) -> u64 {
    core.ctx.places.role(id, slot).map_or(0, |role| valid_rows(core, id, role))
}

impl RebuildTarget {
    pub(super) fn new(slot: Slot, device: MemberDrive) -> RebuildTarget {
        RebuildTarget { slot, copy: PartCopy::new(slot, device, Purpose::Rebuild) }
    }

    /// The part of a zone that the new drive gets; `None` if the zone has no part in the drive's slot.
    fn part(&self, core: &Core, id: ZoneId) -> Option<CopiedPart> {
        let role = core.ctx.places.role(id, self.slot)?;
        Some(CopiedPart { id, role, to: core.ctx.places.place(id, role)?, class: self.copy.class() })
    }

    /// Copies a zone. `kept`: content that the drive holds from an earlier run of the rebuild, so that only
    /// later writes are copied. If the part of another drive is offline, the zone fails.
    pub(crate) async fn fill(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        kept: Option<ZoneEntry>,
        tries: CopyPatience,
    ) -> Result<CopyResult> {
        let core = Arc::clone(&runner.core);
        let generation = core.zones.zone(id).generation;
        match self.fill_zone(runner, id, kept, tries).await {
            Err(e) if e.kind() == ErrorKind::ZoneOffline => {
                let Some(slot) = offline_part(&core, id).await else {
                    // The offline part is one of the zone's last life, or an offline zone of the new drive ends the rebuild.
                    return if core.zones.was_reset(id, generation) { Ok(CopyResult::Again) } else { Err(e) };
                };
                tracing::error!(zone = id.0, error = %e, "the rebuild goes on without the zone");
                core.zones.report_worn(id, slot, ZoneState::Offline);
                fail_zone(&core, id).await.map(|()| CopyResult::Again)
            }
            result => result,
        }
    }

    /// Rows of a zone that the new drive holds from an earlier run of the rebuild, which noted the zone with its content up to
    /// `end`.
    async fn rows_kept(&self, core: &Core, part: CopiedPart, end: Blocks) -> Result<u64> {
        let layout = &core.ctx.layout;
        let used = layout.used(part.role, end);
        let is_full = core.zones.zone(part.id).state == ZoneState::Full;
        // A zone that became full after the note was read lacks the parity of its last stripe.
        let is_longer =
            self.copy.place_of(part).info().await?.is_some_and(|info| info.pointer.0 > part.to.row + used);
        Ok(if is_full && is_longer { layout.used_by_full_zone(part.role, end) } else { used })
    }

    async fn fill_zone(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        kept: Option<ZoneEntry>,
        tries: CopyPatience,
    ) -> Result<CopyResult> {
        let core = Arc::clone(&runner.core);
        let ZoneProgress { generation, .. } = zone_progress(&core, id);
        let Some(part) = self.part(&core, id) else { return self.take_zone_without_part(&core, id).await };
        let kept = kept.filter(|kept| kept.generation == generation).and_then(|kept| kept.end);
        let mut row = match kept {
            Some(end) => {
                self.copy.set_bad_rows(core.members.member(self.slot).bad_rows.of(id));
                self.rows_kept(&core, part, end).await?
            }
            None => {
                self.copy.set_bad_rows(RowSet::default());
                let mut row = 0;
                let begin = async {
                    row = self.clear(&core, part).await?;
                    Ok(())
                };
                if !self.while_held(&core, part, begin).await? {
                    return Ok(CopyResult::Again);
                }
                row
            }
        };
        let (mut rounds, mut last) = (0, u64::MAX);
        loop {
            let seen = zone_progress(&core, id);
            if seen.generation != generation {
                return Ok(CopyResult::Again);
            }
            let left = seen.rows.saturating_sub(row);
            if tries == CopyPatience::Last {
                break;
            }
            if left <= LAST_STRIPES * core.ctx.layout.unit {
                // The rebuild waits for its turn while the zone is in use, so that the zone's I/O waits for
                // the copy only.
                let rest = needed_rows(&core, id, self.slot).saturating_sub(row);
                if rest > 0 && !runner.wait_for_turn(rest).await {
                    return Err(self.copy.early_end_error(&core));
                }
                if zone_progress(&core, id).rows.saturating_sub(row) <= LAST_STRIPES * core.ctx.layout.unit {
                    break;
                }
                continue;
            }
            if rounds >= MAX_CATCH_UP_ROUNDS && left > last / 2 && tries == CopyPatience::Patient {
                return Ok(CopyResult::Later);
            }
            (rounds, last) = (rounds + 1, left);
            match self
                .while_held(&core, part, self.copy.copy_whole_stripes(runner, part, row..seen.rows, true))
                .await
            {
                Ok(true) => {}
                Ok(false) => return Ok(CopyResult::Again),
                // Copy errors of a zone that was reset meanwhile do not count.
                Err(_) if core.zones.was_reset(id, generation) => return Ok(CopyResult::Again),
                Err(e) => return Err(e),
            }
            row = seen.rows;
        }
        let paused: Io<()> = core.zones.begin_or_queue(id, Work::Pause { generation: None }).typed();
        paused.await?;
        let result = self.copy.copy_last_rows(runner, part, row, generation).await;
        let result = result.map(|copied| copied.map_or(CopyResult::Again, CopyResult::Done));
        {
            let mut zone = core.zones.zone(id);
            zone.busy = false;
            if let Ok(CopyResult::Done(_)) = &result {
                core.members.member(self.slot).set_has_zone(id, true);
                // Until now the slot had the bad rows of the old drive, whose parity may be in memory.
                core.members.member(self.slot).bad_rows.set(id, self.copy.take_bad_rows());
                // The new drive holds all content of the zone in place, so that none of its rows is stale.
                zone.stale.forget(part.role);
                let is_full = zone.state == ZoneState::Full;
                zone.relocated.retain(|(stripe, parity), unit| {
                    let in_place = is_full || unit.end == core.ctx.layout.end(*stripe);
                    core.ctx.layout.parity(*stripe, *parity) != part.role || !in_place
                });
            }
        }
        core.zones.begin_queued(id);
        result
    }

    /// True if a part that lies below the one of zone `id`, in a physical zone that zones share, is not on the new drive yet.
    pub(super) fn lacks_part_below(&self, core: &Core, id: ZoneId) -> bool {
        let Some((shared, part)) = core.zones.shared().zip(self.part(core, id)) else { return false };
        let member = core.members.member(self.slot);
        shared.all_below(part.to).iter().any(|below| !member.has_zone(*below))
    }

    /// Makes the physical zone of a part ready for the part's rows. Returns the number of rows that are there already: a copy that begins
    /// again behind the part of another zone goes on. Rows below the part whose content does not count any more are zeros.
    async fn clear(&self, core: &Core, part: CopiedPart) -> Result<u64> {
        let Some(shared) = core.zones.shared() else {
            self.copy.place_of(part).clear().await?;
            return Ok(0);
        };
        if shared.is_alone(part.id, part.to) {
            self.copy.place_of(part).clear().await?;
        }
        let device = &self.copy.device;
        let info = self.copy.place_of(part).info().await?;
        if info.is_some_and(|info| info.state == ZoneState::Full) {
            let error = core.ctx.error(ErrorKind::ZoneFull, "rebuild").in_zone(part.id);
            return Err(error.because("the physical zone of the new drive takes no more rows"));
        }
        let mut pointer = info.map_or(0, |info| info.pointer.0);
        let chunk = device.geometry().max_transfer.0.min(FILL_CHUNK_BLOCKS);
        while pointer < part.to.row {
            let rows = chunk.min(part.to.row - pointer);
            let zeros = BufMut::zeroed(core.ctx.bytes(rows)).freeze();
            PhysicalZone::at(&**device, part.to.zone).write(pointer, zeros, Durability::Cached).await?;
            pointer += rows;
        }
        Ok(pointer - part.to.row)
    }

    /// Runs writes of a copy, while the part's physical zone cannot be taken by another zone. False if the zone was reset: with a
    /// stored map it has given up the physical zone, and the copy starts again.
    async fn while_held(
        &self,
        core: &Arc<Core>,
        part: CopiedPart,
        writes: impl Future<Output = Result<()>>,
    ) -> Result<bool> {
        match core.zones.shared() {
            Some(shared) => shared.begin_copy(part.to),
            None => core.zones.free().begin_copy(part.to),
        }
        let is_held = self.part(core, part.id) == Some(part);
        let result = if is_held { writes.await } else { Ok(()) };
        let mut cleared = Ok(());
        if is_held && self.part(core, part.id) != Some(part) {
            // The zone was reset meanwhile, and a write may have landed after the reset of its physical zone. If the new drive fails
            // here, its rebuild ends, and the next rebuild resets its drive first.
            // Parts of other zones in the physical zone stay.
            if core.zones.shared().is_none_or(|shared| shared.is_copy_needless(part.to)) {
                cleared = self.copy.place_of(part).clear().await;
            }
        }
        match core.zones.shared() {
            Some(shared) => shared.end_copy(self.slot),
            None => {
                if let Some(place) = core.zones.free().end_copy() {
                    core.zones.free().give_back(place);
                }
            }
        }
        cleared?;
        result.map(|()| is_held)
    }

    /// Takes a zone that has no part in the new drive's slot: the drive takes the writes of the zone's next life.
    async fn take_zone_without_part(&self, core: &Arc<Core>, id: ZoneId) -> Result<CopyResult> {
        let paused: Io<()> = core.zones.begin_or_queue(id, Work::Pause { generation: None }).typed();
        paused.await?;
        let result = match self.part(core, id) {
            Some(_) => CopyResult::Again,
            None => {
                core.members.member(self.slot).set_has_zone(id, true);
                CopyResult::Done(ZoneEntry { generation: core.zones.zone(id).generation, end: None })
            }
        };
        core.zones.zone(id).busy = false;
        core.zones.begin_queued(id);
        Ok(result)
    }
}
