//! Filling one zone of a new drive.
//!
//! What lies below the acknowledged blocks of a zone does not change but by a reset, so that whole stripes are copied
//! while the zone is in use, chunk by chunk, several in flight: the content of a row on one drive is the XOR of that
//! row on all others, be it data or parity. Only for the rest, a stripe or two, the zone's I/O waits, and not for its turn
//! beside other clients, which comes before; from then on its writes go to the new drive too. A reset meanwhile begins the
//! zone anew.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zoned::{
    Action, Blocks, BufMut, Durability, Error, ErrorKind, Io, Result, ZoneId, ZoneState, ZonedDevice,
    join_all,
};

use crate::background::runner::Runner;
use crate::core::Core;
use crate::degraded::failure::may_pass;
use crate::format::superblock::LOST_ROWS;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::xor::xor;
use crate::layout::{Piece, Slot, Stripe};
use crate::member::bad_rows::MOST_LOST;
use crate::member::{METADATA_ZONES, Member};
use crate::zone::stale_rows;
use crate::zone::{Relocated, Work};

/// The zone's I/O waits while no more than this is copied, in stripes.
const REST: u64 = 2;
/// Rounds after the pointer of a zone that is being written, before others are filled first.
const ROUNDS: u32 = 4;

/// What became of a zone.
pub(crate) enum Copied {
    /// It is there, and what it holds.
    Done(ZoneEntry),
    /// Clients write it faster than it can be copied.
    Later,
    /// It was reset meanwhile.
    Again,
}

/// What to do about a zone that clients write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tries {
    /// Others first, if it would take long.
    Patient,
    /// After its pointer, to its end if it comes to that.
    Follows,
    /// It was reset each time: its I/O waits until it is copied.
    Last,
}

/// The new drive of a slot.
pub(crate) struct Target {
    slot: Slot,
    pub device: Arc<dyn ZonedDevice>,
    /// Rows of the zone that is being filled that follow from nothing.
    lost: Mutex<Vec<Range<u64>>>,
    /// And how many these are of all zones.
    given_up: AtomicU64,
}

/// What a zone is like while it is in use.
struct Look {
    generation: u64,
    /// Rows of the new drive that do not change any more.
    rows: u64,
}

impl Core {
    fn look(&self, id: ZoneId) -> Look {
        let zone = self.zone(id);
        let end = zone.acknowledged().min(zone.readable());
        let rows = self.layout.row(self.layout.stripe_of(end)).min(self.layout.zone_capacity);
        Look { generation: zone.generation, rows: if zone.has_nothing_left() { 0 } else { rows } }
    }

    /// Whether a zone was reset since it had this generation, or is being reset.
    pub(crate) fn is_another(&self, id: ZoneId, generation: u64) -> bool {
        let zone = self.zone(id);
        zone.generation != generation || zone.resetting
    }

    /// Rows that the new drive of `slot` is to hold of a zone: none of one that is being reset.
    pub(crate) fn valid_rows(&self, id: ZoneId, slot: Slot) -> u64 {
        let zone = self.zone(id);
        if zone.has_nothing_left() { 0 } else { self.layout.used(id, slot, zone.readable()) }
    }
}

impl Target {
    pub(super) fn new(slot: Slot, device: Arc<dyn ZonedDevice>) -> Target {
        Target { slot, device, lost: Mutex::default(), given_up: AtomicU64::new(0) }
    }

    fn physical(id: ZoneId) -> ZoneId {
        ZoneId(id.0 + METADATA_ZONES)
    }

    /// Empties the physical zone.
    async fn clear(&self, id: ZoneId) -> Result<()> {
        let zone = Target::physical(id);
        let report = self.device.report(zone.0..zone.0 + 1).await?;
        if report.first().is_some_and(|info| info.state != ZoneState::Empty) {
            self.device.zone(zone, Action::Reset).await?;
            self.device.flush().await?;
        }
        Ok(())
    }

    /// Fills a zone. `kept`: what the drive has of it already; what clients have written since follows.
    /// A zone that another drive's part of is offline is lost.
    pub(crate) async fn fill(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        kept: Option<ZoneEntry>,
        tries: Tries,
    ) -> Result<Copied> {
        let core = Arc::clone(&runner.core);
        match self.fill_zone(runner, id, kept, tries).await {
            Err(e) if e.kind() == ErrorKind::ZoneOffline => {
                // Of the new drive's own zone that is the end.
                let Some(slot) = core.offline_part(id).await else { return Err(e) };
                tracing::error!(zone = id.0, error = %e, "the rebuild goes on without the zone");
                core.worn_out(id, slot, ZoneState::Offline);
                core.lose(id).await.map(|()| Copied::Again)
            }
            result => result,
        }
    }

    async fn fill_zone(
        &self,
        runner: &mut Runner,
        id: ZoneId,
        kept: Option<ZoneEntry>,
        tries: Tries,
    ) -> Result<Copied> {
        let core = Arc::clone(&runner.core);
        let Look { generation, .. } = core.look(id);
        let kept = kept.filter(|kept| kept.generation == generation).and_then(|kept| kept.end);
        let mut row = match kept {
            Some(end) => {
                *self.lost.lock() = core.member(self.slot).lost.of(id);
                core.layout.used(id, self.slot, end)
            }
            None => {
                self.lost.lock().clear();
                self.clear(id).await?;
                0
            }
        };
        let (mut rounds, mut last) = (0, u64::MAX);
        loop {
            let look = core.look(id);
            if look.generation != generation {
                return Ok(Copied::Again);
            }
            let left = look.rows.saturating_sub(row);
            if tries == Tries::Last {
                break;
            }
            if left <= REST * core.layout.unit {
                // What is left has its turn while the zone is in use: its I/O waits for the copy, not for the pace.
                let rest = core.valid_rows(id, self.slot).saturating_sub(row);
                if rest > 0 && !runner.turn(rest).await {
                    return Err(self.ended(&core));
                }
                if core.look(id).rows.saturating_sub(row) <= REST * core.layout.unit {
                    break;
                }
                continue;
            }
            if rounds >= ROUNDS && left > last / 2 && tries == Tries::Patient {
                return Ok(Copied::Later);
            }
            (rounds, last) = (rounds + 1, left);
            if let Err(e) = self.copy(runner, id, row..look.rows, true).await {
                // Whatever a drive says of a zone that is reset under it.
                return if core.is_another(id, generation) { Ok(Copied::Again) } else { Err(e) };
            }
            row = look.rows;
        }
        let paused: Io<()> = core.enter(id, Work::Pause).typed();
        paused.await?;
        let result = self.finish(runner, id, row, generation).await;
        {
            let mut zone = core.zone(id);
            zone.busy = false;
            if let Ok(Copied::Done(_)) = &result {
                core.member(self.slot).has_zone(id, true);
                // Until here the slot had what was lost of the drive before, whose parity memory may still have.
                core.member(self.slot).lost.set(id, std::mem::take(&mut *self.lost.lock()));
                // On the new drive everything lies in its place.
                zone.patches.forget(self.slot);
                let whole = |stripe: &Stripe, parity: &Relocated| parity.end == core.layout.end(*stripe);
                let ours = |stripe: &Stripe| core.layout.parity(id, *stripe) == self.slot;
                zone.relocated.retain(|stripe, parity| !(ours(stripe) && whole(stripe, parity)));
            }
        }
        core.pump(id);
        result
    }

    /// The rest of a zone, whose I/O waits.
    async fn finish(&self, runner: &mut Runner, id: ZoneId, row: u64, generation: u64) -> Result<Copied> {
        let core = Arc::clone(&runner.core);
        let layout = core.layout;
        let (end, full, over) = {
            let zone = core.zone(id);
            if zone.generation != generation {
                return Ok(Copied::Again);
            }
            let end = match zone.has_nothing_left() {
                true => Blocks::ZERO,
                false => zone.acknowledged().min(zone.readable()),
            };
            let full = zone.state == ZoneState::Full;
            (end, full, full || zone.state == ZoneState::ReadOnly)
        };
        let rows = layout.used(id, self.slot, end);
        let last = layout.stripe_of(end);
        let whole = layout.row(last).min(rows);
        if row < whole {
            self.copy(runner, id, row..whole, false).await?;
        }
        let from = row.max(whole);
        if from < rows
            && let Some(index) = layout.index_on(id, last, self.slot)
        {
            // Blocks of a stripe that is not whole.
            let at = from - layout.row(last);
            let offset = layout.unit_start(last, index).plus(Blocks(at));
            let piece = Piece { slot: self.slot, stripe: last, index, row: at, offset, len: rows - from };
            let part = self.data(&core, id, piece).await?;
            self.write(id, from, part).await?;
            runner.job.add(core.bytes(rows - from) as u64);
        }
        if from < rows && layout.index_on(id, last, self.slot).is_none() {
            // Rows of parity that change no more.
            let first = layout.row(last);
            let part = self.parity(&core, id, last, end, from - first..rows - first).await?;
            self.write(id, from, part).await?;
            runner.job.add(core.bytes(rows - from) as u64);
        }
        // Nothing more is written: the parity of the last stripe is in the logs.
        let torn = over && end > layout.start(last) && end < layout.capacity();
        if torn && layout.parity(id, last) == self.slot {
            let unit = self.parity(&core, id, last, end, 0..layout.unit_of(last)).await?;
            core.zone(id).relocated.insert(last, Relocated { end, unit: unit.freeze() });
        }
        if full && rows < self.device.geometry().zone_capacity.0 {
            self.device.zone(Target::physical(id), Action::Finish).await?;
        }
        Ok(Copied::Done(ZoneEntry { generation, end: Some(end) }))
    }

    fn write(&self, id: ZoneId, row: u64, data: BufMut) -> Io<()> {
        let at = Member::address(&*self.device, id, row);
        self.device.write(at, data.freeze(), Durability::Cached)
    }

    /// Copies rows of whole stripes. `paced`: with regard for clients. Nothing is in flight when it returns.
    async fn copy(&self, runner: &mut Runner, id: ZoneId, rows: Range<u64>, paced: bool) -> Result<()> {
        let mut writes = VecDeque::new();
        let result = self.copy_rows(runner, id, rows, paced, &mut writes).await;
        for (_, io) in writes {
            // Behind an error: what comes of it is of no use, but it must not come after the zone is emptied again.
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
        let others: Vec<Slot> = (0..core.layout.drives).map(Slot).filter(|slot| *slot != self.slot).collect();
        let most = self.device.geometry().max_transfer.0;
        let mut reads: VecDeque<(u64, u64, Vec<Io<BufMut>>)> = VecDeque::new();
        let mut next = rows.start;
        while next < rows.end || !reads.is_empty() {
            loop {
                let (chunk, depth) = runner.window();
                if next >= rows.end || reads.len() >= depth {
                    break;
                }
                let count = chunk.min(most).min(rows.end - next);
                if (paced && !runner.turn(count).await) || runner.job.is_ended_early() {
                    return Err(self.ended(&core));
                }
                let read = |slot: &Slot| core.read_rows(id, *slot, next, count);
                let ios: Option<Vec<Io<BufMut>>> = others.iter().map(read).collect();
                reads.push_back((next, count, ios.ok_or_else(|| core.broken_error("rebuild"))?));
                next += count;
            }
            let Some((row, count, ios)) = reads.pop_front() else { continue };
            let mut sum: Option<BufMut> = None;
            for (slot, read) in others.iter().zip(join_all(ios).await) {
                let data = match read {
                    Ok(mut data) => {
                        core.settle(id, *slot, row, &mut data);
                        Ok(data)
                    }
                    Err(e) if is_read_again(&e) => core.rows_of(id, *slot, row, count).await,
                    Err(e) => Err(e),
                };
                let data = match data {
                    Ok(data) => data,
                    Err(e) if e.kind() == ErrorKind::Media => {
                        sum = Some(self.one_by_one(&core, id, row, count, &others).await?);
                        break;
                    }
                    Err(e) => return Err(core.lost_twice(id, self.slot, *slot, e).await),
                };
                match &mut sum {
                    Some(sum) => xor(sum, &data),
                    None => sum = Some(data),
                }
            }
            while writes.len() >= runner.window().1 {
                self.landed(runner, writes.pop_front()).await?;
            }
            let data = sum.unwrap_or_default();
            core.tally.rebuilt(data.len());
            writes.push_back((count, self.write(id, row, data)));
        }
        while !writes.is_empty() {
            self.landed(runner, writes.pop_front()).await?;
        }
        Ok(())
    }

    /// Rows of which some follow from nothing.
    async fn one_by_one(
        &self,
        core: &Arc<Core>,
        id: ZoneId,
        row: u64,
        count: u64,
        others: &[Slot],
    ) -> Result<BufMut> {
        let mut rows = BufMut::with_capacity(core.bytes(count));
        for row in row..row + count {
            let mut sum = BufMut::zeroed(core.bytes(1));
            for slot in others {
                match core.rows_of(id, *slot, row, 1).await {
                    Ok(data) => xor(&mut sum, &data),
                    Err(e) => {
                        if let Err(e) = self.give_up(core, id, row, e) {
                            return Err(core.lost_twice(id, self.slot, *slot, e).await);
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

    /// Blocks of data of a stripe that is not whole; row by row where some follow from nothing.
    async fn data(&self, core: &Arc<Core>, id: ZoneId, piece: Piece) -> Result<BufMut> {
        let rebuilt = async |piece: Piece| {
            let mut part = BufMut::zeroed(core.bytes(piece.len));
            let rebuild = core.rebuild(&core.zone(id), id, piece)?;
            rebuild.run(core, id, &mut part).await.map(|()| part)
        };
        match rebuilt(piece).await {
            Err(e) if e.kind() == ErrorKind::Media => {}
            part => return part,
        }
        let mut rows = BufMut::with_capacity(core.bytes(piece.len));
        for n in 0..piece.len {
            let one = Piece { row: piece.row + n, offset: piece.offset.plus(Blocks(n)), len: 1, ..piece };
            match rebuilt(one).await {
                Ok(row) => rows.extend_from_slice(&row),
                Err(e) => {
                    self.give_up(core, id, core.layout.row(piece.stripe) + one.row, e)?;
                    rows.extend_from_slice(&BufMut::zeroed(core.bytes(1)));
                }
            }
        }
        Ok(rows)
    }

    /// Rows of parity of the data of a stripe below `end`; row by row where some follow from nothing.
    async fn parity(
        &self,
        core: &Arc<Core>,
        id: ZoneId,
        stripe: Stripe,
        end: Blocks,
        rows: Range<u64>,
    ) -> Result<BufMut> {
        match core.sum(id, stripe, end, rows.clone()).await {
            Err(e) if e.kind() == ErrorKind::Media => {}
            sum => return sum,
        }
        let mut unit = BufMut::with_capacity(core.bytes(rows.end - rows.start));
        for row in rows {
            match core.sum(id, stripe, end, row..row + 1).await {
                Ok(row) => unit.extend_from_slice(&row),
                Err(e) => {
                    self.give_up(core, id, core.layout.row(stripe) + row, e)?;
                    unit.extend_from_slice(&BufMut::zeroed(core.bytes(1)));
                }
            }
        }
        Ok(unit)
    }

    /// A row follows from nothing: its place holds zeros, and it is recorded as lost. Gives the error back where that is no
    /// answer: it is not of the medium, or there are too many of them.
    fn give_up(&self, core: &Core, id: ZoneId, row: u64, error: Error) -> Result<()> {
        let records = core.config.lock().incompat & LOST_ROWS != 0;
        if error.kind() != ErrorKind::Media || core.is_broken() || !records {
            return Err(error);
        }
        if self.given_up.fetch_add(1, Ordering::Relaxed) >= MOST_LOST {
            return Err(error);
        }
        tracing::error!(slot = self.slot.0, zone = id.0, row, %error, "what belongs there is lost");
        stale_rows::insert(&mut self.lost.lock(), row..row + 1);
        Ok(())
    }

    async fn landed(&self, runner: &Runner, write: Option<(u64, Io<()>)>) -> Result<()> {
        let Some((rows, io)) = write else { return Ok(()) };
        io.await?;
        runner.job.add(runner.core.bytes(rows) as u64);
        Ok(())
    }

    /// Why a rebuild ends early.
    pub(crate) fn ended(&self, core: &Core) -> Error {
        let why = if core.member(self.slot).is_aborted() {
            "the new drive failed: the array is as it was before, without a drive. Replace it by another one"
        } else {
            "it was cancelled: the array is as it was before, without a drive"
        };
        core.error(ErrorKind::Gone, "rebuild").because(why)
    }
}

/// Whether rows that could not be read are read one by one, or once more: the logs may hold what the drive cannot read,
/// and an error that says nothing of the drive may pass.
fn is_read_again(error: &Error) -> bool {
    error.kind() == ErrorKind::Media || may_pass(error.kind())
}

impl Core {
    /// The error of a row that follows from nothing: two drives lack it.
    pub(crate) async fn lost_twice(
        self: &Arc<Core>,
        id: ZoneId,
        slot: Slot,
        other: Slot,
        error: Error,
    ) -> Error {
        if crate::degraded::failure::fails_the_drive(error.kind()) {
            // It says so itself, in clear words.
            return match self.fail(other, &error).await {
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

    /// The XOR of these rows of the data of a stripe below `end`.
    async fn sum(&self, id: ZoneId, stripe: Stripe, end: Blocks, rows: Range<u64>) -> Result<BufMut> {
        let layout = &self.layout;
        let mut sum = BufMut::zeroed(self.bytes(rows.end - rows.start));
        let (mut ios, mut parts) = (Vec::new(), Vec::new());
        let row = layout.row(stripe) + rows.start;
        for index in 0..layout.data_units() {
            let count = layout.filled(stripe, index, end).min(rows.end).saturating_sub(rows.start);
            if count > 0 {
                let from = layout.data(id, stripe, index);
                let io = self.read_rows(id, from, row, count);
                parts.push((from, count, self.zone(id).patches.over(self.bytes(1), from, row, count)));
                ios.push(io.ok_or_else(|| self.broken_error("rebuild"))?);
            }
        }
        for (data, (from, count, overlay)) in join_all(ios).await.into_iter().zip(parts) {
            let data = match data {
                Ok(mut data) => {
                    overlay.apply(&mut data);
                    data
                }
                Err(e) if is_read_again(&e) => self.rows_of(id, from, row, count).await?,
                Err(e) => return Err(e),
            };
            xor(&mut sum, &data);
        }
        Ok(sum)
    }
}
