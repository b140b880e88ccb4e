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
//! can all blocks below.

pub(crate) mod stale_rows;
pub(crate) mod worn_zones;
pub(crate) mod zone_table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zoned::{Action, Blocks, Buf, BufMut, Completer, Done, Durability, Error, ZoneState};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::xor::xor;
use crate::layout::{Layout, Role, Slot, Stripe};
use crate::zone::stale_rows::{RelocatedParity, StaleRows};

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

/// An operation that waits for its zone, or is carried out there.
#[derive(Debug)]
pub(crate) enum Work {
    Read {
        offset: Blocks,
        into: BufMut,
    },
    /// A write at `offset`, or an append (`None`).
    Write {
        offset: Option<Blocks>,
        data: Buf,
        how: Durability,
    },
    Act(Action),
    /// A pause keeps other operations out until its caller clears `busy` and pumps the zone.
    Pause,
}

/// A write of a zone that is in flight.
#[derive(Debug)]
pub(crate) struct WriteInFlight {
    pub id: u64,
    start: Blocks,
    pub end: Blocks,
    data: Buf,
    /// The parity of the stripes that the write completed.
    parities: Vec<(Stripe, Buf)>,
    /// True if the blocks of the write are on their drives.
    pub landed: bool,
    pub how: Durability,
    pub done: Done,
    pub completer: Completer,
}

/// A commit: submitted parity that covers all blocks of the zone below `end`.
#[derive(Clone, Copy, Debug)]
struct Commit {
    end: Blocks,
    done: bool,
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
    /// The XOR of the data of the stripe at the pointer, as long as the filled part of the first unit.
    pub parity: BufMut,
    /// The first row of the parity of the stripe at the pointer that is final and not written to its place yet. No block of
    /// the last data unit from this row on is covered by a commit.
    pub held_parity: Option<u64>,
    /// The end of the blocks that a submitted commit covers.
    pub logged: Blocks,
    /// True while a record of partial parity is in flight, or waits for room in the log.
    pub logging: bool,
    commits: VecDeque<Commit>,
    covered: Blocks,
    pub flights: VecDeque<WriteInFlight>,
    /// How many of the first flights have landed, and where the last of these ends.
    landed: (usize, Blocks),
    next_flight: u64,
    pub in_flight: u64,
    /// True while a reset, a finish or a pause is under way: all other operations wait.
    pub busy: bool,
    pub queue: VecDeque<(Work, Completer)>,
    /// True once a reset was begun: its intent may be in the logs.
    pub resetting: bool,
    /// Barriers: each is completed once all blocks below its offset are acknowledged.
    barriers: Vec<(Blocks, Completer)>,
    pub relocated: BTreeMap<Stripe, RelocatedParity>,
    /// The first torn stripe of a zone that takes no more writes: a whole stripe whose parity was written for
    /// other data than the drives hold. A durable stripe has its parity, and so have all stripes below it. So
    /// no block above a torn stripe was ever durable.
    pub torn: Option<Stripe>,
    /// Rows of the zone that hold dead data, and the relocated content of these rows.
    pub stale: StaleRows,
    /// By slot: the number of the flush that covers the zone's last block on the drive. Empty without
    /// volatile caches.
    stamps: Vec<u64>,
    /// True if the zone is worn and counts as active, because its parts on other drives are active.
    pub worn_active: bool,
    /// Why the zone takes no more writes: a second drive failed during a write, for example.
    pub poison: Option<Error>,
}

impl Zone {
    /// A zone whose first `pointer` blocks are written; `parity` is the parity of the stripe at the pointer.
    pub(crate) fn new(state: ZoneState, generation: u64, pointer: Blocks, parity: BufMut) -> Zone {
        Zone {
            state,
            pointer,
            generation,
            end: None,
            parity,
            held_parity: None,
            logged: pointer,
            logging: false,
            commits: VecDeque::new(),
            covered: pointer,
            flights: VecDeque::new(),
            landed: (0, pointer),
            next_flight: 0,
            in_flight: 0,
            busy: false,
            queue: VecDeque::new(),
            resetting: false,
            barriers: Vec::new(),
            relocated: BTreeMap::new(),
            torn: None,
            stale: StaleRows::default(),
            stamps: Vec::new(),
            worn_active: false,
            poison: None,
        }
    }

    /// Makes the zone empty, after a reset.
    pub(crate) fn make_empty(&mut self, generation: u64) {
        let queue = std::mem::take(&mut self.queue);
        *self = Zone::new(ZoneState::Empty, generation, Blocks::ZERO, BufMut::default());
        self.queue = queue;
    }

    /// True if `work` must wait for earlier work of the zone.
    pub(crate) fn must_wait(&self, work: &Work) -> bool {
        !self.queue.is_empty() || self.holds_back(work)
    }

    /// True if `work` at the head of the zone's queue must wait.
    pub(crate) fn holds_back(&self, work: &Work) -> bool {
        self.busy
            || match work {
                Work::Write { data, .. } => {
                    self.in_flight > 0
                        && self.in_flight.saturating_add(data.len() as u64) > MAX_BYTES_IN_FLIGHT
                }
                Work::Act(Action::Reset | Action::Finish) | Work::Pause => !self.flights.is_empty(),
                Work::Act(_) | Work::Read { .. } => false,
            }
    }

    /// The number of the zone's blocks with content. Blocks above read as zeros.
    pub(crate) fn readable(&self) -> Blocks {
        self.end.unwrap_or(self.pointer)
    }

    /// The parts with relocated content.
    pub(crate) fn roles_with_relocated(&self, layout: &Layout) -> BTreeSet<Role> {
        let parity = self.relocated.keys().map(|stripe| layout.parity(*stripe));
        self.stale.roles().into_iter().chain(parity).collect()
    }

    /// The number of stripes whose parity is relocated although their rows of the part are not stale.
    fn relocated_parity_units(&self, layout: &Layout, role: Role) -> u64 {
        let alone = |stripe: &&Stripe| {
            let row = layout.row(**stripe);
            layout.parity(**stripe) == role
                && !self.stale.has_stale(role, &(row..row + layout.unit_of(**stripe)))
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

    /// Ends a zone that takes no more writes behind its torn stripe, and forgets relocated parity of stripes above. False if
    /// the zone has no torn stripe, or no such parity.
    pub(crate) fn end_at_torn(&mut self, layout: &Layout, block: usize) -> bool {
        let Some(torn) = self.torn else { return false };
        let end = layout.end(torn).min(self.readable());
        if self.relocated.values().all(|parity| parity.end <= end) {
            return false;
        }
        self.end = Some(end);
        if self.state != ZoneState::Full {
            (self.pointer, self.logged, self.covered, self.landed.1) = (end, end, end, end);
        }
        self.relocated.retain(|_, parity| parity.end <= end);
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
            // A worn zone that a mount found empty is empty again once its drive is replaced.
            ZoneState::ReadOnly => self.end.filter(|end| *end > Blocks::ZERO),
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
            data,
            parities,
            landed: false,
            how,
            done,
            completer,
        });
        id
    }

    /// Keeps the parity of a stripe that the newest write completed.
    pub(crate) fn keep_parity(&mut self, stripe: Stripe, parity: &Buf) {
        if let Some(flight) = self.flights.back_mut() {
            flight.parities.push((stripe, parity.clone()));
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

    /// The parity of the acknowledged blocks of a stripe that has blocks in flight. Zeros may follow beyond
    /// the first unit's filled part.
    pub(crate) fn acknowledged_parity(&self, layout: &Layout, block: usize, stripe: Stripe) -> BufMut {
        let whole = self.flights.iter().flat_map(|flight| &flight.parities).find(|(of, _)| *of == stripe);
        let all: &[u8] = match whole {
            Some((_, parity)) => parity,
            None if self.open_stripe(layout) == Some(stripe) => &self.parity,
            None => &[],
        };
        let mut parity = BufMut::with_capacity(all.len());
        parity.extend_from_slice(all);
        for (at, data) in self.in_flight_of(layout.start(stripe), layout.end(stripe)) {
            for piece in layout.pieces(at, (data.len() / block) as u64) {
                let (from, len) = (piece.offset.minus(at).0 as usize * block, piece.len as usize * block);
                let row = piece.row as usize * block;
                if let (Some(rows), Some(part)) = (parity.get_mut(row..row + len), data.get(from..from + len))
                {
                    xor(rows, part);
                }
            }
        }
        parity
    }

    /// Drops the unacknowledged blocks of a poisoned zone from memory. Called before any flight is released.
    pub(crate) fn drop_unacknowledged(&mut self, layout: &Layout, block: usize) {
        if self.poison.is_none() || self.flights.is_empty() || self.pointer <= self.covered {
            return;
        }
        let stripe = layout.stripe_of(self.covered);
        let rows = layout.filled(stripe, 0, self.covered);
        self.parity = match rows {
            0 => BufMut::default(),
            rows => {
                let mut parity = self.acknowledged_parity(layout, block, stripe);
                parity.truncate(rows as usize * block);
                parity
            }
        };
        self.pointer = self.covered;
        self.logged = self.covered;
        self.held_parity = None;
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

    /// Adds a commit that covers the blocks below `end`. `done`: the commit needs no parity to land.
    pub(crate) fn commit(&mut self, end: Blocks, done: bool) {
        self.logged = self.logged.max(end);
        self.commits.push_back(Commit { end, done });
    }

    /// Notes that the parity of the commit at `end` has landed.
    pub(crate) fn commit_landed(&mut self, end: Blocks) {
        for commit in self.commits.iter_mut().filter(|commit| commit.end == end) {
            commit.done = true;
        }
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
    pub(crate) fn release(&mut self) -> Vec<WriteInFlight> {
        let mut out = Vec::new();
        if self.poison.is_some() {
            let (ended, in_flight_of): (Vec<_>, Vec<_>) =
                self.flights.drain(..).partition(|flight| flight.landed);
            self.flights = in_flight_of.into();
            self.landed = (0, self.landed.1);
            out = ended;
        } else {
            while let Some(commit) = self.commits.front().filter(|c| c.done && c.end <= self.landed.1) {
                self.covered = self.covered.max(commit.end);
                self.commits.pop_front();
            }
            while self.flights.front().is_some_and(|flight| flight.landed && flight.end <= self.covered) {
                self.landed.0 = self.landed.0.saturating_sub(1);
                out.extend(self.flights.pop_front());
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

    struct Fixture {
        zone: Zone,
        ids: Vec<u64>,
    }

    fn fixture(ends: &[u64]) -> Fixture {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let mut zone = Zone::new(ZoneState::ImplicitOpen, 1, Blocks::ZERO, BufMut::default());
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
            self.zone.release().into_iter().map(|flight| flight.end.0).collect()
        }
    }

    #[test]
    fn writes_are_acknowledged_in_order() {
        let mut g = fixture(&[1, 2, 3]);
        for end in 1..=3 {
            g.zone.commit(Blocks(end), true);
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
        g.zone.commit(Blocks(3), false);
        g.zone.mark_landed(g.ids[0]);
        g.zone.mark_landed(g.ids[1]);
        g.zone.commit_landed(Blocks(3));
        assert_eq!(g.released(), [], "the parity is of no use without block 3");
        g.zone.mark_landed(g.ids[2]);
        assert_eq!(g.released(), [1, 2, 3]);
    }

    #[test]
    fn a_commit_does_not_overtake_the_one_before() {
        let mut g = fixture(&[1, 4]);
        g.zone.commit(Blocks(1), false);
        g.zone.commit(Blocks(4), false);
        g.zone.mark_landed(g.ids[0]);
        g.zone.mark_landed(g.ids[1]);
        g.zone.commit_landed(Blocks(4));
        assert_eq!(g.released(), []);
        g.zone.commit_landed(Blocks(1));
        assert_eq!(g.released(), [1, 4]);
    }
}
