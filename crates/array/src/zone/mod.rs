//! A logical zone in memory, and the order in which its writes are acknowledged.
//!
//! ```text
//!   0 .......... covered ......... logged ....... pointer ....... capacity
//!   acknowledged          |              |
//!                         in flight      data submitted, its parity not yet
//! ```
//!
//! Data is submitted to the drives at once. Parity is submitted by *commits*: the full parity of a stripe to its
//! place, or partial parity to the log. A zone has one write of partial parity in flight at a time: later blocks are
//! covered by the next one, or by the full parity of their stripe. A write is acknowledged when a commit covers its
//! blocks and every write below the commit's end has landed. So every acknowledged block can be reconstructed, and so
//! can all blocks below. Each parity of a zone has commits of its own: those of all parities have to cover a block.

pub(crate) mod append_choice;
pub(crate) mod appends;
pub(crate) mod choice;
pub(crate) mod coverage;
pub(crate) mod drive_choice;
pub(crate) mod filling_zones;
pub(crate) mod frames;
pub(crate) mod free_zones;
pub(crate) mod memory;
pub(crate) mod readers;
pub(crate) mod resets_under_way;
pub(crate) mod room_requests;
pub(crate) mod shared_zones;
pub(crate) mod space;
pub(crate) mod stale_rows;
pub(crate) mod torn_end;
pub(crate) mod work;
pub(crate) mod worn_zones;
pub(crate) mod write_in_flight;
pub(crate) mod zone_table;

use std::collections::{BTreeSet, VecDeque};

use zoned::{Action, Blocks, Buf, BufMut, Completer, Done, Durability, Error, IoClass, Lba, ZoneState};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::gf256::remove_last_unit;
use crate::layout::row_set::RowSet;
use crate::layout::running_parity::RunningParity;
use crate::layout::stored_maps::PlacedBy;
use crate::layout::xor::xor;
use crate::layout::{Layout, Parity, Role, Slot, Stripe};
use crate::zone::appends::{Appends, assign_addresses};
use crate::zone::coverage::Coverage;
use crate::zone::frames::Frames;
use crate::zone::readers::Readers;
use crate::zone::stale_rows::{RelocatedParities, StaleRows};
use crate::zone::torn_end::TornEnd;
use crate::zone::work::{Work, WriteRequest};
use crate::zone::write_in_flight::{Address, WriteInFlight};

/// Bytes of writes that a zone has in flight at most; further writes wait in memory. After a power cut no
/// more than `MAX_BYTES_IN_FLIGHT` and one transfer are in doubt.
pub(crate) const MAX_BYTES_IN_FLIGHT: u64 = 16 << 20;
/// The longest read or write of an array, in bytes.
pub(crate) const MAX_TRANSFER: u64 = 8 << 20;
/// The highest generation of a zone. A zone with this generation cannot be reset until the array is opened
/// again.
pub(crate) const LAST_GENERATION: u64 = u64::MAX - 1;
/// A mount restarts the generation of a zone at 1 if it is this high.
pub(crate) const HIGH_GENERATION: u64 = u64::MAX - (1 << 32);

/// A part that is about to get another place. The log of its new drive has the part's records before a map names the place.
#[derive(Debug)]
pub(crate) struct ComingPart {
    /// The drive that gets the part.
    pub slot: Slot,
    pub role: Role,
    /// The version of the map that will name the place.
    pub placed_by: PlacedBy,
    /// The part's bad rows at the new place.
    pub bad: RowSet,
}

/// A logical zone.
#[derive(Debug)]
pub(crate) struct Zone {
    pub state: ZoneState,
    /// Blocks of the zone that were submitted, from its start.
    pub pointer: Blocks,
    pub generation: u64,
    /// Where the content of a full zone ends; `None` until the end is recorded.
    pub end: Option<Blocks>,
    /// The parities of the data of the stripe at the pointer.
    pub parity: RunningParity,
    /// By parity. The second entry is that of an array with one parity too, where nothing uses it.
    coverage: [Coverage; 2],
    /// The frames of the zone's writes; `None` if the array's writes are not atomic.
    pub frames: Option<Frames>,
    /// The end of the blocks that commits of all parities cover, and that have landed.
    covered: Blocks,
    pub flights: VecDeque<WriteInFlight>,
    pub appends: Appends,
    /// How many of the first flights have landed, and where the last of these ends.
    landed: (usize, Blocks),
    next_flight: u64,
    pub in_flight: u64,
    /// True while a reset, a finish or a pause is under way, or a write waits for room, for a place, or for full zones: all other operations wait.
    pub busy: bool,
    pub queue: VecDeque<(Work, Completer)>,
    /// True once a reset was begun: its intent may be in the logs.
    pub resetting: bool,
    /// Barriers: each is completed once all blocks below its offset are acknowledged.
    barriers: Vec<(Blocks, Completer)>,
    pub relocated: RelocatedParities,
    /// Where a zone with a torn stripe, and that takes no more writes, may end.
    pub torn: Option<TornEnd>,
    /// Rows of the zone that hold dead data, and the relocated content of these rows.
    pub stale: StaleRows,
    /// By slot: the number of the flush that covers the zone's last block on the drive. Empty without
    /// volatile caches.
    stamps: Vec<u64>,
    /// True if the zone is worn and counts as active, because its parts on other drives are active.
    pub worn_active: bool,
    /// The drives whose logs get the record of the zone's map with the next write.
    pub map_record: Vec<Slot>,
    /// Clients' reads that are in flight.
    pub readers: Readers,
    /// The part that is about to get another place.
    pub coming: Option<Box<ComingPart>>,
    /// The highest version of the zone's map that a move was to write, also one that failed: records may name the version.
    pub attempted_version: u16,
    /// Why the zone takes no more writes: a second drive failed during a write, for example.
    pub poison: Option<Error>,
}

impl Zone {
    /// A zone whose first `pointer` blocks are written; `parity` is the parity of the stripe at the pointer.
    pub(crate) fn new(state: ZoneState, generation: u64, pointer: Blocks, parity: RunningParity) -> Zone {
        Zone {
            state,
            pointer,
            generation,
            end: None,
            parity,
            coverage: [Coverage::new(pointer), Coverage::new(pointer)],
            frames: None,
            covered: pointer,
            flights: VecDeque::new(),
            appends: Appends::default(),
            landed: (0, pointer),
            next_flight: 0,
            in_flight: 0,
            busy: false,
            queue: VecDeque::new(),
            resetting: false,
            barriers: Vec::new(),
            relocated: RelocatedParities::new(),
            torn: None,
            stale: StaleRows::default(),
            stamps: Vec::new(),
            worn_active: false,
            map_record: Vec::new(),
            readers: Readers::default(),
            coming: None,
            attempted_version: 0,
            poison: None,
        }
    }

    /// Makes the zone empty, after a reset.
    pub(crate) fn make_empty(&mut self, generation: u64) {
        let (queue, frames) =
            (std::mem::take(&mut self.queue), self.frames.as_ref().map(Frames::of_next_life));
        let (parity, stamps) = (self.parity.emptied(), std::mem::take(&mut self.stamps));
        *self = Zone::new(ZoneState::Empty, generation, Blocks::ZERO, parity);
        // A cut may undo a reset that is not durable yet: the flush that covers the former content still counts.
        (self.queue, self.frames, self.stamps) = (queue, frames, stamps);
    }

    /// Takes the queued work for earlier lives of the zone.
    pub(crate) fn take_work_of_ended_lives(&mut self) -> Vec<Completer> {
        let now = self.generation;
        let (ended, queue): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|(work, _)| work.is_of_ended_life(now));
        self.queue = queue.into();
        ended.into_iter().map(|(_, completer)| completer).collect()
    }

    /// How far a parity covers the zone's blocks.
    pub(crate) fn coverage(&self, parity: Parity) -> &Coverage {
        let [p, q] = &self.coverage;
        if parity == Parity::P { p } else { q }
    }

    /// As [`coverage`](Zone::coverage), to be changed.
    pub(crate) fn coverage_mut(&mut self, parity: Parity) -> &mut Coverage {
        let [p, q] = &mut self.coverage;
        if parity == Parity::P { p } else { q }
    }

    /// True if `work` must wait for earlier work of the zone.
    pub(crate) fn must_wait(&self, work: &Work) -> bool {
        !self.queue.is_empty() || self.holds_back(work)
    }

    /// True if `work` at the head of the zone's queue must wait.
    pub(crate) fn holds_back(&self, work: &Work) -> bool {
        self.busy
            || match work {
                Work::Write(WriteRequest { data, .. }) => {
                    self.in_flight > 0
                        && self.in_flight.saturating_add(data.len() as u64) > MAX_BYTES_IN_FLIGHT
                        || self.poison.is_none() && self.awaits_addresses(data.len())
                }
                Work::Act(Action::Reset | Action::Finish) | Work::Pause { .. } => !self.flights.is_empty(),
                Work::Act(_) | Work::Read { .. } => false,
            }
    }

    /// True if a write of `bytes` at the pointer waits for appends: for their addresses, or for the correction of their parity.
    fn awaits_addresses(&self, bytes: usize) -> bool {
        self.appends.hold_back(self.pointer, bytes)
            || self.coverage.iter().any(|coverage| coverage.corrects.is_some())
    }

    /// The number of the zone's blocks with content. Blocks above read as zeros.
    pub(crate) fn readable(&self) -> Blocks {
        self.end.unwrap_or(self.pointer)
    }

    /// The parts with relocated content.
    pub(crate) fn roles_with_relocated(&self, layout: &Layout) -> BTreeSet<Role> {
        let parity = self.relocated.keys().map(|(stripe, parity)| layout.parity(*stripe, *parity));
        self.stale.roles().into_iter().chain(parity).collect()
    }

    /// The number of stripes whose parity is relocated although their rows of the part are not stale.
    fn relocated_parity_units(&self, layout: &Layout, role: Role) -> u64 {
        let alone = |(stripe, parity): &&(Stripe, Parity)| {
            let row = layout.row(*stripe);
            layout.parity(*stripe, *parity) == role
                && !self.stale.has_stale(role, &(row..row + layout.unit_of(*stripe)))
        };
        self.relocated.keys().filter(alone).count() as u64
    }

    /// Blocks that the records of a part's relocated content may take in the checkpoint of the part's drive.
    pub(crate) fn relocated_cost(&self, layout: &Layout, role: Role) -> u64 {
        self.stale.checkpoint_blocks(layout, role)
            + self.relocated_parity_units(layout, role) * (layout.unit + 1)
    }

    /// The number of rows of all parts whose content is or will be in the logs.
    pub(crate) fn relocated_rows(&self, layout: &Layout) -> u64 {
        let alone: u64 = layout.roles().map(|role| self.relocated_parity_units(layout, role)).sum();
        self.stale.rows() + alone * layout.unit
    }

    /// Ends a zone that takes no more writes behind its torn stripe, and forgets relocated parity of blocks above. False if
    /// the zone has no torn stripe, or no such parity.
    pub(crate) fn end_at_torn(&mut self, layout: &Layout, block: usize) -> bool {
        let Some(TornEnd { end, parities }) = self.torn.take() else { return false };
        if self.relocated.values().all(|parity| parity.end <= end) {
            return false;
        }
        self.end = Some(end);
        if self.state != ZoneState::Full {
            (self.pointer, self.covered, self.landed.1) = (end, end, end);
            self.coverage.iter_mut().for_each(|coverage| coverage.logged = end);
        }
        self.relocated.retain(|_, parity| parity.end <= end);
        self.relocated.extend(parities);
        for role in self.stale.roles() {
            let used = layout.used(role, end);
            self.stale.cut(block, role, used, used);
        }
        true
    }

    /// The zone's entry in a checkpoint.
    pub(crate) fn entry(&self) -> ZoneEntry {
        let end = match self.state {
            ZoneState::Offline => Some(ZoneEntry::END_OF_FAILED_ZONE),
            _ => self.end,
        };
        ZoneEntry { generation: self.generation, end }
    }

    /// True if a new drive gets nothing of the zone: a reset is under way or has failed (the next mount completes
    /// it), or two drives lack their parts.
    pub(crate) fn is_gone(&self) -> bool {
        self.resetting || self.state == ZoneState::Offline
    }

    /// The end of the zone's acknowledged blocks, which are on the drives with their parity until a reset.
    pub(crate) fn acknowledged(&self) -> Blocks {
        match self.flights.is_empty() && self.poison.is_none() {
            true => self.pointer,
            false => self.covered,
        }
    }

    /// The stripe at the write pointer, if it is partly written.
    pub(crate) fn open_stripe(&self, layout: &Layout) -> Option<Stripe> {
        (!self.parity.is_empty()).then(|| layout.stripe_of(self.pointer))
    }

    /// Adds a write in flight that ends at `end`; returns the write's number.
    pub(crate) fn push_flight(
        &mut self,
        end: Blocks,
        data: Buf,
        how: Durability,
        done: Done,
        completer: Completer,
    ) -> u64 {
        let (id, start) = (self.next_flight, self.pointer);
        self.next_flight += 1;
        self.in_flight += data.len() as u64;
        let parities = Vec::new();
        self.flights.push_back(WriteInFlight {
            id,
            start,
            end,
            address: Address::Known,
            data,
            parities,
            landed: false,
            how,
            done,
            class: IoClass::default(),
            sample: None,
            completer,
        });
        id
    }

    /// The newest write is an append to the drive, within the open stripe.
    pub(crate) fn expect_address(&mut self, layout: &Layout, block: usize) {
        let Some(flight) = self.flights.back_mut() else { return };
        flight.address = Address::Expected;
        self.appends.begin();
        (self.appends.stripe_end, self.appends.block) = (layout.end(layout.stripe_of(flight.start)), block);
    }

    /// True if a block from `start` on is in flight and not known to be on its drive.
    pub(crate) fn is_in_flight_from(&self, start: Blocks) -> bool {
        self.flights.iter().rev().take_while(|flight| flight.end > start).any(|flight| !flight.landed)
    }

    /// An append to a drive has ended. `address`: where its blocks lie; `None` if the append failed.
    pub(crate) fn append_ended(&mut self, id: u64, address: Option<Blocks>) {
        let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) else { return };
        let as_submitted = address == Some(flight.start);
        flight.address = match address {
            Some(_) if as_submitted => Address::Known,
            Some(other) => Address::Other(other),
            None => Address::Unreported,
        };
        self.appends.end(as_submitted);
        if as_submitted || self.poison.is_some() {
            self.mark_landed(id);
        }
    }

    /// True if appends were reordered and all that the zone has in flight has ended, so that [`settle`](Zone::settle) can give the
    /// writes their addresses.
    pub(crate) fn may_settle(&self) -> bool {
        let ended = |flight: &WriteInFlight| flight.landed || flight.address != Address::Known;
        self.appends.may_settle()
            && self.poison.is_none()
            && self.flights.iter().all(ended)
            && self.coverage.iter().all(|coverage| coverage.records == 0 && coverage.checkpoints == 0)
    }

    /// Gives the writes in flight the addresses that they have on the drives, computes the parity of the open stripe anew, and
    /// begins a correction of the logged parity (`correct`). `first`: the address of the zone's first block. False if a drive
    /// gave an impossible address.
    pub(crate) fn settle(&mut self, layout: &Layout, block: usize, first: Lba, correct: bool) -> bool {
        let mut kept = self.parity.emptied();
        let stripe = layout.stripe_of(self.pointer);
        for parity in layout.parities() {
            let mut unit = self.acknowledged_parity(layout, block, stripe, parity);
            unit.truncate(layout.filled(stripe, 0, self.covered) as usize * block);
            kept.set(parity, unit);
        }
        kept.reserve(layout.unit_of(stripe) as usize * block);
        if !assign_addresses(layout, &mut self.flights) {
            return false;
        }
        for (at, data) in self.in_flight_of(layout.start(stripe), layout.end(stripe)) {
            for piece in layout.pieces(at, (data.len() / block) as u64) {
                let from = piece.offset.minus(at).0 as usize * block;
                let part = data.slice(from..from + piece.len as usize * block);
                match piece.index {
                    0 => kept.add_first_unit(&part),
                    _ => kept.add_later_unit(piece.row as usize * block, &part),
                }
            }
        }
        self.parity = kept;
        for flight in &mut self.flights {
            (flight.landed, flight.address) = (true, Address::Known);
            if let Done::At(at) = &mut flight.done {
                *at = first.plus(flight.start);
            }
        }
        self.landed = (self.flights.len(), self.pointer);
        self.appends.settle();
        if correct {
            layout.parities().for_each(|parity| self.coverage_mut(parity).begin_correction());
        }
        true
    }

    /// Keeps a parity of a stripe that the newest write completed.
    pub(crate) fn keep_parity(&mut self, stripe: Stripe, parity: Parity, unit: &Buf) {
        if let Some(flight) = self.flights.back_mut() {
            flight.parities.push((stripe, parity, unit.clone()));
        }
    }

    /// True if blocks of a stripe are in flight: the content of the drives and the parity need not match then.
    pub(crate) fn is_in_flight(&self, layout: &Layout, stripe: Stripe) -> bool {
        !self.flights.is_empty() && self.pointer > self.covered && layout.end(stripe) > self.covered
    }

    /// The blocks of `start..end` that are in flight: offset and data of each run of them.
    pub(crate) fn in_flight_of(
        &self,
        start: Blocks,
        end: Blocks,
    ) -> impl Iterator<Item = (Blocks, Buf)> + '_ {
        let start = start.max(self.covered);
        self.flights.iter().filter_map(move |flight| {
            let (from, to) = (flight.start.max(start), flight.end.min(end));
            if from >= to {
                return None;
            }
            let block = flight.data.len() / usize::try_from(flight.end.minus(flight.start).0).ok()?;
            let byte = |at: Blocks| Some(usize::try_from(at.minus(flight.start).0).ok()? * block);
            Some((from, flight.data.slice(byte(from)?..byte(to)?)))
        })
    }

    /// A parity of the acknowledged blocks of a stripe that has blocks in flight. Zeros may follow beyond
    /// the first unit's filled part.
    pub(crate) fn acknowledged_parity(
        &self,
        layout: &Layout,
        block: usize,
        stripe: Stripe,
        parity: Parity,
    ) -> BufMut {
        let mut wholes = self.flights.iter().flat_map(|flight| &flight.parities);
        let whole = wholes.find(|(of, which, _)| (*of, *which) == (stripe, parity));
        let all: &[u8] = match whole {
            Some((.., unit)) => unit,
            None if self.open_stripe(layout) == Some(stripe) => self.parity.of(parity),
            None => &[],
        };
        let mut rest = BufMut::with_capacity(all.len());
        rest.extend_from_slice(all);
        let in_flight: Vec<(Blocks, Buf)> =
            self.in_flight_of(layout.start(stripe), layout.end(stripe)).collect();
        // A Q gives back its units in the reverse order.
        for (at, data) in in_flight.into_iter().rev() {
            let pieces: Vec<_> = layout.pieces(at, (data.len() / block) as u64).collect();
            for piece in pieces.into_iter().rev() {
                let (from, len) = (piece.offset.minus(at).0 as usize * block, piece.len as usize * block);
                let row = piece.row as usize * block;
                if let (Some(rows), Some(part)) = (rest.get_mut(row..row + len), data.get(from..from + len)) {
                    match parity {
                        Parity::P => xor(rows, part),
                        Parity::Q => remove_last_unit(rows, part),
                    }
                }
            }
        }
        rest
    }

    /// Drops the unacknowledged blocks of a poisoned zone from memory. Called before any flight is released.
    pub(crate) fn drop_unacknowledged(&mut self, layout: &Layout, block: usize) {
        if self.poison.is_none() || self.flights.is_empty() || self.pointer <= self.covered {
            return;
        }
        if self.frames.is_some()
            && let Some(flight) = self.flights.front()
        {
            // Of a refused write nothing stays.
            self.covered = self.covered.min(flight.start);
        }
        let stripe = layout.stripe_of(self.covered);
        let rows = layout.filled(stripe, 0, self.covered);
        let mut kept = self.parity.emptied();
        for parity in layout.parities().filter(|_| rows > 0) {
            let mut unit = self.acknowledged_parity(layout, block, stripe, parity);
            unit.truncate(rows as usize * block);
            kept.set(parity, unit);
        }
        self.parity = kept;
        self.pointer = self.covered;
        for coverage in &mut self.coverage {
            (coverage.logged, coverage.held) = (self.covered, None);
        }
        self.relocated.retain(|_, parity| parity.end <= self.pointer);
    }

    /// Notes that the flush `number` of the drive in `slot` covers all blocks of the zone that have landed
    /// there.
    pub(crate) fn set_flush_number(&mut self, slot: Slot, number: u64) {
        if self.stamps.len() <= slot.index() {
            self.stamps.resize(slot.index() + 1, 0);
        }
        if let Some(stamp) = self.stamps.get_mut(slot.index()) {
            *stamp = number.max(*stamp);
        }
    }

    /// The number of the flush that covers all blocks of the zone on the drive in `slot`.
    pub(crate) fn flush_number(&self, slot: Slot) -> u64 {
        self.stamps.get(slot.index()).copied().unwrap_or(0)
    }

    /// True if a write that ends at or below `offset` has not landed.
    pub(crate) fn has_flight_below(&self, offset: Blocks) -> bool {
        self.flights.get(self.landed.0).is_some_and(|flight| flight.end <= offset)
    }

    /// Notes that the blocks of a write are on their drives.
    pub(crate) fn mark_landed(&mut self, id: u64) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
            flight.landed = true;
        }
        while let Some(flight) = self.flights.get(self.landed.0).filter(|flight| flight.landed) {
            self.landed = (self.landed.0 + 1, flight.end);
        }
    }

    /// Completes `completer` once all blocks submitted so far are acknowledged, or have failed.
    pub(crate) fn barrier(&mut self, completer: Completer) {
        self.barriers.push((self.pointer, completer));
    }

    /// Removes and returns the barriers whose blocks are all acknowledged.
    pub(crate) fn reached_barriers(&mut self) -> Vec<Completer> {
        let (covered, idle) = (self.covered, self.flights.is_empty());
        let falls = |target: Blocks| idle || target <= covered;
        let (reached_barriers, standing) =
            std::mem::take(&mut self.barriers).into_iter().partition(|(at, _)| falls(*at));
        self.barriers = standing;
        let reached_barriers: Vec<(Blocks, Completer)> = reached_barriers;
        reached_barriers.into_iter().map(|(_, completer)| completer).collect()
    }

    /// Removes and returns the writes that can be acknowledged now. In a poisoned zone: all writes that have ended.
    pub(crate) fn release(&mut self, layout: &Layout) -> Vec<WriteInFlight> {
        let mut out = Vec::new();
        if self.poison.is_some() {
            let has_ended = |flight: &WriteInFlight| {
                flight.landed || matches!(flight.address, Address::Other(_) | Address::Unreported)
            };
            let (ended, in_flight_of): (Vec<_>, Vec<_>) = self.flights.drain(..).partition(has_ended);
            self.flights = in_flight_of.into();
            self.landed = (0, self.landed.1);
            out = ended;
        } else {
            let framed = self.frames.as_ref().map_or(self.landed.1, |frames| frames.landed);
            let landed = self.landed.1.min(framed);
            self.coverage.iter_mut().for_each(|coverage| coverage.advance(landed));
            let covered = layout.parities().map(|parity| self.coverage(parity).covered).min();
            self.covered = self.covered.max(covered.unwrap_or_default());
            while self.flights.front().is_some_and(|flight| flight.landed && flight.end <= self.covered) {
                self.landed.0 = self.landed.0.saturating_sub(1);
                let acknowledged = self.flights.pop_front();
                if let Some((frames, flight)) = self.frames.as_mut().zip(acknowledged.as_ref()) {
                    frames.acknowledged = flight.end;
                }
                out.extend(acknowledged);
            }
        }
        self.in_flight =
            self.in_flight.saturating_sub(out.iter().map(|flight| flight.data.len() as u64).sum());
        out
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{Driver, VirtualDriver};
    use zoned::Io;

    use super::*;

    const LAYOUT: Layout = Layout { width: 4, parities: 1, unit: 2, part_rows: 8 };

    struct Fixture {
        zone: Zone,
        ids: Vec<u64>,
    }

    fn fixture(ends: &[u64]) -> Fixture {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let mut zone = Zone::new(ZoneState::ImplicitOpen, 1, Blocks::ZERO, RunningParity::default());
        let ids = ends
            .iter()
            .map(|end| {
                let (completer, io) = Io::pair(&driver, &Arc::from("dev"));
                drop(io);
                zone.push_flight(
                    Blocks(*end),
                    Buf::copy_from(&[0]),
                    Durability::Cached,
                    Done::Unit,
                    completer,
                )
            })
            .collect();
        Fixture { zone, ids }
    }

    impl Fixture {
        fn released(&mut self) -> Vec<u64> {
            self.zone.release(&LAYOUT).into_iter().map(|flight| flight.end.0).collect()
        }
    }

    #[test]
    fn writes_are_acknowledged_in_order() {
        let mut g = fixture(&[1, 2, 3]);
        for end in 1..=3 {
            g.zone.coverage_mut(Parity::P).commit(Blocks(end), true);
        }
        g.zone.mark_landed(g.ids[2]);
        g.zone.mark_landed(g.ids[1]);
        assert_eq!(g.released(), []);
        g.zone.mark_landed(g.ids[0]);
        assert_eq!(g.released(), [1, 2, 3]);
        assert_eq!(g.zone.in_flight, 0);
    }

    #[test]
    fn a_write_waits_for_parity_and_for_all_that_the_parity_covers() {
        let mut g = fixture(&[1, 2, 3]);
        g.zone.coverage_mut(Parity::P).commit(Blocks(3), false);
        g.zone.mark_landed(g.ids[0]);
        g.zone.mark_landed(g.ids[1]);
        g.zone.coverage_mut(Parity::P).commit_landed(Blocks(3));
        assert_eq!(g.released(), [], "the parity is of no use without block 3");
        g.zone.mark_landed(g.ids[2]);
        assert_eq!(g.released(), [1, 2, 3]);
    }

    #[test]
    fn a_commit_does_not_overtake_the_one_before() {
        let mut g = fixture(&[1, 4]);
        g.zone.coverage_mut(Parity::P).commit(Blocks(1), false);
        g.zone.coverage_mut(Parity::P).commit(Blocks(4), false);
        g.zone.mark_landed(g.ids[0]);
        g.zone.mark_landed(g.ids[1]);
        g.zone.coverage_mut(Parity::P).commit_landed(Blocks(4));
        assert_eq!(g.released(), []);
        g.zone.coverage_mut(Parity::P).commit_landed(Blocks(1));
        assert_eq!(g.released(), [1, 4]);
    }

    #[test]
    fn a_write_waits_for_both_parities() {
        let layout = Layout { parities: 2, ..LAYOUT };
        let mut g = fixture(&[1, 2]);
        for end in [1, 2] {
            g.zone.coverage_mut(Parity::P).commit(Blocks(end), true);
        }
        g.zone.coverage_mut(Parity::Q).commit(Blocks(2), false);
        g.ids.iter().for_each(|id| g.zone.mark_landed(*id));
        assert_eq!(g.zone.release(&layout).len(), 0, "P covers both writes, and Q none");
        g.zone.coverage_mut(Parity::Q).commit_landed(Blocks(2));
        assert_eq!(g.zone.release(&layout).len(), 2);
    }

    #[test]
    fn parities_of_acknowledged_blocks_are_those_without_the_blocks_in_flight() {
        let layout = Layout { width: 5, parities: 2, unit: 4, part_rows: 8 };
        let block = |n: u64| vec![(n * 57 + 3) as u8; 8];
        let data =
            |blocks: std::ops::Range<u64>| Buf::copy_from(&blocks.flat_map(block).collect::<Vec<u8>>());
        let running = |end: u64| {
            let mut parity = RunningParity::new(&layout);
            parity.reserve(4 * 8);
            for piece in layout.pieces(Blocks::ZERO, end) {
                let part = data(piece.offset.0..piece.offset.0 + piece.len);
                match piece.index {
                    0 => parity.add_first_unit(&part),
                    _ => parity.add_later_unit(piece.row as usize * 8, &part),
                }
            }
            parity
        };
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        for (acknowledged, ends) in [(1, vec![2, 3]), (3, vec![6, 11]), (5, vec![11]), (0, vec![7, 9, 10])] {
            let mut zone = Zone::new(ZoneState::ImplicitOpen, 1, Blocks(acknowledged), running(acknowledged));
            for end in ends {
                let (completer, io) = Io::pair(&driver, &Arc::from("dev"));
                drop(io);
                let new = data(zone.pointer.0..end);
                zone.push_flight(Blocks(end), new, Durability::Cached, Done::Unit, completer);
                zone.pointer = Blocks(end);
                zone.parity = running(end);
            }
            for parity in layout.parities() {
                let found = zone.acknowledged_parity(&layout, 8, Stripe(0), parity);
                let wanted = running(acknowledged).of(parity).to_vec();

                assert_eq!(found[..wanted.len()], *wanted, "{parity:?} below {acknowledged}");
                assert!(found[wanted.len()..].iter().all(|byte| *byte == 0), "{parity:?}");
            }
        }
    }
}
