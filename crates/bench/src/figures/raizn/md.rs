//! md's RAID-5 over conventional drives, **as a model**: nothing here is a measurement of md.
//!
//! A conventional drive is a log of erase blocks under a map of pages. Host and garbage collection write to it; when
//! no erase block is free the one with the fewest valid pages is emptied: its valid pages are written again, and that
//! takes the bandwidth that the host does not get. Pages of streams that are written at the same time lie in the same
//! erase blocks; what is moved goes to erase blocks of its own. That is all: no wear levelling, no caches, and reading of what is moved costs nothing.
//!
//! The array above writes whole stripes at the bandwidth of four drives, each at its own; a rebuild writes the whole
//! of the new drive, whatever is on it. Its drives carry 2 % more writes and 4 % more reads than the zoned ones
//! (section 4.4.1).

/// Bandwidth of one conventional drive, in MiB/s: the paper's 1,052 and 3,265 of the zoned one, 2 % and 4 % higher.
pub(super) const WRITE: f64 = 1052.0 / 0.98;
pub(super) const READ: f64 = 3265.0 / 0.96;
/// 4 KiB reads of a drive, thousand a second: those of the zoned one's profile.
pub(super) const READ_KIOPS: f64 = 437.0;

/// Pages of an erase block, and blocks that the host sees. Small beside a drive: shares do not depend on it.
const PAGES: usize = 256;
const VISIBLE: usize = 800;
/// Erase blocks beyond those, in percent: usual for drives of the kind.
const SPARE_PERCENT: usize = 7;
/// Free erase blocks that collection keeps.
const RESERVE: usize = 2;
const NOWHERE: u32 = u32::MAX;

/// A conventional drive.
#[derive(Debug)]
pub(super) struct Drive {
    /// Where a page of the host's lies.
    map: Vec<u32>,
    /// Which page of the host's lies there.
    holds: Vec<u32>,
    valid: Vec<usize>,
    free: Vec<usize>,
    /// The erase blocks that the host and collection write, and their next pages.
    open: [(usize, usize); 2],
    /// Pages that collection wrote.
    pub moved: u64,
}

impl Drive {
    pub(super) fn new() -> Drive {
        let blocks = VISIBLE + VISIBLE * SPARE_PERCENT / 100;
        Drive {
            map: vec![NOWHERE; VISIBLE * PAGES],
            holds: vec![NOWHERE; blocks * PAGES],
            valid: vec![0; blocks],
            free: (2..blocks).rev().collect(),
            open: [(0, 0), (1, 0)],
            moved: 0,
        }
    }

    /// Pages that the host sees.
    pub(super) fn pages(&self) -> usize {
        self.map.len()
    }

    /// The host writes a page.
    pub(super) fn write(&mut self, page: usize) {
        while self.free.len() < RESERVE {
            self.collect();
        }
        let [host, _] = &mut self.open;
        let place = next(host, &mut self.free);
        self.put(page, place);
    }

    fn put(&mut self, page: usize, place: usize) {
        let block = place / PAGES;
        if let Some(entry) = self.map.get_mut(page) {
            let before = std::mem::replace(entry, u32::try_from(place).expect("a small drive"));
            if let Some(valid) = self.valid.get_mut(before as usize / PAGES).filter(|_| before != NOWHERE) {
                *valid -= 1;
            }
        }
        if let (Some(holds), Some(valid)) = (self.holds.get_mut(place), self.valid.get_mut(block)) {
            *holds = u32::try_from(page).expect("a small drive");
            *valid += 1;
        }
    }

    /// Empties the erase block with the fewest valid pages.
    fn collect(&mut self) {
        let closed =
            |block: &usize| self.open.iter().all(|(open, _)| open != block) && !self.free.contains(block);
        let victim = (0..self.valid.len()).filter(closed).min_by_key(|block| self.valid.get(*block).copied());
        let Some(victim) = victim else { return };
        let held: Vec<u32> =
            self.holds.get(victim * PAGES..(victim + 1) * PAGES).unwrap_or_default().to_vec();
        for (place, page) in (victim * PAGES..).zip(held) {
            if self.map.get(page as usize).is_some_and(|at| *at as usize == place) {
                let [_, moved] = &mut self.open;
                let to = next(moved, &mut self.free);
                self.put(page as usize, to);
                self.moved += 1;
            }
        }
        self.free.insert(0, victim);
    }
}

/// The next page of an open erase block, or of a fresh one.
fn next(open: &mut (usize, usize), free: &mut Vec<usize>) -> usize {
    if open.1 == PAGES {
        *open = (free.pop().expect("collection keeps some"), 0);
    }
    open.1 += 1;
    open.0 * PAGES + open.1 - 1
}

/// Shares of the bandwidth that the host gets while the drive is filled by `streams` at the same time, and then
/// overwritten by one, at each of `points` of either.
pub(super) fn overwritten(streams: usize, points: usize) -> Vec<f64> {
    let mut drive = Drive::new();
    let (pages, mut shares) = (drive.pages(), Vec::new());
    let each = pages / streams;
    let mut order: Vec<usize> = (0..each).flat_map(|n| (0..streams).map(move |s| s * each + n)).collect();
    for _ in 0..2 {
        for part in order.chunks(pages.div_ceil(points)) {
            let before = drive.moved;
            part.iter().for_each(|page| drive.write(*page));
            shares.push(part.len() as f64 / (part.len() as f64 + (drive.moved - before) as f64));
        }
        order.sort_unstable();
    }
    shares
}

/// Seconds of a rebuild: the whole new drive is written, however much of it is data.
pub(super) fn rebuild_seconds(capacity_gib: f64) -> f64 {
    capacity_gib * 1024.0 / WRITE
}

/// Streams that RocksDB writes at the same time: its log, flushes and compactions.
const ROCKSDB_STREAMS: usize = 3;
/// What one of the array's drives writes beside `zn540`, whose profile has 1,145 MiB/s.
const PROFILE_WRITE: f64 = 1145.0 / 0.98;

/// The share of the bandwidth of writes that is RocksDB's once the drives were full: the mean over a whole overwriting.
pub(super) fn collecting() -> f64 {
    let points = 40;
    let shares = overwritten(ROCKSDB_STREAMS, points);
    let late = shares.get(points..).unwrap_or_default();
    // Equal parts: times add up, not shares.
    late.len() as f64 / late.iter().map(|share| 1.0 / share).sum::<f64>()
}

/// The array as the profile of one emulated drive: `zn540` without the costs of zones, with `share` of four drives'
/// bandwidth of writes, five drives' dies and bandwidth of reads. Nothing is ever read for parity.
pub(super) fn profile(share: f64) -> String {
    let (write, read) = (4.0 * PROFILE_WRITE * share, 5.0 * READ);
    let bytes = |mib: f64| (mib * 1048576.0) as u64;
    format!(
        r#"# md's RAID-5 over five conventional drives, as a model.
[geometry]
block-size = "4KiB"
zone-size = "8GiB"
zone-capacity = "4308MiB"
max-append = "1MiB"
max-open = 14
max-active = 14
cache = "none"

[write]
acknowledge = "buffer"
latency = "6.1us"
per-kib = "0.16us"
least = "8KiB"
controller = "1.36us"
bandwidth = "{}B"
buffer = "8MiB"

[append]
latency = "9us"
controller = "1.79us"

[flash]
channels = 40
dies = 4
planes = 1
page = "8KiB"
read = ["61us"]
program = ["172us"]
zones = "device"

[read]
latency = "0.5us"
per-kib = "2.42us"
per-kib-limit = "16KiB"
controller = "0.46us"
bandwidth = "{}B"

[flush]
latency = "5us"
"#,
        bytes(write),
        bytes(read)
    )
}
