//! The flash translation layer of a conventional drive: a log of erase blocks under a map of pages.
//!
//! The host and garbage collection write to the log; when no erase block is free, the one with the fewest valid pages is
//! emptied: its valid pages are written again. Pages of streams that are written at the same time lie in the same erase blocks;
//! moved pages go to erase blocks of their own.

/// Number of pages of an erase block. The number of moved pages does not depend on it, as an erase block is small beside a
/// drive.
const PAGES_PER_ERASE_BLOCK: usize = 256;
/// Spare erase blocks in percent of the host's: usual for conventional drives.
const SPARE_PERCENT: usize = 7;
/// Number of free erase blocks that garbage collection keeps.
const RESERVED_ERASE_BLOCKS: usize = 2;
const UNMAPPED_PAGE: u32 = u32::MAX;

/// A drive's map of pages.
#[derive(Debug)]
pub(super) struct Ftl {
    /// The place in flash of each page of the host.
    map: Vec<u32>,
    /// The host's page in each place of flash.
    holds: Vec<u32>,
    valid: Vec<usize>,
    free: Vec<usize>,
    /// The erase blocks that the host and garbage collection write, and the next page of each.
    open: [(usize, usize); 2],
}

impl Ftl {
    /// The map of an empty drive of `pages` pages.
    pub(super) fn new(pages: u64) -> Ftl {
        let pages = usize::try_from(pages).expect("a small drive");
        let visible = pages.div_ceil(PAGES_PER_ERASE_BLOCK);
        let blocks = visible + (visible * SPARE_PERCENT / 100).max(2 * RESERVED_ERASE_BLOCKS);
        Ftl {
            map: vec![UNMAPPED_PAGE; pages],
            holds: vec![UNMAPPED_PAGE; blocks * PAGES_PER_ERASE_BLOCK],
            valid: vec![0; blocks],
            free: (2..blocks).rev().collect(),
            open: [(0, 0), (1, 0)],
        }
    }

    /// Writes a page of the host; returns the number of pages moved to make room for it.
    pub(super) fn write(&mut self, page: u64) -> u64 {
        let mut moved = 0;
        while self.free.len() < RESERVED_ERASE_BLOCKS {
            moved += self.collect_garbage();
        }
        let [host, _] = &mut self.open;
        let place = next(host, &mut self.free);
        self.put(usize::try_from(page).expect("a small drive"), place);
        moved
    }

    fn put(&mut self, page: usize, place: usize) {
        let block = place / PAGES_PER_ERASE_BLOCK;
        if let Some(entry) = self.map.get_mut(page) {
            let before = std::mem::replace(entry, u32::try_from(place).expect("a small drive"));
            if let Some(valid) = self
                .valid
                .get_mut(before as usize / PAGES_PER_ERASE_BLOCK)
                .filter(|_| before != UNMAPPED_PAGE)
            {
                *valid -= 1;
            }
        }
        if let (Some(holds), Some(valid)) = (self.holds.get_mut(place), self.valid.get_mut(block)) {
            *holds = u32::try_from(page).expect("a small drive");
            *valid += 1;
        }
    }

    /// Empties the erase block with the fewest valid pages; returns the number of pages moved.
    fn collect_garbage(&mut self) -> u64 {
        let closed =
            |block: &usize| self.open.iter().all(|(open, _)| open != block) && !self.free.contains(block);
        let victim = (0..self.valid.len()).filter(closed).min_by_key(|block| self.valid.get(*block).copied());
        let victim = victim.expect("there are more blocks than are open and free");
        let held: Vec<u32> = self
            .holds
            .get(victim * PAGES_PER_ERASE_BLOCK..(victim + 1) * PAGES_PER_ERASE_BLOCK)
            .unwrap_or_default()
            .to_vec();
        let mut pages = 0;
        for (place, page) in (victim * PAGES_PER_ERASE_BLOCK..).zip(held) {
            if self.map.get(page as usize).is_some_and(|at| *at as usize == place) {
                let [_, moved] = &mut self.open;
                let to = next(moved, &mut self.free);
                self.put(page as usize, to);
                pages += 1;
            }
        }
        self.free.insert(0, victim);
        pages
    }
}

/// The next page of an open erase block, or of a fresh one.
fn next(open: &mut (usize, usize), free: &mut Vec<usize>) -> usize {
    if open.1 == PAGES_PER_ERASE_BLOCK {
        *open = (free.pop().expect("collection keeps some"), 0);
    }
    open.1 += 1;
    open.0 * PAGES_PER_ERASE_BLOCK + open.1 - 1
}

/// Shares of the bandwidth that the host gets while a drive is filled by `streams` at the same time, and then overwritten by
/// one stream, at each of `points` of the filling and of the overwriting.
pub fn bandwidth_shares_of_overwriting(streams: u64, points: u64) -> Vec<f64> {
    let pages = 800 * PAGES_PER_ERASE_BLOCK as u64;
    let (mut drive, mut shares) = (Ftl::new(pages), Vec::new());
    let each = pages / streams;
    let mut order: Vec<u64> = (0..each).flat_map(|n| (0..streams).map(move |s| s * each + n)).collect();
    for _ in 0..2 {
        for part in order.chunks(usize::try_from(pages.div_ceil(points)).expect("a small drive")) {
            let moved: u64 = part.iter().map(|page| drive.write(*page)).sum();
            shares.push(part.len() as f64 / (part.len() as f64 + moved as f64));
        }
        order.sort_unstable();
    }
    shares
}
