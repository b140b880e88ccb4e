//! Which pages a page cache should keep: hit ratios of policies of replacement, replayed over the calls that RocksDB's files made of the page
//! cache while YCSB's load, A, C and D ran on the drive model `zn540`.
//!
//! `cargo bench -p furrow-bench --features cache-trace --bench cache_policies [RECORDS]`

#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;

use bench::ycsb::{self, Workload, YcsbLoad};
use foldhash::fast::FixedState;
use fs::CacheEvent;
use quick_cache::OptionsBuilder;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use units::Bytes;

/// A page: the file's inode, and the page's number in the file.
type Page = (u64, u64);

/// A policy of replacement with room for a number of pages.
trait Policy {
    /// Reads a page, and takes it in if it is not there. True if it was there.
    fn read(&mut self, page: Page) -> bool;
    /// Takes in a page that was written.
    fn store(&mut self, page: Page);
    fn remove(&mut self, page: Page);
}

/// A queue of pages in order of their last move to its end.
#[derive(Default)]
struct Queue {
    order: BTreeMap<u64, Page>,
    at: HashMap<Page, u64>,
    next: u64,
}

impl Queue {
    fn has(&self, page: Page) -> bool {
        self.at.contains_key(&page)
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    fn push(&mut self, page: Page) {
        self.remove(page);
        self.order.insert(self.next, page);
        self.at.insert(page, self.next);
        self.next += 1;
    }

    fn pop(&mut self) -> Option<Page> {
        let (_, page) = self.order.pop_first()?;
        self.at.remove(&page);
        Some(page)
    }

    fn remove(&mut self, page: Page) -> bool {
        self.at.remove(&page).is_some_and(|at| self.order.remove(&at).is_some())
    }
}

/// The page read or written longest ago leaves first.
struct Lru {
    room: usize,
    pages: Queue,
}

impl Policy for Lru {
    fn read(&mut self, page: Page) -> bool {
        let hit = self.pages.has(page);
        self.store(page);
        hit
    }

    fn store(&mut self, page: Page) {
        self.pages.push(page);
        while self.pages.len() > self.room {
            self.pages.pop();
        }
    }

    fn remove(&mut self, page: Page) {
        self.pages.remove(page);
    }
}

/// 2Q (Johnson and Shasha, 1994): pages seen once leave in the order of their arrival; a page that comes back while its name is remembered
/// is kept by its last use.
struct TwoQueues {
    room: usize,
    /// The most pages seen once.
    new_room: usize,
    new: Queue,
    names: Queue,
    kept: Queue,
}

impl TwoQueues {
    fn new(room: usize, new_room: usize) -> TwoQueues {
        TwoQueues { room, new_room, new: Queue::default(), names: Queue::default(), kept: Queue::default() }
    }

    fn make_room(&mut self) {
        while self.new.len() + self.kept.len() > self.room {
            if self.new.len() > self.new_room || self.kept.len() == 0 {
                if let Some(page) = self.new.pop() {
                    self.names.push(page);
                }
                if self.names.len() > self.room / 2 {
                    self.names.pop();
                }
            } else {
                self.kept.pop();
            }
        }
    }
}

impl Policy for TwoQueues {
    fn read(&mut self, page: Page) -> bool {
        if self.kept.has(page) {
            self.kept.push(page);
            return true;
        }
        let hit = self.new.has(page);
        self.store(page);
        hit
    }

    fn store(&mut self, page: Page) {
        if self.new.has(page) || self.kept.has(page) {
            return;
        }
        if self.names.remove(page) {
            self.kept.push(page)
        } else {
            self.new.push(page)
        }
        self.make_room();
    }

    fn remove(&mut self, page: Page) {
        self.new.remove(page);
        self.kept.remove(page);
        self.names.remove(page);
    }
}

/// The library's policy with a share of the room for pages used more than once.
struct Quick(Cache<Page, (), UnitWeighter, FixedState>);

impl Quick {
    fn new(room: usize, hot: f64) -> Quick {
        let options = OptionsBuilder::new()
            .shards(16)
            .hot_allocation(hot)
            .estimated_items_capacity(room)
            .weight_capacity(room as u64)
            .build()
            .unwrap();
        Quick(Cache::with_options(options, UnitWeighter, FixedState::default(), DefaultLifecycle::default()))
    }
}

impl Policy for Quick {
    fn read(&mut self, page: Page) -> bool {
        let hit = self.0.get(&page).is_some();
        if !hit {
            self.0.insert(page, ());
        }
        hit
    }

    fn store(&mut self, page: Page) {
        self.0.insert(page, ());
    }

    fn remove(&mut self, page: Page) {
        self.0.remove(&page);
    }
}

/// The library's policy, which takes in half of the runs of 64 pages that are written while it is full: one of the page cache's two rules.
struct HalfOfWrites(Quick);

impl Policy for HalfOfWrites {
    fn read(&mut self, page: Page) -> bool {
        self.0.read(page)
    }

    fn store(&mut self, (ino, page): Page) {
        let cache = &self.0.0;
        let has_room = cache.weight() < cache.capacity() / 50 * 49;
        if has_room || FixedState::default().hash_one((ino, page / 64)) & 1 == 0 {
            self.0.store((ino, page));
        }
    }

    fn remove(&mut self, page: Page) {
        self.0.remove(page);
    }
}

/// Replays the calls. The hit ratio of the reads from call `counted` on.
fn replay(policy: &mut dyn Policy, events: &[CacheEvent], counted: usize) -> f64 {
    let (mut reads, mut hits) = (0_u64, 0_u64);
    for (number, event) in events.iter().enumerate() {
        match event {
            CacheEvent::Read(ino, page) => {
                let hit = policy.read((*ino, *page));
                reads += u64::from(number >= counted);
                hits += u64::from(hit && number >= counted);
            }
            CacheEvent::Stored(ino, page) => policy.store((*ino, *page)),
            CacheEvent::Removed(ino, pages) => pages.clone().for_each(|page| policy.remove((*ino, page))),
        }
    }
    hits as f64 / reads.max(1) as f64
}

fn main() {
    let records: u64 = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(1_000_000);
    let load = |workloads: Vec<Workload>| YcsbLoad {
        device: "emu:mem?profile=zn540&zones=256&zone-size=32MiB&zone-capacity=32MiB".to_owned(),
        workloads,
        records,
        operations: records,
        write_buffer: Some(Bytes(records * 1000 / 120)),
        table_size: Some(Bytes(records * 1000 / 30)),
        block_cache: Some(Bytes(records * 1000 / 120)),
        cache: Bytes(4 << 20),
        force: true,
        ..YcsbLoad::default()
    };
    let data_pages = usize::try_from(records * 1024 / 4096).unwrap();
    println!("records {records}, pages of data {data_pages}");
    for workload in [Workload::Load, Workload::A, Workload::C, Workload::D] {
        let workloads =
            if workload == Workload::Load { vec![workload] } else { vec![Workload::Load, workload] };
        // The load fills the cache for the other workloads, and its reads do not count then.
        let (recorded, counted) = (RefCell::new(Vec::new()), Cell::new(0));
        ycsb::run(&load(workloads), &|phase| {
            if phase.workload == workload {
                counted.set(recorded.borrow().len());
            }
            recorded.borrow_mut().extend(fs::take_cache_events());
        })
        .unwrap();
        let (recorded, counted): (Vec<CacheEvent>, usize) = (recorded.into_inner(), counted.get());
        println!("workload {workload}: {} calls", recorded.len());
        for share in [0.1, 0.4, 0.7] {
            let room = (data_pages as f64 * share) as usize;
            print!("  {share}: ");
            let mut policies: Vec<(String, Box<dyn Policy>)> = vec![
                ("lru".to_owned(), Box::new(Lru { room, pages: Queue::default() })),
                ("2q".to_owned(), Box::new(TwoQueues::new(room, room / 4))),
                ("2q-half".to_owned(), Box::new(TwoQueues::new(room, room / 2))),
            ];
            for hot in [0.75, 0.5, 0.25, 0.1, 0.02] {
                policies.push((format!("quick {hot}"), Box::new(Quick::new(room, hot))));
            }
            for hot in [0.5, 0.1] {
                policies.push((format!("half {hot}"), Box::new(HalfOfWrites(Quick::new(room, hot)))));
            }
            for (name, mut policy) in policies {
                print!("{name} {:.3}  ", replay(&mut *policy, &recorded, counted));
            }
            println!();
        }
    }
}
