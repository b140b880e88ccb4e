//! Copies one zone to a new drive.
//!
//! Blocks below the acknowledged ones change only by a reset. So whole stripes are copied while the zone is
//! in use, in chunks, several in flight: a row of one drive is the XOR of the row on all other drives, be it
//! data or parity. The zone's I/O waits only for the last stripe or two. The rebuild waits for its turn
//! beside clients before it makes the zone's I/O wait. From then on the zone's writes go to the new drive
//! too. A reset meanwhile restarts the copy.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zoned::{Action, Blocks, BufMut, Durability, Error, ErrorKind, Io, Result, ZoneId, ZoneState, join_all};

use crate::background::job_runner::Runner;
use crate::core::Core;
use crate::degraded::errors::fails_the_drive;
use crate::degraded::failed_zones::{fail_zone, offline_part};
use crate::degraded::reconstruct::is_read_again;
use crate::format::superblock::FEATURE_BAD_ROWS;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::row_set::RowSet;
use crate::layout::xor::xor;
use crate::layout::{Piece, Role, Slot, Stripe};
use crate::member::bad_rows::MAX_BAD_ROWS;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::zone::Work;
use crate::zone::stale_rows::RelocatedParity;

/// The number of a zone's last stripes that are copied while the zone's I/O waits.
const LAST_STRIPES: u64 = 2;
/// Rounds in which a copy follows the write pointer of a zone that clients write. Then other zones are copied
/// first.
const MAX_CATCH_UP_ROUNDS: u32 = 4;

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
    pub device: MemberDrive,
    /// Bad rows of the zone that is being copied.
    bad: Mutex<RowSet>,
    /// The number of bad rows that the rebuild has recorded, over all zones.
    given_up: AtomicU64,
}

/// How much of a zone in use a rebuild can copy.
struct ZoneProgress {
    generation: u64,
    /// Rows of the zone whose content for the new drive is final.
    rows: u64,
}

fn zone_progress(core: &Core, id: ZoneId) -> ZoneProgress {
    let zone = core.zones.zone(id);
    let end = zone.acknowledged().min(zone.readable());
    let rows = core.ctx.layout.row(core.ctx.layout.stripe_of(end)).min(core.ctx.layout.part_rows);
    ZoneProgress { generation: zone.generation, rows: if zone.is_gone() { 0 } else { rows } }
}

/// Rows of a zone that the new drive of `slot` needs: none while the zone is being reset.
pub(crate) fn valid_rows(core: &Core, id: ZoneId, slot: Slot) -> u64 {
    let zone = core.zones.zone(id);
    if zone.is_gone() { 0 } else { core.ctx.layout.used(core.ctx.placement.role(id, slot), zone.readable()) }
}

impl RebuildTarget {
    pub(super) fn new(slot: Slot, device: MemberDrive) -> RebuildTarget {
        RebuildTarget { slot, device, bad: Mutex::default(), given_up: AtomicU64::new(0) }
    }

    /// The part of a zone that the new drive gets.
    fn role(&self, core: &Core, id: ZoneId) -> Role {
        core.ctx.placement.role(id, self.slot)
    }

    /// The new drive's part of a zone.
    fn part_on_new_drive(&self, id: ZoneId) -> PhysicalZone<'_> {
        PhysicalZone::part(&*self.device, id)
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
        match self.fill_zone(runner, id, kept, tries).await {
            Err(e) if e.kind() == ErrorKind::ZoneOffline => {
                // An offline zone of the new drive ends the rebuild.
                let Some(slot) = offline_part(&core, id).await else { return Err(e) };
                tracing::error!(zone = id.0, error = %e, "the rebuild goes on without the zone");
                core.zones.report_worn(id, slot, ZoneState::Offline);
                fail_zone(&core, id).await.map(|()| CopyResult::Again)
            }
            result => result,
        }
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
        let kept = kept.filter(|kept| kept.generation == generation).and_then(|kept| kept.end);
        let mut row = match kept {
            Some(end) => {
                *self.bad.lock() = core.members.member(self.slot).bad_rows.of(id);
                core.ctx.layout.used(self.role(&core, id), end)
            }
            None => {
                *self.bad.lock() = RowSet::default();
                self.part_on_new_drive(id).clear().await?;
                0
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
                let rest = valid_rows(&core, id, self.slot).saturating_sub(row);
                if rest > 0 && !runner.wait_for_turn(rest).await {
                    return Err(self.early_end_error(&core));
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
            if let Err(e) = self.copy_whole_stripes(runner, id, row..seen.rows, true).await {
                // Copy errors of a zone that was reset meanwhile do not count.
                return if core.zones.was_reset(id, generation) { Ok(CopyResult::Again) } else { Err(e) };
            }
            row = seen.rows;
        }
        let paused: Io<()> = core.zones.begin_or_queue(id, Work::Pause).typed();
        paused.await?;
        let result = self.copy_last_rows(runner, id, row, generation).await;
        {
            let mut zone = core.zones.zone(id);
            zone.busy = false;
            if let Ok(CopyResult::Done(_)) = &result {
                core.members.member(self.slot).set_has_zone(id, true);
                // Until now the slot had the bad rows of the old drive, whose parity may be in memory.
                core.members.member(self.slot).bad_rows.set(id, std::mem::take(&mut *self.bad.lock()));
                // The new drive holds all content of the zone in place, so that none of its rows is stale.
                zone.stale.forget(self.role(&core, id));
                let whole =
                    |stripe: &Stripe, parity: &RelocatedParity| parity.end == core.ctx.layout.end(*stripe);
                let ours = |stripe: &Stripe| core.ctx.layout.parity(*stripe) == self.role(&core, id);
                zone.relocated.retain(|stripe, parity| !(ours(stripe) && whole(stripe, parity)));
            }
        }
        core.zones.begin_queued(id);
        result
    }

    /// Copies the last rows of a zone to the new drive. The zone's I/O waits meanwhile.
    async fn copy_last_rows(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        row: u64,
        generation: u64,
    ) -> Result<CopyResult> {
        let core = Arc::clone(&runner.core);
        let (layout, role) = (core.ctx.layout, self.role(&core, id));
        let (end, full, over) = {
            let zone = core.zones.zone(id);
            if zone.generation != generation {
                return Ok(CopyResult::Again);
            }
            let end = match zone.is_gone() {
                true => Blocks::ZERO,
                false => zone.acknowledged().min(zone.readable()),
            };
            let full = zone.state == ZoneState::Full;
            (end, full, full || zone.state == ZoneState::ReadOnly)
        };
        let rows = layout.used(role, end);
        let last = layout.stripe_of(end);
        let whole = layout.row(last).min(rows);
        if row < whole {
            self.copy_whole_stripes(runner, id, row..whole, false).await?;
        }
        let from = row.max(whole);
        if from < rows {
            // The rows to copy of a stripe that is not whole: data, or final parity.
            let first = layout.row(last);
            let at = from - first;
            let part = match layout.index_on(last, role) {
                Some(index) => {
                    let offset = layout.unit_start(last, index).plus(Blocks(at));
                    let piece = Piece { role, stripe: last, index, row: at, offset, len: rows - from };
                    self.reconstruct_data(&core, id, piece).await?
                }
                None => self.compute_parity(&core, id, last, end, at..rows - first).await?,
            };
            self.write(id, from, part).await?;
            runner.job.add(core.ctx.bytes(rows - from) as u64);
        }
        // A zone that takes no more writes keeps a partial last stripe: the parity of that stripe is
        // relocated.
        let torn = over && end > layout.start(last) && end < layout.capacity();
        if torn && layout.parity(last) == role {
            let unit = self.compute_parity(&core, id, last, end, 0..layout.unit_of(last)).await?;
            core.zones.zone(id).relocated.insert(last, RelocatedParity { end, unit: unit.freeze() });
        }
        if full && rows < self.device.geometry().zone_capacity.0 {
            self.part_on_new_drive(id).act(Action::Finish).await?;
        }
        Ok(CopyResult::Done(ZoneEntry { generation, end: Some(end) }))
    }

    fn write(&self, id: ZoneId, row: u64, data: BufMut) -> Io<()> {
        self.part_on_new_drive(id).write(row, data.freeze(), Durability::Cached)
    }

    /// Copies rows of whole stripes to the new drive. `paced`: at the pace that respects clients. No I/O of
    /// the copy is in flight when this returns.
    async fn copy_whole_stripes(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        rows: Range<u64>,
        paced: bool,
    ) -> Result<()> {
        let mut writes = VecDeque::new();
        let result = self.copy_rows(runner, id, rows, paced, &mut writes).await;
        for (_, io) in writes {
            // After a failed copy the writes in flight must end before the new drive's zone is reset.
            let _landed_or_not = io.await;
        }
        result
    }

    async fn copy_rows(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        rows: Range<u64>,
        paced: bool,
        writes: &mut VecDeque<(u64, Io<()>)>,
    ) -> Result<()> {
        let core = Arc::clone(&runner.core);
        let placement = core.ctx.placement;
        let others = placement.slots().filter(|slot| *slot != self.slot);
        let others: Vec<Role> = others.map(|slot| placement.role(id, slot)).collect();
        let most = self.device.geometry().max_transfer.0;
        let mut reads: VecDeque<(u64, u64, Vec<Io<BufMut>>)> = VecDeque::new();
        let mut next = rows.start;
        while next < rows.end || !reads.is_empty() {
            loop {
                let (chunk, depth) = runner.next_chunk_rows();
                if next >= rows.end || reads.len() >= depth {
                    break;
                }
                let count = chunk.min(most).min(rows.end - next);
                if (paced && !runner.wait_for_turn(count).await) || runner.job.is_ended_early() {
                    return Err(self.early_end_error(&core));
                }
                let read = |role: &Role| core.reconstruct.read_rows(id, *role, next, count);
                let ios: Option<Vec<Io<BufMut>>> = others.iter().map(read).collect();
                reads.push_back((next, count, ios.ok_or_else(|| core.members.broken_error("rebuild"))?));
                next += count;
            }
            let Some((row, count, ios)) = reads.pop_front() else { continue };
            let mut sum: Option<BufMut> = None;
            for (role, read) in others.iter().zip(join_all(ios).await) {
                let data = match read {
                    Ok(mut data) => {
                        core.reconstruct.apply_memory(id, *role, row, &mut data);
                        Ok(data)
                    }
                    Err(e) if is_read_again(e.kind()) => {
                        core.reconstruct.rows_of(id, *role, row, count).await
                    }
                    Err(e) => Err(e),
                };
                let data = match data {
                    Ok(data) => data,
                    Err(e) if e.kind() == ErrorKind::Media => {
                        sum = Some(self.reconstruct_one_by_one(&core, id, row, count, &others).await?);
                        break;
                    }
                    Err(e) => {
                        let other = placement.slot(id, *role);
                        return Err(unrecoverable_row_error(&core, id, self.slot, other, e).await);
                    }
                };
                match &mut sum {
                    Some(sum) => xor(sum, &data),
                    None => sum = Some(data),
                }
            }
            while writes.len() >= runner.next_chunk_rows().1 {
                self.await_write(runner, writes.pop_front()).await?;
            }
            let data = sum.unwrap_or_default();
            core.ctx.metrics.rebuilt(data.len());
            writes.push_back((count, self.write(id, row, data)));
        }
        while !writes.is_empty() {
            self.await_write(runner, writes.pop_front()).await?;
        }
        Ok(())
    }

    /// Reconstructs rows for the new drive one by one; rows that cannot be reconstructed become bad rows.
    async fn reconstruct_one_by_one(
        &self,
        core: &Arc<Core>,
        id: ZoneId,
        row: u64,
        count: u64,
        others: &[Role],
    ) -> Result<BufMut> {
        let mut rows = BufMut::with_capacity(core.ctx.bytes(count));
        for row in row..row + count {
            let mut sum = BufMut::zeroed(core.ctx.bytes(1));
            for role in others {
                match core.reconstruct.rows_of(id, *role, row, 1).await {
                    Ok(data) => xor(&mut sum, &data),
                    Err(e) => {
                        if let Err(e) = self.add_bad_row(core, id, row, e) {
                            let other = core.ctx.placement.slot(id, *role);
                            return Err(unrecoverable_row_error(core, id, self.slot, other, e).await);
                        }
                        sum.fill(0);
                        break;
                    }
                }
            }
            rows.extend_from_slice(&sum);
        }
        Ok(rows)
    }

    /// Reconstructs data blocks of a stripe that is not whole, for the new drive; row by row if some fail.
    async fn reconstruct_data(&self, core: &Arc<Core>, id: ZoneId, piece: Piece) -> Result<BufMut> {
        match core.reconstruct.piece_now(id, piece).await {
            Err(e) if e.kind() == ErrorKind::Media => {}
            part => return part,
        }
        let mut rows = BufMut::with_capacity(core.ctx.bytes(piece.len));
        for n in 0..piece.len {
            let one = Piece { row: piece.row + n, offset: piece.offset.plus(Blocks(n)), len: 1, ..piece };
            match core.reconstruct.piece_now(id, one).await {
                Ok(row) => rows.extend_from_slice(&row),
                Err(e) => {
                    self.add_bad_row(core, id, core.ctx.layout.row(piece.stripe) + one.row, e)?;
                    rows.extend_from_slice(&BufMut::zeroed(core.ctx.bytes(1)));
                }
            }
        }
        Ok(rows)
    }

    /// Computes parity rows of the data of a stripe below `end`; row by row if some fail.
    async fn compute_parity(
        &self,
        core: &Arc<Core>,
        id: ZoneId,
        stripe: Stripe,
        end: Blocks,
        rows: Range<u64>,
    ) -> Result<BufMut> {
        match core.reconstruct.parity(id, stripe, end, rows.clone()).await {
            Err(e) if e.kind() == ErrorKind::Media => {}
            sum => return sum,
        }
        let mut unit = BufMut::with_capacity(core.ctx.bytes(rows.end - rows.start));
        for row in rows {
            match core.reconstruct.parity(id, stripe, end, row..row + 1).await {
                Ok(row) => unit.extend_from_slice(&row),
                Err(e) => {
                    self.add_bad_row(core, id, core.ctx.layout.row(stripe) + row, e)?;
                    unit.extend_from_slice(&BufMut::zeroed(core.ctx.bytes(1)));
                }
            }
        }
        Ok(unit)
    }

    /// Makes a row of the new drive bad: its place holds zeros. Returns the error instead if it is no media
    /// error, or if there are too many bad rows.
    fn add_bad_row(&self, core: &Core, id: ZoneId, row: u64, error: Error) -> Result<()> {
        let records = core.members.config.lock().incompat & FEATURE_BAD_ROWS != 0;
        if error.kind() != ErrorKind::Media || core.members.is_broken() || !records {
            return Err(error);
        }
        if self.given_up.fetch_add(1, Ordering::Relaxed) >= MAX_BAD_ROWS {
            return Err(error);
        }
        tracing::error!(slot = self.slot.0, zone = id.0, row, %error, "the row cannot be reconstructed: its content is lost");
        self.bad.lock().insert(row..row + 1);
        Ok(())
    }

    async fn await_write(&self, runner: &Runner, write: Option<(u64, Io<()>)>) -> Result<()> {
        let Some((rows, io)) = write else { return Ok(()) };
        io.await?;
        runner.job.add(runner.core.ctx.bytes(rows) as u64);
        Ok(())
    }

    /// The error of a rebuild that ends early.
    pub(crate) fn early_end_error(&self, core: &Core) -> Error {
        let (kind, why) = if core.members.member(self.slot).is_aborted() {
            (
                ErrorKind::Gone,
                "the new drive failed: the array is as it was before, without a drive. Replace it by another one",
            )
        } else {
            (ErrorKind::Cancelled, "the array is as it was before, without a drive")
        };
        core.ctx.error(kind, "rebuild").because(why)
    }
}

/// The error of a row that two drives lack.
pub(crate) async fn unrecoverable_row_error(
    core: &Arc<Core>,
    id: ZoneId,
    slot: Slot,
    other: Slot,
    error: Error,
) -> Error {
    if fails_the_drive(error.kind()) {
        // If the failure breaks the array, the error of the broken array is returned.
        return match core.members.fail(other, &error).await {
            Err(e) => e,
            Ok(()) => error,
        };
    }
    let words = match error.kind() {
        ErrorKind::Media => format!(
            "drive {} cannot read what drive {} is to be rebuilt from: copy what can still be read of zone {id}, reset \
             that zone, and rebuild again",
            other.0, slot.0
        ),
        ErrorKind::ZoneOffline => format!(
            "drive {0}'s part of zone {id} is offline, and drive {1} is gone: what the zone holds is lost",
            other.0, slot.0
        ),
        _ => format!(
            "drive {} could not be read while drive {} was rebuilt: nothing is lost; order the rebuild again",
            other.0, slot.0
        ),
    };
    error.because(words)
}
