//! Copies the rows of one part of a zone to another place: to a new drive by a rebuild, or to another physical zone by a move.
//!
//! A rebuild reconstructs the rows from the other parts. A move reads them from the part itself while the part's drive works and can
//! read them, and reconstructs the others.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zoned::{
    Action, Blocks, BufMut, Durability, Error, ErrorKind, Io, IoClass, Result, ZoneId, ZoneState, join_all,
};

use crate::background::job_runner::Runner;
use crate::core::Core;
use crate::degraded::errors::{fails_the_drive, is_transient};
use crate::degraded::reconstruct::is_read_again;
use crate::degraded::whole_stripes::{WholeStripes, needed_parts};
use crate::format::superblock::FEATURE_BAD_ROWS;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::placement::Place;
use crate::layout::row_set::RowSet;
use crate::layout::running_parity::extend_to_whole_stripe;
use crate::layout::{Parity, Piece, Role, Slot, Stripe};
use crate::member::bad_rows::MAX_BAD_ROWS;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;
use crate::metrics::add;
use crate::zone::stale_rows::RelocatedParity;

/// Why parts are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A new drive takes the place of a failed one.
    Rebuild,
    /// A part gets another place.
    Move,
}

/// Copies of parts of zones to one drive.
pub(crate) struct PartCopy {
    /// The slot of the drive that gets the parts.
    slot: Slot,
    pub device: MemberDrive,
    purpose: Purpose,
    /// Bad rows of the part that is being copied.
    bad: Mutex<RowSet>,
    /// The number of bad rows that the copies have recorded, over all zones.
    given_up: AtomicU64,
}

/// The part of a zone that is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopiedPart {
    pub id: ZoneId,
    pub role: Role,
    /// Where the copy of the part lies.
    pub to: Place,
    /// The class of the copy's operations.
    pub class: IoClass,
}

impl CopiedPart {
    /// The slot of the drive that has the part, or should have it.
    fn slot(self, core: &Core) -> Slot {
        core.ctx.places.slot(self.id, self.role).unwrap_or_default()
    }
}

/// Reads of the same rows of several parts.
struct CopyReads {
    rows: Range<u64>,
    roles: Vec<Role>,
    /// By role, as in `roles`.
    ios: Vec<Io<BufMut>>,
}

/// How much of a zone in use can be copied.
pub(crate) struct ZoneProgress {
    pub generation: u64,
    /// Rows of the zone whose content is final in every part.
    pub rows: u64,
}

pub(crate) fn zone_progress(core: &Core, id: ZoneId) -> ZoneProgress {
    let zone = core.zones.zone(id);
    let end = zone.acknowledged().min(zone.readable());
    let rows = core.ctx.layout.row(core.ctx.layout.stripe_of(end)).min(core.ctx.layout.part_rows);
    ZoneProgress { generation: zone.generation, rows: if zone.is_gone() { 0 } else { rows } }
}

/// Rows with content of a part: none while the zone is being reset.
pub(crate) fn valid_rows(core: &Core, id: ZoneId, role: Role) -> u64 {
    let (zone, layout) = (core.zones.zone(id), &core.ctx.layout);
    match zone.state {
        _ if zone.is_gone() => 0,
        ZoneState::Full => layout.used_by_full_zone(role, zone.readable()),
        _ => layout.used(role, zone.readable()),
    }
}

impl PartCopy {
    pub(crate) fn new(slot: Slot, device: MemberDrive, purpose: Purpose) -> PartCopy {
        PartCopy { slot, device, purpose, bad: Mutex::default(), given_up: AtomicU64::new(0) }
    }

    /// Sets the bad rows of the part that is copied next.
    pub(crate) fn set_bad_rows(&self, rows: RowSet) {
        *self.bad.lock() = rows;
    }

    /// The bad rows of the part that was copied.
    pub(crate) fn take_bad_rows(&self) -> RowSet {
        std::mem::take(&mut *self.bad.lock())
    }

    /// Copies the last rows of a zone, from `row` on. The zone's I/O waits meanwhile. Returns the generation and the end of the zone's
    /// content; `None` if the zone was reset since it had this generation.
    pub(crate) async fn copy_last_rows(
        &self,
        runner: &mut Runner,
        part: CopiedPart,
        row: u64,
        generation: u64,
    ) -> Result<Option<ZoneEntry>> {
        let core = Arc::clone(&runner.core);
        // Clients of the zone wait for the copy.
        let part = CopiedPart { class: IoClass::Read, ..part };
        let CopiedPart { id, role, .. } = part;
        let layout = core.ctx.layout;
        let (end, full, read_only, is_ended, is_sound) = {
            let zone = core.zones.zone(id);
            if zone.generation != generation {
                return Ok(None);
            }
            let end = match zone.is_gone() {
                true => Blocks::ZERO,
                false => zone.acknowledged().min(zone.readable()),
            };
            let full = zone.state == ZoneState::Full;
            // A zone that a mount found worn takes no writes after the next open either.
            let is_ended = full || self.purpose == Purpose::Move && zone.end.is_some();
            (end, full, zone.state == ZoneState::ReadOnly, is_ended, zone.poison.is_none())
        };
        let rows = if full { layout.used_by_full_zone(role, end) } else { layout.used(role, end) };
        let last = layout.stripe_of(end);
        let whole = layout.row(last).min(rows);
        if row < whole {
            self.copy_whole_stripes(runner, part, row..whole, false).await?;
        }
        let from = row.max(whole);
        if from < rows {
            // The rows to copy of a stripe that is not whole: data, or final parity.
            let first = layout.row(last);
            let at = from - first;
            // Parity that a refused write should have covered may be missing in its place. Acknowledged data is there.
            let is_there = is_sound || layout.index_on(last, role).is_some();
            let own = match self.reads_own_place(&core, part) && is_there {
                true => core.reconstruct.rows_of(id, role, from, rows - from).await.ok(),
                false => None,
            };
            let content = match (own, layout.index_on(last, role)) {
                (Some(own), _) => own,
                (None, Some(index)) => {
                    let offset = layout.unit_start(last, index).plus(Blocks(at));
                    let piece = Piece { role, stripe: last, index, row: at, offset, len: rows - from };
                    self.reconstruct_data(&core, part, piece).await?
                }
                (None, None) => {
                    let parity = layout.parity_on(last, role).expect("a part holds data or parity");
                    let mut unit =
                        self.compute_parity(&core, part, (last, parity), end, 0..rows - first).await?;
                    extend_to_whole_stripe(&layout, (last, parity), end, core.ctx.bytes(1), &mut unit);
                    let mut content = BufMut::with_capacity(core.ctx.bytes(rows - from));
                    content.extend_from_slice(unit.get(core.ctx.bytes(at)..).unwrap_or_default());
                    content
                }
            };
            self.write(&core, part, from, content).await?;
            runner.job.add(core.ctx.bytes(rows - from) as u64);
        }
        // A read-only zone may end inside a stripe. The other drives have not finished their parts of the zone: the stripe's parity
        // is relocated, as a mount does.
        let ends_inside = read_only && end > layout.start(last) && end < layout.capacity();
        if let Some(parity) = layout.parity_on(last, role).filter(|_| ends_inside) {
            let rows = 0..layout.unit_of(last);
            let unit = self.compute_parity(&core, part, (last, parity), end, rows).await?;
            let unit = RelocatedParity { end, unit: unit.freeze() };
            core.zones.zone(id).relocated.insert((last, parity), unit);
        }
        let ends_zone = core.zones.shared().is_none_or(|shared| match self.purpose {
            Purpose::Rebuild => shared.ends_full_zone(id, part.to),
            Purpose::Move => shared.is_last_slot(part.to),
        });
        if is_ended && part.to.row + rows < self.device.geometry().zone_capacity.0 && ends_zone {
            self.place_of(part).act(Action::Finish).await?;
        }
        Ok(Some(ZoneEntry { generation, end: Some(end) }))
    }

    /// The class of the copies' operations, where no client waits for them.
    pub(crate) fn class(&self) -> IoClass {
        match self.purpose {
            Purpose::Rebuild => IoClass::Rebuild,
            Purpose::Move => IoClass::Reclaim,
        }
    }

    /// The physical zone that gets a part.
    pub(crate) fn place_of(&self, part: CopiedPart) -> PhysicalZone<'_> {
        PhysicalZone::with_part(&*self.device, part.to).of_class(part.class)
    }

    /// True if the copy reads the part itself: the drive with the part works, the part is not offline, and the copy is a move.
    fn reads_own_place(&self, core: &Core, part: CopiedPart) -> bool {
        self.purpose == Purpose::Move
            && core.members.has_part(part.id, part.role)
            && !core.zones.worn.is_offline(part.id, part.slot(core))
    }

    fn write(&self, core: &Core, part: CopiedPart, row: u64, data: BufMut) -> Io<()> {
        if self.purpose == Purpose::Move {
            add(&core.ctx.metrics.moved_bytes, data.len() as u64);
        }
        self.place_of(part).write(row, data.freeze(), Durability::Cached)
    }

    /// Copies rows of whole stripes. `paced`: at the pace that respects clients. No I/O of
    /// the copy is in flight when this returns.
    pub(crate) async fn copy_whole_stripes(
        &self,
        runner: &mut Runner,
        part: CopiedPart,
        rows: Range<u64>,
        paced: bool,
    ) -> Result<()> {
        let mut writes = VecDeque::new();
        let result = self.copy_rows(runner, part, rows, paced, &mut writes).await;
        for (_, io) in writes {
            // After a failed copy the writes in flight must end before the physical zone that they go to is reset.
            let _landed_or_not = io.await;
        }
        result
    }

    async fn copy_rows(
        &self,
        runner: &mut Runner,
        part: CopiedPart,
        rows: Range<u64>,
        paced: bool,
        writes: &mut VecDeque<(u64, Io<()>)>,
    ) -> Result<()> {
        let core = Arc::clone(&runner.core);
        let (id, places) = (part.id, &core.ctx.places);
        let most = self.device.geometry().max_transfer.0;
        let mut reads: VecDeque<CopyReads> = VecDeque::new();
        let mut next = rows.start;
        while next < rows.end || !reads.is_empty() {
            // First writes of zones wait for the room that an urgent job makes.
            let class = if runner.is_urgent() { IoClass::Read } else { part.class };
            let part = CopiedPart { class, ..part };
            while next < rows.end && reads.len() < runner.chunks_in_flight() {
                let count = runner.next_chunk_rows().min(most).min(rows.end - next);
                if (paced && !runner.wait_for_turn(count).await) || runner.job.is_ended_early() {
                    return Err(self.early_end_error(&core));
                }
                let broken = || core.members.broken_error("rebuild");
                let roles = self.needed_parts(&core, part, &(next..next + count)).ok_or_else(broken)?;
                let read = |role: &Role| core.reconstruct.read_rows(class, id, *role, next, count);
                let ios: Option<Vec<Io<BufMut>>> = roles.iter().map(read).collect();
                reads.push_back(CopyReads { rows: next..next + count, roles, ios: ios.ok_or_else(broken)? });
                next += count;
            }
            let Some(CopyReads { rows, roles, ios }) = reads.pop_front() else { continue };
            let (row, count) = (rows.start, rows.end - rows.start);
            let mut parts: Vec<Option<BufMut>> = core.ctx.layout.roles().map(|_| None).collect();
            let mut lacks_rows = false;
            for (role, read) in roles.iter().zip(join_all(ios).await) {
                let data = match read {
                    Ok(mut data) => {
                        core.reconstruct.apply_relocated_content(id, *role, row, &mut data);
                        Ok(data)
                    }
                    Err(e) if is_read_again(e.kind()) => {
                        core.reconstruct.rows_of_whole_stripes(id, *role, row, count).await
                    }
                    Err(e) => Err(e),
                };
                match (data, parts.get_mut(role.index())) {
                    (Ok(data), Some(part)) => *part = Some(data),
                    (Err(e), _) if e.kind() == ErrorKind::Media => {
                        lacks_rows = true;
                        break;
                    }
                    (Err(e), _) if *role == part.role && !is_transient(e.kind()) => {
                        // The rows of a part that cannot be read follow from the other parts.
                        if let Some(slot) = drive_that_fails(&core, places.slot(id, *role), &e) {
                            core.members.fail(slot, &e).await?;
                        }
                        lacks_rows = true;
                        break;
                    }
                    (Err(e), _) if self.goes_on_without(&core, places.slot(id, *role), &e).await => {
                        lacks_rows = true;
                        break;
                    }
                    (Err(e), _) => {
                        let other = places.slot(id, *role);
                        return Err(unrecoverable_row_error(&core, id, part.slot(&core), other, e).await);
                    }
                    (Ok(_), None) => {}
                }
            }
            let (layout, block) = (&core.ctx.layout, core.ctx.bytes(1));
            let stripes = WholeStripes { layout, block, rows, parts: &parts };
            let data = match roles.as_slice() {
                [only] if *only == part.role => parts.get_mut(only.index()).and_then(Option::take),
                _ => stripes.part(part.role),
            };
            let data = match data.filter(|_| !lacks_rows) {
                Some(data) => data,
                None => self.reconstruct_one_by_one(&core, part, row, count).await?,
            };
            while writes.len() >= runner.chunks_in_flight() {
                self.await_write(runner, writes.pop_front()).await?;
            }
            if self.purpose == Purpose::Rebuild {
                core.ctx.metrics.rebuilt(data.len());
            }
            writes.push_back((count, self.write(&core, part, row, data)));
        }
        while !writes.is_empty() {
            self.await_write(runner, writes.pop_front()).await?;
        }
        Ok(())
    }

    /// The parts that rows of whole stripes follow from; `None` if too many drives are missing.
    fn needed_parts(&self, core: &Core, part: CopiedPart, rows: &Range<u64>) -> Option<Vec<Role>> {
        if self.reads_own_place(core, part) {
            return Some(vec![part.role]);
        }
        needed_parts(&core.ctx.layout, rows, part.role, |role| core.members.has_part(part.id, role))
    }

    /// True if the rows of a drive that gave `error` may follow from other drives too: with two parities. A drive that is gone is
    /// failed.
    async fn goes_on_without(&self, core: &Arc<Core>, other: Option<Slot>, error: &Error) -> bool {
        if core.ctx.layout.parities == 1 || is_transient(error.kind()) {
            return false;
        }
        match drive_that_fails(core, other, error) {
            Some(other) => core.members.fail(other, error).await.is_ok(),
            None => true,
        }
    }

    /// Reconstructs rows one by one; rows that cannot be reconstructed become bad rows.
    async fn reconstruct_one_by_one(
        &self,
        core: &Arc<Core>,
        part: CopiedPart,
        row: u64,
        count: u64,
    ) -> Result<BufMut> {
        let (layout, block) = (&core.ctx.layout, core.ctx.bytes(1));
        let CopiedPart { id, role: wanted, .. } = part;
        let mut rows = BufMut::with_capacity(core.ctx.bytes(count));
        for row in row..row + count {
            if self.reads_own_place(core, part)
                && let Ok(own) = core.reconstruct.rows_of_whole_stripes(id, wanted, row, 1).await
            {
                rows.extend_from_slice(&own);
                continue;
            }
            let mut parts: Vec<Option<BufMut>> = layout.roles().map(|_| None).collect();
            let mut failed = None;
            for role in layout.roles().filter(|role| *role != wanted) {
                if layout.parities > 1 && !core.members.has_part(id, role) {
                    continue;
                }
                match (
                    core.reconstruct.rows_of_whole_stripes(id, role, row, 1).await,
                    parts.get_mut(role.index()),
                ) {
                    (Ok(data), Some(part)) => *part = Some(data),
                    (Err(e), _) => {
                        // With a readable medium, the row would follow from the other parts: the zone is not lost with one part.
                        if failed.is_none() || e.kind() == ErrorKind::Media {
                            failed = Some((role, e));
                        }
                        if layout.parities == 1 {
                            break;
                        }
                    }
                    (Ok(_), None) => {}
                }
            }
            let found = WholeStripes { layout, block, rows: row..row + 1, parts: &parts }.part(wanted);
            if let Some(found) = found {
                rows.extend_from_slice(&found);
                continue;
            }
            let Some((role, e)) = failed else { return Err(core.members.broken_error("rebuild")) };
            if let Err(e) = self.add_bad_row(core, part, row, e) {
                let other = core.ctx.places.slot(id, role);
                return Err(unrecoverable_row_error(core, id, part.slot(core), other, e).await);
            }
            rows.extend_from_slice(&BufMut::zeroed(block));
        }
        Ok(rows)
    }

    /// Reconstructs data blocks of a stripe that is not whole; row by row if some fail.
    async fn reconstruct_data(&self, core: &Arc<Core>, part: CopiedPart, piece: Piece) -> Result<BufMut> {
        let id = part.id;
        match core.reconstruct.piece_now(id, piece).await {
            Err(e) if e.kind() == ErrorKind::Media => {}
            content => return content,
        }
        let mut rows = BufMut::with_capacity(core.ctx.bytes(piece.len));
        for n in 0..piece.len {
            let one = Piece { row: piece.row + n, offset: piece.offset.plus(Blocks(n)), len: 1, ..piece };
            match core.reconstruct.piece_now(id, one).await {
                Ok(row) => rows.extend_from_slice(&row),
                Err(e) => {
                    self.add_bad_row(core, part, core.ctx.layout.row(piece.stripe) + one.row, e)?;
                    rows.extend_from_slice(&BufMut::zeroed(core.ctx.bytes(1)));
                }
            }
        }
        Ok(rows)
    }

    /// Computes rows of a parity of the data of a stripe below `end`; row by row if some fail.
    async fn compute_parity(
        &self,
        core: &Arc<Core>,
        part: CopiedPart,
        (stripe, parity): (Stripe, Parity),
        end: Blocks,
        rows: Range<u64>,
    ) -> Result<BufMut> {
        let id = part.id;
        match core.reconstruct.parity(id, (stripe, parity), end, rows.clone()).await {
            Err(e) if e.kind() == ErrorKind::Media => {}
            sum => return sum,
        }
        let mut unit = BufMut::with_capacity(core.ctx.bytes(rows.end - rows.start));
        for row in rows {
            match core.reconstruct.parity(id, (stripe, parity), end, row..row + 1).await {
                Ok(row) => unit.extend_from_slice(&row),
                Err(e) => {
                    self.add_bad_row(core, part, core.ctx.layout.row(stripe) + row, e)?;
                    unit.extend_from_slice(&BufMut::zeroed(core.ctx.bytes(1)));
                }
            }
        }
        Ok(unit)
    }

    /// Makes a row of the copy bad: its place holds zeros. Returns the error instead if it is no media error, or if there are too many
    /// bad rows. A row that was bad where it comes from stays so.
    fn add_bad_row(&self, core: &Core, part: CopiedPart, row: u64, error: Error) -> Result<()> {
        let from = core.members.part(part.id, part.role);
        if self.purpose == Purpose::Move && from.is_some_and(|from| from.has_bad_rows(&(row..row + 1))) {
            self.bad.lock().insert(row..row + 1);
            return Ok(());
        }
        let records = core.members.config.lock().incompat & FEATURE_BAD_ROWS != 0;
        if error.kind() != ErrorKind::Media || core.members.is_broken() || !records {
            return Err(error);
        }
        if self.given_up.fetch_add(1, Ordering::Relaxed) >= MAX_BAD_ROWS {
            return Err(error);
        }
        tracing::error!(slot = self.slot.0, zone = part.id.0, row, %error, "the row cannot be reconstructed: its content is lost");
        self.bad.lock().insert(row..row + 1);
        Ok(())
    }

    async fn await_write(&self, runner: &Runner, write: Option<(u64, Io<()>)>) -> Result<()> {
        let Some((rows, io)) = write else { return Ok(()) };
        io.await?;
        runner.job.add(runner.core.ctx.bytes(rows) as u64);
        Ok(())
    }

    /// The error of a copy that ends early.
    pub(crate) fn early_end_error(&self, core: &Core) -> Error {
        if self.purpose == Purpose::Move {
            let error = core.ctx.error(ErrorKind::Cancelled, "move a part");
            return error.because("the part stays where it is");
        }
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

/// The drive in `slot`, if the error of a read of its part fails a drive that works. A drive that was lacking before does not fail again:
/// [`fail`](crate::membership::Membership::fail) would take the error for one of the new drive that is being filled in its place.
fn drive_that_fails(core: &Core, slot: Option<Slot>, error: &Error) -> Option<Slot> {
    slot.filter(|slot| fails_the_drive(error.kind()) && core.members.member(*slot).is_good())
}

/// The error of a row that two drives lack.
pub(crate) async fn unrecoverable_row_error(
    core: &Arc<Core>,
    id: ZoneId,
    slot: Slot,
    other: Option<Slot>,
    error: Error,
) -> Error {
    let Some(other) = other else { return error };
    if let Some(other) = drive_that_fails(core, Some(other), &error) {
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
