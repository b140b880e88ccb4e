//! Counts the operations of YCSB's workloads C and D that miss a page cache, which is full at the beginning, or empty, and keeps the pages used last:
//! `cache_bounds [RECORDS]`.
//!
//! Records lie in order of their keys, four to a block of the table, and a miss is an operation with a page that is not in memory. The full cache begins with
//! random pages. Reads of the youngest records (D) are answered by memtables. Compactions, and pages of tables that are written meanwhile, are left out.

use std::collections::{BTreeMap, HashMap};

use bench::ycsb::Distribution;
use bench::ycsb::keys::{Picker, below, scatter};
use units::SplitMix64;

/// Bytes of a record of 1,000 bytes in a table, with its key.
const RECORD_BYTES: u64 = 1045;
const RECORDS_PER_BLOCK: u64 = 4;
const PAGE_BYTES: u64 = 4096;
/// The cache's share of the pages: what a memory of 0.8 of the data leaves.
const ROOM: f64 = 0.72;
/// Records in a memtable, of each thousand records in all.
const MEMTABLE_PER_MILLE: u64 = 8;

/// The pages used last.
struct Lru {
    room: usize,
    order: BTreeMap<u64, u64>,
    used_at: HashMap<u64, u64>,
    now: u64,
}

impl Lru {
    fn new(room: usize) -> Lru {
        Lru { room, order: BTreeMap::new(), used_at: HashMap::new(), now: 0 }
    }

    /// Uses a page. True if the page was in memory.
    fn uses(&mut self, page: u64) -> bool {
        self.now += 1;
        let before = self.used_at.insert(page, self.now);
        before.map(|at| self.order.remove(&at));
        self.order.insert(self.now, page);
        if self.order.len() > self.room
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used_at.remove(&oldest);
        }
        before.is_some()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let records: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |arg| arg.parse())?;
    if records < 1_000 {
        return Err("at least 1000 records".into());
    }
    let pages = records * RECORD_BYTES / PAGE_BYTES;
    let room = (pages as f64 * ROOM) as usize;
    let mut by_key: Vec<u64> = (0..records).collect();
    by_key.sort_unstable_by_key(|record| scatter(*record));
    let mut place = vec![0; by_key.len()];
    for (at, record) in (0..).zip(&by_key) {
        if let Some(place) = place.get_mut(usize::try_from(*record)?) {
            *place = at;
        }
    }
    for (name, distribution) in [("C", Distribution::Zipfian), ("D", Distribution::Latest)] {
        let mut misses = Vec::new();
        for is_full in [true, false] {
            let (mut cache, mut random) = (Lru::new(room), SplitMix64::new(7));
            while is_full && cache.order.len() < room {
                cache.uses(below(&mut random, pages));
            }
            let mut picker = Picker::new(distribution, records, 0);
            let mut random = SplitMix64::new(1);
            let mut missed = 0_u64;
            for _ in 0..records {
                let record = picker.pick(&mut random, records);
                if distribution == Distribution::Latest
                    && record >= records - records * MEMTABLE_PER_MILLE / 1000
                {
                    continue;
                }
                let at: u64 = place.get(usize::try_from(record)?).copied().unwrap_or_default();
                let block = at / RECORDS_PER_BLOCK * RECORDS_PER_BLOCK * RECORD_BYTES;
                let last = (block + RECORDS_PER_BLOCK * RECORD_BYTES - 1) / PAGE_BYTES;
                let hits = (block / PAGE_BYTES..=last).filter(|page| cache.uses(*page)).count() as u64;
                missed += u64::from(hits < last + 1 - block / PAGE_BYTES);
            }
            misses.push(missed);
        }
        if let [full, empty] = misses[..] {
            println!(
                "{name}: {full} of {records} operations miss from a full cache on, {empty} from an empty one: {:.2}",
                empty as f64 / full as f64
            );
        }
    }
    Ok(())
}
