//! The outcomes of a power cut. Each choice in this module is a freedom that ARCHITECTURE.md, "What survives
//! a power cut", leaves.

use std::collections::BTreeSet;

use units::SplitMix64;

use crate::emu::Media;
use crate::emu::content::{Content, Pool};
use crate::emu::history::{Epoch, History, Pending, Rewrites};
use crate::emu::zone::{UndurableOps, Zone};
use crate::{Geometry, ZoneState};

/// Makes the choices that the device contract leaves to a drive at a power cut.
pub trait Choose {
    /// Makes a choice: returns a number below `options`, which is at least two.
    fn choose(&mut self, options: usize) -> usize;
}

/// Pseudo-random choices of a power cut's outcome.
#[derive(Clone, Debug)]
pub struct Seeded(SplitMix64);

impl Seeded {
    /// Choices of a power cut's outcome that follow from `seed`.
    pub fn new(seed: u64) -> Seeded {
        Seeded(SplitMix64::new(seed))
    }
}

impl Choose for Seeded {
    fn choose(&mut self, options: usize) -> usize {
        ((u128::from(self.0.draw()) * options as u128) >> 64) as usize
    }
}

/// Enumerates every combination of choices:
///
/// ```
/// # use zoned::emu::{Choose, Exhaustive};
/// let mut all = Exhaustive::new();
/// let mut seen = Vec::new();
/// while all.next() {
///     seen.push((all.choose(2), all.choose(3)));
/// }
/// assert_eq!(seen.len(), 6);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Exhaustive {
    /// The choices of the current combination: for each, the option taken and the number of options.
    path: Vec<(usize, usize)>,
    at: usize,
    begun: bool,
}

impl Exhaustive {
    /// An enumeration of choices that is before its first combination.
    pub fn new() -> Exhaustive {
        Exhaustive::default()
    }

    /// Advances to the next combination of choices; false after the last one.
    #[expect(clippy::should_implement_trait, reason = "it gives no item: the choices are the item")]
    pub fn next(&mut self) -> bool {
        self.at = 0;
        if !std::mem::replace(&mut self.begun, true) {
            return true;
        }
        while let Some((taken, of)) = self.path.pop() {
            if taken + 1 < of {
                self.path.push((taken + 1, of));
                return true;
            }
        }
        false
    }
}

impl Choose for Exhaustive {
    fn choose(&mut self, options: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, options));
        }
        let (taken, of) = *self.path.get(self.at).expect("just made");
        assert_eq!(of, options, "the same choices must be offered along the same path");
        self.at += 1;
        taken
    }
}

impl Media {
    /// One outcome of a power cut that happens now. The resulting medium has no pending operations and no
    /// open zones.
    pub fn cut(&self, choose: &mut dyn Choose) -> Media {
        // At a power cut a drive may set open zones to full.
        let open_zones = self.zones.iter().any(|slot| slot.0.lock().state.is_open());
        let fills = self.track && open_zones && choose.choose(2) == 1;
        let mut revived = Vec::new();
        let mut zones = Vec::with_capacity(self.zones.len());
        for (slot, index) in self.zones.iter().zip(0_u64..) {
            let zone = slot.0.lock();
            let mut after =
                Cut { geometry: &self.geometry, pool: &self.pool, choose, start: 0, seed: self.seed }
                    .zone(&zone, index * self.geometry.zone_size.0);
            if fills && zone.state.is_open() && after.state == ZoneState::Closed && choose.choose(2) == 1 {
                after.state = ZoneState::Full;
            }
            if after.state == ZoneState::Closed && zone.state != ZoneState::Closed {
                revived.push(zones.len());
            }
            zones.push(after);
        }
        // An undone reset restores an active zone. If more zones are active than allowed, the drive sets some of them
        // to full.
        if let Some(most) = self.geometry.max_active {
            let mut active = zones.iter().filter(|z| z.state.is_active()).count();
            while active > most as usize && !revived.is_empty() {
                let pick = if revived.len() > 1 { choose.choose(revived.len()) } else { 0 };
                if let Some(zone) = zones.get_mut(revived.swap_remove(pick)) {
                    zone.state = ZoneState::Full;
                }
                active -= 1;
            }
        }
        self.with_zones(zones)
    }
}

/// Computes the outcome of a power cut for one zone.
struct Cut<'a> {
    geometry: &'a Geometry,
    pool: &'a Pool,
    choose: &'a mut dyn Choose,
    /// The address of the zone's first block, so that garbage differs from block to block.
    start: u64,
    seed: u64,
}

/// True if append `write`, at position `origin`, may have landed in the lower position `slot`: no write between the
/// two was acknowledged before `write` was submitted, or else the pointer was above `slot` already.
fn may_pass(writes: &[Pending], slot: usize, origin: usize, write: &Pending) -> bool {
    writes
        .iter()
        .take(origin)
        .skip(slot)
        .all(|between| between.append && between.acked.is_none_or(|acked| acked >= write.born))
}

/// Content of a block whose write the power cut interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Garbage {
    Zeros,
    Noise,
}

impl Cut<'_> {
    fn zone(mut self, zone: &Zone, start: u64) -> Zone {
        self.start = start;
        let mut after = Zone { doubt: UndurableOps::None, ..zone.clone() };
        match &zone.doubt {
            UndurableOps::None => {
                if zone.state.is_active() {
                    after.state = if zone.written == 0 { ZoneState::Empty } else { ZoneState::Closed };
                }
            }
            UndurableOps::Sequential(history) => self.cut_sequential(zone, history, &mut after),
            UndurableOps::Conventional(rewrites) => after.content = self.cut_conventional(rewrites),
        }
        after
    }

    fn choose_one_of(&mut self, options: usize) -> usize {
        if options > 1 { self.choose.choose(options) } else { 0 }
    }

    fn cut_sequential(&mut self, zone: &Zone, history: &History, after: &mut Zone) {
        // Option 0 is the zone's newest epoch; each undone reset leads to the epoch before.
        let pick = self.choose_one_of(history.past.len() + 1);
        let (epoch, content) = match history.past.len().checked_sub(pick) {
            Some(index) if pick > 0 => {
                let epoch = history.past.get(index).expect("one of the past");
                (epoch, &epoch.content)
            }
            _ => (&history.now, &zone.content),
        };
        let finished = epoch.finish_durable || (epoch.finish.is_some() && self.choose_one_of(2) == 0);
        let reach = if finished {
            epoch.submitted
        } else {
            epoch.submitted - self.choose_one_of((epoch.submitted - epoch.durable) as usize + 1) as u64
        };
        let (content, reach) = self.cut_epoch(epoch, content, reach, finished);
        after.content = content;
        after.written = reach;
        after.state = match zone.state {
            worn @ (ZoneState::ReadOnly | ZoneState::Offline) => worn,
            _ if finished || reach >= self.geometry.zone_capacity.0 => ZoneState::Full,
            _ if reach == 0 => ZoneState::Empty,
            _ => ZoneState::Closed,
        };
    }

    /// The content of an epoch of a zone cut at `reach`, and the pointer lowered to what the atomic unit
    /// allows.
    fn cut_epoch(&mut self, epoch: &Epoch, content: &Content, reach: u64, finished: bool) -> (Content, u64) {
        let size = u64::from(self.geometry.block_size);
        let mut result = content.clone();
        let mut reach = reach;
        let mut garbage = None;
        for (write, at) in self.landing_addresses(&epoch.writes, reach) {
            if at != write.at {
                let mut data = vec![0; (write.len * size) as usize];
                content.read(self.pool, (write.at * size) as usize, &mut data);
                result.write(self.pool, (at * size) as usize, &data, false);
            }
            let mut piece = at;
            while piece < at + write.len && piece < reach {
                let next = self.piece_end(piece, at + write.len);
                if next > reach && !finished && !write.solid {
                    reach = piece;
                    break;
                }
                if !write.solid && write.acked.is_none() && self.choose_one_of(2) == 1 {
                    let kind = *garbage.get_or_insert_with(|| match self.choose_one_of(2) {
                        0 => Garbage::Noise,
                        _ => Garbage::Zeros,
                    });
                    self.overwrite_unlanded(&mut result, piece, next, kind);
                }
                piece = next;
            }
        }
        (result, reach)
    }

    /// End of the atomic unit that contains `at`, within a write that ends at `end`.
    fn piece_end(&self, at: u64, end: u64) -> u64 {
        let unit = self.geometry.atomic_write.0;
        ((at / unit + 1) * unit).min(end)
    }

    /// Every write of an epoch with its address after the power cut. Acknowledged writes keep their
    /// addresses. Appends in flight may have landed in any order: those between two acknowledged writes are
    /// permuted freely, and appends of equal length may swap places, unless one was submitted after a write
    /// between the two was acknowledged.
    fn landing_addresses<'w>(&mut self, writes: &'w [Pending], reach: u64) -> Vec<(&'w Pending, u64)> {
        let free = |w: &Pending| w.append && w.acked.is_none();
        let together = |a: &Pending, b: &Pending| free(a) && free(b) && a.solid == b.solid && a.end() == b.at;
        let mut runs = Vec::with_capacity(writes.len());
        for (index, write) in writes.iter().enumerate() {
            let joins = index
                .checked_sub(1)
                .and_then(|i| writes.get(i))
                .is_some_and(|before| together(before, write));
            let run = runs.last().map_or(0, |last| last + usize::from(!joins));
            runs.push(run);
        }
        let mut order: Vec<(usize, &Pending)> = writes.iter().enumerate().collect();
        let mut placed: Vec<(&Pending, u64)> = Vec::with_capacity(writes.len());
        for (slot, (write, run)) in writes.iter().zip(&runs).enumerate() {
            let joins = slot.checked_sub(1).and_then(|i| runs.get(i)) == Some(run);
            let at = placed.last().filter(|_| joins).map_or(write.at, |(last, at)| at + last.len);
            let (mine, here) = *order.get(slot).expect("one for each slot");
            // The order of appends above the pointer makes no difference.
            if free(here) && at < reach {
                let may_swap = |(place, (origin, other)): (usize, &(usize, &Pending))| {
                    let near = runs.get(place) == Some(run);
                    let far = free(other)
                        && other.len == here.len
                        && !other.solid
                        && !here.solid
                        && may_pass(writes, slot, *origin, other)
                        && writes.iter().take(place).skip(mine).all(|between| between.append);
                    (near || far).then_some(place)
                };
                let places: Vec<usize> = order.iter().enumerate().skip(slot).filter_map(may_swap).collect();
                let pick = self.choose_one_of(places.len());
                order.swap(slot, places.get(pick).copied().unwrap_or(slot));
            }
            placed.push((order.get(slot).expect("one for each slot").1, at));
        }
        placed
    }

    /// Overwrites blocks that never landed with noise or zeros, never with data of the host.
    fn overwrite_unlanded(&self, content: &mut Content, from: u64, to: u64, kind: Garbage) {
        let size = self.geometry.block_size as usize;
        for block in from..to {
            let mut data = vec![0; size];
            if kind == Garbage::Noise {
                let mut noise = Seeded::new(self.seed ^ ((self.start + block) << 8));
                data.fill_with(|| noise.choose(256) as u8);
            }
            content.write(self.pool, block as usize * size, &data, false);
        }
    }

    /// The outcome of a conventional zone: each block holds its old content or one of the new ones.
    fn cut_conventional(&mut self, rewrites: &Rewrites) -> Content {
        let size = self.geometry.block_size as usize;
        let mut content = rewrites.base.clone();
        let mut decided = BTreeSet::new();
        for piece in rewrites.pieces.iter().rev() {
            let end = piece.at + (piece.data.len() / size) as u64;
            let mut at = piece.at;
            while at < end {
                let next = self.piece_end(at, end);
                let open = (at..next).any(|block| !decided.contains(&block));
                if open && (piece.durable || self.choose_one_of(2) == 0) {
                    for block in at..next {
                        if decided.insert(block) {
                            let from = (block - piece.at) as usize * size;
                            let data = piece.data.get(from..from + size).expect("a block of the write");
                            content.write(self.pool, block as usize * size, data, true);
                        }
                    }
                }
                at = next;
            }
        }
        content
    }
}
