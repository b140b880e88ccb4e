//! md's stripe cache, without I/O: the drives' commands for the blocks that clients write, and for reads while a drive is lost.
//!
//! A *row* is a block of each drive at the same address, md's stripe head; rows of one stripe are the bits of a mask. A row
//! whose data is all in the cache is written with its parity, and nothing is read. A row that lacks data waits while whole rows
//! are written, but for no more than [`MAX_BYPASSES`] of them, and while other rows read; then it reads what takes fewer drives: old
//! data and parity, or the missing data. Blocks that were read or written stay in the cache.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::published::DRIVES;

#[cfg(test)]
mod tests;

/// A set of rows of a stripe, a bit for each: a chunk has 32 blocks at most.
pub(super) type Rows = u32;

/// Number of whole stripes that may overtake a waiting row.
const MAX_BYPASSES: u32 = 1;
/// Number of rows of the cache: 128 MiB of each drive, the paper's setting.
const CACHE_ROWS: usize = 32_768;

/// A command to one drive: neighbouring rows of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub stripe: u64,
    pub drive: usize,
    pub rows: Rows,
    pub write: bool,
}

/// The part of a client's request in one drive's chunk.
#[derive(Clone, Copy, Debug)]
struct Piece {
    id: u64,
    drive: usize,
    write: bool,
    left: Rows,
    /// Rows of a write's piece that are taken to be written.
    taken: Rows,
}

#[derive(Debug, Default)]
struct Stripe {
    blocks: [Blocks; DRIVES],
    /// Rows that are written whole, and incomplete rows that may read.
    whole: Rows,
    active: Rows,
    pieces: Vec<Piece>,
}

/// The blocks that one drive has of a stripe.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    /// Blocks in the cache.
    here: Rows,
    reading: Rows,
    /// Blocks that a client wrote and no drive is writing yet.
    dirty: Rows,
    writing: Rows,
}

/// md's cache of stripes.
#[derive(Debug)]
pub(super) struct Stripes {
    lost: Option<usize>,
    most: usize,
    stripes: HashMap<u64, Stripe>,
    /// Stripes in the order of their arrival.
    order: VecDeque<u64>,
    /// Stripes to handle, and stripes with rows that wait.
    ready: BTreeSet<u64>,
    waiting: BTreeSet<u64>,
    /// Numbers of rows that are written whole, and of incomplete rows that may read.
    whole: u32,
    active: u32,
    bypassed: u32,
}

/// The drive of a stripe's parity (`None`), or of its `n`th chunk of data: left-symmetric.
pub(super) fn place(stripe: u64, chunk: Option<u64>) -> usize {
    let drives = DRIVES as u64;
    let parity = drives - 1 - stripe % drives;
    let drive = chunk.map_or(parity, |n| (parity + 1 + n) % drives);
    usize::try_from(drive).expect("less than the drives")
}

/// Splits a mask into its runs of neighbouring rows, each a mask of its own.
fn runs_of_rows(rows: Rows) -> impl Iterator<Item = Rows> {
    let mut left = u64::from(rows);
    std::iter::from_fn(move || {
        let first = left & left.wrapping_neg();
        // Adding to the lowest bit carries over its run.
        let run = left & !(left + first);
        left &= !run;
        (run != 0).then(|| Rows::try_from(run).expect("a part of the mask"))
    })
}

impl Stripe {
    fn any(&self, of: impl Fn(&Blocks) -> Rows) -> Rows {
        self.blocks.iter().fold(0, |rows, blocks| rows | of(blocks))
    }

    /// Rows of a stripe all of whose data is in the cache.
    fn complete_rows(&self, parity: usize) -> Rows {
        let data = self.blocks.iter().enumerate().filter(|(drive, _)| *drive != parity);
        data.fold(Rows::MAX, |rows, (_, blocks)| rows & blocks.dirty)
    }

    /// The drives to read before a row can be written: those of old data and parity, or those of the missing data.
    fn drives_to_read(&self, row: Rows, parity: usize) -> Vec<usize> {
        let absent = |drive: &usize| self.blocks.get(*drive).is_some_and(|blocks| blocks.here & row == 0);
        let dirty = |drive: &usize| self.blocks.get(*drive).is_some_and(|blocks| blocks.dirty & row != 0);
        let modify = |drive: &usize| absent(drive) && (*drive == parity || dirty(drive));
        let missing = |drive: &usize| absent(drive) && *drive != parity && !dirty(drive);
        let modify: Vec<usize> = (0..DRIVES).filter(modify).collect();
        let missing: Vec<usize> = (0..DRIVES).filter(missing).collect();
        if missing.len() <= modify.len() { missing } else { modify }
    }

    fn is_idle(&self) -> bool {
        self.pieces.is_empty() && self.any(|blocks| blocks.reading | blocks.writing | blocks.dirty) == 0
    }

    /// Takes rows of a drive to be written.
    fn take(&mut self, drive: usize, rows: Rows) {
        if let Some(blocks) = self.blocks.get_mut(drive) {
            blocks.writing |= rows;
            blocks.here |= rows;
            blocks.dirty &= !rows;
        }
        for piece in self.pieces.iter_mut().filter(|piece| piece.write && piece.drive == drive) {
            piece.taken |= piece.left & rows;
        }
    }
}

/// Commands to the drives, and the requests of which a piece is done.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub commands: Vec<Command>,
    pub finished: Vec<u64>,
}

impl Outcome {
    fn command(&mut self, stripe: u64, drive: usize, rows: Rows, write: bool) {
        self.commands.extend(runs_of_rows(rows).map(|rows| Command { stripe, drive, rows, write }));
    }
}

impl Stripes {
    /// An empty cache of an array whose chunks have `rows` rows; `lost` is a lost drive.
    pub(super) fn new(rows: u32, lost: Option<usize>) -> Stripes {
        Stripes {
            lost,
            most: CACHE_ROWS / rows as usize,
            stripes: HashMap::new(),
            order: VecDeque::new(),
            ready: BTreeSet::new(),
            waiting: BTreeSet::new(),
            whole: 0,
            active: 0,
            bypassed: 0,
        }
    }

    /// Adds a piece of a request: rows of the chunk that a drive has of a stripe. The next [`Stripes::handle`] handles it.
    pub(super) fn request(&mut self, id: u64, write: bool, stripe: u64, drive: usize, rows: Rows) {
        if !self.stripes.contains_key(&stripe) {
            self.make_room();
            self.order.push_back(stripe);
        }
        let entry = self.stripes.entry(stripe).or_default();
        entry.pieces.push(Piece { id, drive, write, left: rows, taken: 0 });
        if let Some(blocks) = entry.blocks.get_mut(drive).filter(|_| write) {
            blocks.dirty |= rows;
        }
        self.ready.insert(stripe);
    }

    fn make_room(&mut self) {
        for _ in 0..self.order.len() {
            if self.stripes.len() < self.most {
                return;
            }
            let Some(oldest) = self.order.pop_front() else { return };
            if self.stripes.get(&oldest).is_some_and(Stripe::is_idle) {
                self.stripes.remove(&oldest);
            } else {
                self.order.push_back(oldest);
            }
        }
    }

    /// The commands to the drives for the requests so far.
    pub(super) fn handle(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(stripe) = self.ready.pop_first() {
            self.handle_stripe(stripe, &mut outcome);
            if self.ready.is_empty()
                && self.active == 0
                && (self.whole == 0 || self.bypassed > MAX_BYPASSES)
                && !self.waiting.is_empty()
            {
                self.bypassed = 0;
                for waiting in std::mem::take(&mut self.waiting) {
                    if let Some(stripe) = self.stripes.get_mut(&waiting) {
                        stripe.active = stripe.any(|blocks| blocks.dirty);
                        self.active += stripe.active.count_ones();
                    }
                    self.ready.insert(waiting);
                }
            }
        }
        outcome
    }

    fn handle_stripe(&mut self, id: u64, outcome: &mut Outcome) {
        let Some(stripe) = self.stripes.get_mut(&id) else { return };
        let parity = place(id, None);
        read_for_clients(stripe, id, self.lost, outcome);
        let busy = stripe.any(|blocks| blocks.reading | blocks.writing);
        let full = stripe.complete_rows(parity) & !busy;
        if full != 0 {
            // Rows that were about to read are complete now.
            self.active -= (stripe.active & full).count_ones();
            stripe.active &= !full;
            stripe.whole |= full;
            self.whole += full.count_ones();
            self.bypassed += u32::from(!self.waiting.is_empty());
            for drive in 0..DRIVES {
                stripe.take(drive, full);
                outcome.command(id, drive, full, true);
            }
        }
        // The rows to read and to write, by drive.
        let mut wanted: BTreeMap<(usize, bool), Rows> = BTreeMap::new();
        for row in (0..Rows::BITS).map(|n| 1 << n).filter(|row| stripe.active & !busy & row != 0) {
            let lacks = stripe.drives_to_read(row, parity);
            let write = lacks.is_empty();
            let dirty = |(drive, blocks): (usize, &Blocks)| {
                (drive == parity || blocks.dirty & row != 0).then_some(drive)
            };
            let drives =
                if write { stripe.blocks.iter().enumerate().filter_map(dirty).collect() } else { lacks };
            drives.into_iter().for_each(|drive| *wanted.entry((drive, write)).or_default() |= row);
        }
        for ((drive, write), rows) in wanted {
            if write {
                stripe.take(drive, rows);
            } else if let Some(blocks) = stripe.blocks.get_mut(drive) {
                blocks.reading |= rows;
            }
            outcome.command(id, drive, rows, write);
        }
        if stripe.any(|blocks| blocks.dirty) & !stripe.active != 0 {
            self.waiting.insert(id);
        } else {
            self.waiting.remove(&id);
        }
    }

    /// Ends a command; gives the requests that it completes.
    pub(super) fn done(&mut self, command: &Command) -> Vec<u64> {
        let Command { stripe: id, drive, rows, write } = *command;
        let Some(stripe) = self.stripes.get_mut(&id) else { return Vec::new() };
        self.ready.insert(id);
        if let Some(blocks) = stripe.blocks.get_mut(drive) {
            if write {
                blocks.writing &= !rows;
            } else {
                blocks.reading &= !rows;
                blocks.here |= rows;
            }
        }
        if !write {
            return Vec::new();
        }
        let written = rows & !stripe.any(|blocks| blocks.writing);
        self.whole -= (stripe.whole & written).count_ones();
        self.active -= (stripe.active & written).count_ones();
        stripe.whole &= !written;
        stripe.active &= !written;
        for piece in &mut stripe.pieces {
            piece.left &= !(piece.taken & written);
            piece.taken &= !written;
        }
        remove_finished_pieces(stripe)
    }
}

/// Reads the blocks that clients read, and the blocks that a lost drive's blocks are computed from.
fn read_for_clients(stripe: &mut Stripe, id: u64, lost: Option<usize>, outcome: &mut Outcome) {
    let others = |stripe: &Stripe| {
        let others = stripe.blocks.iter().enumerate().filter(|(drive, _)| Some(*drive) != lost);
        others.fold(Rows::MAX, |rows, (_, blocks)| rows & blocks.here)
    };
    let computed = others(stripe);
    let mut wanted = [0; DRIVES];
    let Stripe { blocks, pieces, .. } = stripe;
    for piece in pieces.iter_mut().filter(|piece| !piece.write) {
        let is_lost = lost == Some(piece.drive);
        let here = if is_lost { computed } else { blocks.get(piece.drive).map_or(0, |blocks| blocks.here) };
        piece.left &= !here;
        for (drive, wanted) in wanted.iter_mut().enumerate() {
            if drive == piece.drive && !is_lost || is_lost && Some(drive) != lost {
                *wanted |= piece.left;
            }
        }
    }
    for (drive, (wanted, blocks)) in wanted.into_iter().zip(blocks).enumerate() {
        let rows = wanted & !(blocks.here | blocks.reading | blocks.writing);
        blocks.reading |= rows;
        outcome.command(id, drive, rows, false);
    }
    outcome.finished.extend(remove_finished_pieces(stripe));
}

/// Removes and gives the pieces of a stripe that are done.
fn remove_finished_pieces(stripe: &mut Stripe) -> Vec<u64> {
    let done = stripe.pieces.iter().filter(|piece| piece.left == 0).map(|piece| piece.id).collect();
    stripe.pieces.retain(|piece| piece.left != 0);
    done
}
