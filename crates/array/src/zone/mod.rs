//! A logical zone in memory, and the order in which its writes are acknowledged.
//!
//! ```text
//!   0 .......... covered ......... logged ....... pointer ....... capacity
//!   acknowledged          |              |
//!                         in flight      data submitted, its parity not yet
//! ```
//!
//! Data goes to the drives as it comes. Parity is submitted by *commits*: a whole stripe's parity to its place, or
//! partial parity to the log, one at a time in each zone, so that what queues up behind one is covered by the next, or
//! by a stripe that became whole meanwhile. A write is acknowledged when a commit covers it and every write below
//! the commit's end has landed: what is acknowledged can be rebuilt, and everything below it too.

pub(crate) mod stale_rows;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zoned::{Action, Blocks, Buf, BufMut, Completer, Done, Durability, Error, ZoneId, ZoneState};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::xor::xor;
use crate::layout::{Layout, Slot, Stripe};
use crate::zone::stale_rows::Patches;

/// Bytes of writes that a zone has in flight; more wait in memory. After a power cut no more than this and one
/// transfer are in doubt.
pub(crate) const WINDOW: u64 = 16 << 20;

/// What a zone is asked to do.
#[derive(Debug)]
pub(crate) enum Work {
    Read {
        offset: Blocks,
        into: BufMut,
    },
    /// At an offset, or wherever the pointer is.
    Write {
        offset: Option<Blocks>,
        data: Buf,
        how: Durability,
    },
    Act(Action),
    /// Nothing, until it is let go.
    Pause,
}

/// A write in flight.
#[derive(Debug)]
pub(crate) struct Flight {
    pub id: u64,
    start: Blocks,
    pub end: Blocks,
    data: Buf,
    /// The parity of the stripes that it made whole.
    parities: Vec<(Stripe, Buf)>,
    /// Whether its blocks are on their drives.
    pub landed: bool,
    pub how: Durability,
    pub done: Done,
    pub completer: Completer,
}

/// Parity that was submitted.
#[derive(Clone, Copy, Debug)]
struct Commit {
    end: Blocks,
    done: bool,
}

/// Parity that is not in its place.
#[derive(Clone, Debug)]
pub(crate) struct Relocated {
    /// Blocks from here on count as zeros.
    pub end: Blocks,
    pub unit: Buf,
}

/// A logical zone.
#[derive(Debug)]
pub(crate) struct Zone {
    pub state: ZoneState,
    /// Blocks submitted.
    pub pointer: Blocks,
    pub generation: u64,
    /// Where the content of a full zone ends, once that is recorded.
    pub end: Option<Blocks>,
    /// The XOR of what is written of the stripe at the pointer; as long as its first unit is filled.
    pub parity: BufMut,
    /// Blocks below this are covered by a commit that was submitted.
    pub logged: Blocks,
    /// Partial parity is on its way, or waits for room in the log.
    pub logging: bool,
    commits: VecDeque<Commit>,
    covered: Blocks,
    pub flights: VecDeque<Flight>,
    /// How many of the first flights have landed, and where the last of these ends.
    landed: (usize, Blocks),
    next_flight: u64,
    pub in_flight: u64,
    /// A reset or a finish is under way: everything else waits.
    pub busy: bool,
    pub queue: VecDeque<(Work, Completer)>,
    /// A reset was asked for, and its intent may be in the logs.
    pub resetting: bool,
    /// Completed once everything below an offset is acknowledged.
    barriers: Vec<(Blocks, Completer)>,
    pub relocated: BTreeMap<Stripe, Relocated>,
    /// Of a zone that takes no more writes: the first whole stripe that the mount found torn, its parity written for other
    /// data than lies on the drives. All that is durable of a stripe has its parity, and so has everything below: no block
    /// above the torn stripe was ever durable.
    pub torn: Option<Stripe>,
    /// Rows that hold what was never acknowledged, and what belongs there.
    pub patches: Patches,
    /// By slot: the flush of the drive that makes durable what the zone has there. Empty where nothing is volatile.
    stamps: Vec<u64>,
    /// It is worn, and counts as active: its parts on other drives are.
    pub worn_active: bool,
    /// Why no more can be written: the array lost a second drive in the middle of a write, say.
    pub poison: Option<Error>,
}

impl Zone {
    /// A zone whose first `pointer` blocks are written; `parity` is that of the stripe at the pointer.
    pub(crate) fn new(state: ZoneState, generation: u64, pointer: Blocks, parity: BufMut) -> Zone {
        Zone {
            state,
            pointer,
            generation,
            end: None,
            parity,
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
            patches: Patches::default(),
            stamps: Vec::new(),
            worn_active: false,
            poison: None,
        }
    }

    /// The zone is empty again.
    pub(crate) fn empty(&mut self, generation: u64) {
        let queue = std::mem::take(&mut self.queue);
        *self = Zone::new(ZoneState::Empty, generation, Blocks::ZERO, BufMut::default());
        self.queue = queue;
    }

    /// Whether `work` must wait for what was asked before.
    pub(crate) fn must_wait(&self, work: &Work) -> bool {
        !self.queue.is_empty() || self.holds_back(work)
    }

    /// Whether the first in the queue must wait still.
    pub(crate) fn holds_back(&self, work: &Work) -> bool {
        self.busy
            || match work {
                Work::Write { data, .. } => {
                    self.in_flight > 0 && self.in_flight.saturating_add(data.len() as u64) > WINDOW
                }
                Work::Act(Action::Reset | Action::Finish) | Work::Pause => !self.flights.is_empty(),
                Work::Act(_) | Work::Read { .. } => false,
            }
    }

    /// Blocks that hold something; those above read as zeros.
    pub(crate) fn readable(&self) -> Blocks {
        self.end.unwrap_or(self.pointer)
    }

    /// The drives that have relocated units of zone `id`.
    pub(crate) fn relocates(&self, layout: &Layout, id: ZoneId) -> BTreeSet<Slot> {
        let parity = self.relocated.keys().map(|stripe| layout.parity(id, *stripe));
        self.patches.slots().into_iter().chain(parity).collect()
    }

    /// Stripes whose parity is in the log of a drive, while their rows there are not hidden.
    fn parity_alone(&self, layout: &Layout, id: ZoneId, slot: Slot) -> u64 {
        let alone = |stripe: &&Stripe| {
            let row = layout.row(**stripe);
            layout.parity(id, **stripe) == slot
                && !self.patches.hides(slot, &(row..row + layout.unit_of(**stripe)))
        };
        self.relocated.keys().filter(alone).count() as u64
    }

    /// Blocks of records that the log of a drive may need in a checkpoint for what is relocated of zone `id`.
    pub(crate) fn relocated_cost(&self, layout: &Layout, id: ZoneId, slot: Slot) -> u64 {
        self.patches.cost(layout, slot) + self.parity_alone(layout, id, slot) * (layout.unit + 1)
    }

    /// Rows of all drives whose content is, or will be, in the logs.
    pub(crate) fn relocated_rows(&self, layout: &Layout, id: ZoneId) -> u64 {
        let alone: u64 = (0..layout.drives).map(|slot| self.parity_alone(layout, id, Slot(slot))).sum();
        self.patches.rows() + alone * layout.unit
    }

    /// Ends a zone that takes no more writes behind its torn stripe, and forgets relocated parity of stripes above. False where
    /// the zone has no torn stripe, or no such parity.
    pub(crate) fn end_at_torn(&mut self, layout: &Layout, block: usize, id: ZoneId) -> bool {
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
        for slot in self.patches.slots() {
            let used = layout.used(id, slot, end);
            self.patches.cut(block, slot, used, used);
        }
        true
    }

    /// What a checkpoint says of it.
    pub(crate) fn entry(&self) -> ZoneEntry {
        let end = match self.state {
            ZoneState::Offline => Some(ZoneEntry::LOST),
            // A worn one of which a mount found nothing holds nothing once its drive is replaced.
            ZoneState::ReadOnly => self.end.filter(|end| *end > Blocks::ZERO),
            _ => self.end,
        };
        ZoneEntry { generation: self.generation, end }
    }

    /// Whether nothing of it is left for a new drive: its reset is on its way, or failed, and is brought to its end by the
    /// next mount; or two drives lack their parts of it.
    pub(crate) fn has_nothing_left(&self) -> bool {
        self.resetting || self.state == ZoneState::Offline
    }

    /// Everything below is acknowledged: it lies on the drives with its parity, and stays until a reset.
    pub(crate) fn acknowledged(&self) -> Blocks {
        match self.flights.is_empty() && self.poison.is_none() {
            true => self.pointer,
            false => self.covered,
        }
    }

    /// The stripe at the pointer, if it is partly written and its parity is not in its place.
    pub(crate) fn open_stripe(&self, layout: &Layout) -> Option<Stripe> {
        (!self.parity.is_empty()).then(|| layout.stripe_of(self.pointer))
    }

    /// A write takes off.
    pub(crate) fn take_off(
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
        self.flights.push_back(Flight {
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

    /// The write that took off last made a stripe whole.
    pub(crate) fn made_whole(&mut self, stripe: Stripe, parity: &Buf) {
        if let Some(flight) = self.flights.back_mut() {
            flight.parities.push((stripe, parity.clone()));
        }
    }

    /// Whether something of a stripe is in flight: what its drives hold, and its parity in memory or in its place, do
    /// not fit each other then.
    pub(crate) fn flies_over(&self, layout: &Layout, stripe: Stripe) -> bool {
        !self.flights.is_empty() && self.pointer > self.covered && layout.end(stripe) > self.covered
    }

    /// What is in flight of the blocks `start..end`: where it begins, and the data.
    pub(crate) fn flying(&self, start: Blocks, end: Blocks) -> impl Iterator<Item = (Blocks, Buf)> + '_ {
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

    /// The parity of what is acknowledged of a stripe over which something flies. Longer than the first unit's part
    /// perhaps: by zeros.
    pub(crate) fn parity_below(&self, layout: &Layout, block: usize, stripe: Stripe) -> BufMut {
        let whole = self.flights.iter().flat_map(|flight| &flight.parities).find(|(of, _)| *of == stripe);
        let all: &[u8] = match whole {
            Some((_, parity)) => parity,
            None if self.open_stripe(layout) == Some(stripe) => &self.parity,
            None => &[],
        };
        let mut parity = BufMut::with_capacity(all.len());
        parity.extend_from_slice(all);
        for (at, data) in self.flying(layout.start(stripe), layout.end(stripe)) {
            // Any zone will do: what counts are rows.
            for piece in layout.pieces(ZoneId(0), at, (data.len() / block) as u64) {
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

    /// In a poisoned zone: what was never acknowledged is taken back, from memory too. Before any flight is released.
    pub(crate) fn take_back(&mut self, layout: &Layout, block: usize) {
        if self.poison.is_none() || self.flights.is_empty() || self.pointer <= self.covered {
            return;
        }
        let stripe = layout.stripe_of(self.covered);
        let rows = layout.filled(stripe, 0, self.covered);
        self.parity = match rows {
            0 => BufMut::default(),
            rows => {
                let mut parity = self.parity_below(layout, block, stripe);
                parity.truncate(rows as usize * block);
                parity
            }
        };
        self.pointer = self.covered;
        self.logged = self.covered;
        self.relocated.retain(|_, parity| parity.end <= self.pointer);
    }

    /// What landed on a drive is durable after its flush `number`.
    pub(crate) fn stamp(&mut self, slot: Slot, number: u64) {
        if self.stamps.len() <= slot.index() {
            self.stamps.resize(slot.index() + 1, 0);
        }
        if let Some(stamp) = self.stamps.get_mut(slot.index()) {
            *stamp = number.max(*stamp);
        }
    }

    /// The flush of a drive that makes durable what the zone has there.
    pub(crate) fn stamp_of(&self, slot: Slot) -> u64 {
        self.stamps.get(slot.index()).copied().unwrap_or(0)
    }

    /// Whether a write that ends at or below `offset` is still on its way.
    pub(crate) fn flies_below(&self, offset: Blocks) -> bool {
        self.flights.get(self.landed.0).is_some_and(|flight| flight.end <= offset)
    }

    /// Parity for everything below `end` was submitted, or needs not be (`done`).
    pub(crate) fn commit(&mut self, end: Blocks, done: bool) {
        self.logged = self.logged.max(end);
        self.commits.push_back(Commit { end, done });
    }

    /// The parity for everything below `end` is there.
    pub(crate) fn committed(&mut self, end: Blocks) {
        for commit in self.commits.iter_mut().filter(|commit| commit.end == end) {
            commit.done = true;
        }
    }

    /// The blocks of a write are on their drives.
    pub(crate) fn land(&mut self, id: u64) {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
            flight.landed = true;
        }
        while let Some(flight) = self.flights.get(self.landed.0).filter(|flight| flight.landed) {
            self.landed = (self.landed.0 + 1, flight.end);
        }
    }

    /// Completes `completer` once everything submitted so far is acknowledged, or never will be.
    pub(crate) fn barrier(&mut self, completer: Completer) {
        self.barriers.push((self.pointer, completer));
    }

    /// Takes out the barriers that fall.
    pub(crate) fn fallen(&mut self) -> Vec<Completer> {
        let (covered, idle) = (self.covered, self.flights.is_empty());
        let falls = |target: Blocks| idle || target <= covered;
        let (fallen, standing) =
            std::mem::take(&mut self.barriers).into_iter().partition(|(at, _)| falls(*at));
        self.barriers = standing;
        let fallen: Vec<(Blocks, Completer)> = fallen;
        fallen.into_iter().map(|(_, completer)| completer).collect()
    }

    /// Takes out the writes that may be acknowledged now. In a poisoned zone: all that have come to an end.
    pub(crate) fn release(&mut self) -> Vec<Flight> {
        let mut out = Vec::new();
        if self.poison.is_some() {
            let (ended, flying): (Vec<_>, Vec<_>) = self.flights.drain(..).partition(|flight| flight.landed);
            self.flights = flying.into();
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

    struct Ground {
        zone: Zone,
        ids: Vec<u64>,
    }

    fn ground(ends: &[u64]) -> Ground {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let mut zone = Zone::new(ZoneState::ImplicitOpen, 1, Blocks::ZERO, BufMut::default());
        let ids = ends
            .iter()
            .map(|end| {
                let (completer, io) = Io::pair(&driver, &Arc::from("dev"));
                drop(io);
                zone.take_off(Blocks(*end), Buf::copy_from(&[0]), Durability::Cached, Done::Unit, completer)
            })
            .collect();
        Ground { zone, ids }
    }

    impl Ground {
        fn released(&mut self) -> Vec<u64> {
            self.zone.release().into_iter().map(|flight| flight.end.0).collect()
        }
    }

    #[test]
    fn writes_are_acknowledged_in_order() {
        let mut g = ground(&[1, 2, 3]);
        for end in 1..=3 {
            g.zone.commit(Blocks(end), true);
        }
        g.zone.land(g.ids[2]);
        g.zone.land(g.ids[1]);
        assert_eq!(g.released(), []);
        g.zone.land(g.ids[0]);
        assert_eq!(g.released(), [1, 2, 3]);
        assert_eq!(g.zone.in_flight, 0);
    }

    #[test]
    fn a_write_waits_for_parity_and_for_all_that_the_parity_covers() {
        let mut g = ground(&[1, 2, 3]);
        g.zone.commit(Blocks(3), false);
        g.zone.land(g.ids[0]);
        g.zone.land(g.ids[1]);
        g.zone.committed(Blocks(3));
        assert_eq!(g.released(), [], "the parity is of no use without block 3");
        g.zone.land(g.ids[2]);
        assert_eq!(g.released(), [1, 2, 3]);
    }

    #[test]
    fn a_commit_does_not_overtake_the_one_before() {
        let mut g = ground(&[1, 4]);
        g.zone.commit(Blocks(1), false);
        g.zone.commit(Blocks(4), false);
        g.zone.land(g.ids[0]);
        g.zone.land(g.ids[1]);
        g.zone.committed(Blocks(4));
        assert_eq!(g.released(), []);
        g.zone.committed(Blocks(1));
        assert_eq!(g.released(), [1, 4]);
    }
}
