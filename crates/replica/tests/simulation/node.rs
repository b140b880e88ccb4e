//! A node of a simulated group: a replica, its drive, its tables, its clock.

use std::collections::VecDeque;

use raft::eraftpb::{Entry, HardState};
use replica::{Base, Body, Command, Index, Replica, ReplicaId, Role, Term};
use units::{Instant, SplitMix64};

use crate::tables::{Parts, Record, Tables};

/// The rate of a clock's drift, in parts per million.
pub const DRIFT: u32 = 10_000;

/// The contents of a node's drive.
#[derive(Clone, Debug)]
pub struct Disk {
    pub base: Base,
    pub entries: Vec<Entry>,
    pub vote: HardState,
    pub tables: Tables,
}

impl Disk {
    /// Takes what a request asks for.
    pub fn take(&mut self, Request { base, entries, vote }: Request) {
        if let Some(base) = base {
            self.entries.clear();
            self.tables.applied = self.tables.applied.max(base.index);
            self.base = base;
        }
        if let Some(first) = entries.first() {
            self.entries.truncate((first.index - self.base.index.0) as usize - 1);
            self.entries.extend(entries);
        }
        if let Some(vote) = vote {
            self.vote = vote;
        }
    }

    /// True if the value that the entry of that index and term gave to the key lies in the log or in the tables.
    pub fn has_value(&self, key: u64, index: Index, term: Term) -> bool {
        let entry = self.entries.iter().find(|entry| (entry.index, entry.term) == (index.0, term.0));
        let in_log = entry.and_then(Body::of).is_some_and(|body| body.has_value());
        let record = self.tables.records.get(&key);
        in_log || record.is_some_and(|record| record.index == index && record.value.is_some())
    }
}

/// A request to make things durable.
#[derive(Debug)]
pub struct Request {
    pub base: Option<Base>,
    pub entries: Vec<Entry>,
    pub vote: Option<HardState>,
}

pub struct Node {
    pub id: ReplicaId,
    pub role: Role,
    pub replica: Option<Replica>,
    pub disk: Disk,
    /// The drive was lost: the node is gone for good.
    pub is_lost: bool,
    /// Requests that are not durable yet, by number.
    pub writing: Vec<(u64, Request)>,
    /// The tables in memory, and entries to be put there.
    pub tables: Tables,
    pub applying: VecDeque<Vec<(Index, Term, Option<Command>)>>,
    /// The longest time until entries are put into the tables, in microseconds.
    pub apply_us: u64,
    /// Reads that wait for the tables: read, index, by lease.
    pub reading: Vec<(u64, Index, bool)>,
    /// The number of the node's starts: events of an earlier life are void.
    pub life: u64,
    /// The longest time of a write to its drive, in microseconds.
    pub write_us: u64,
    /// The node's clock by true time.
    pub speed_ppm: u64,
    pub wakes_at: Option<Instant>,
}

impl Node {
    pub fn new(id: ReplicaId, role: Role, base: &Base, chance: &mut SplitMix64) -> Node {
        Node {
            id,
            role,
            replica: None,
            disk: Disk {
                base: base.clone(),
                entries: Vec::new(),
                vote: HardState::default(),
                tables: Tables::default(),
            },
            is_lost: false,
            writing: Vec::new(),
            tables: Tables::default(),
            applying: VecDeque::new(),
            apply_us: [1, 1, 20_000][(chance.draw() % 3) as usize],
            reading: Vec::new(),
            life: 0,
            write_us: [100, 2_000, 30_000][(chance.draw() % 3) as usize],
            speed_ppm: 1_000_000 - u64::from(DRIFT) + chance.draw() % u64::from(2 * DRIFT + 1),
            wakes_at: None,
        }
    }

    /// Forgets what only memory has.
    pub fn clear(&mut self) {
        self.writing.clear();
        self.applying.clear();
        self.reading.clear();
    }

    pub fn clock(&self, now: Instant) -> Instant {
        Instant((u128::from(now.0) * u128::from(self.speed_ppm) / 1_000_000) as u64)
    }

    pub fn true_time(&self, clock: Instant) -> Instant {
        Instant((u128::from(clock.0) * 1_000_000).div_ceil(u128::from(self.speed_ppm)) as u64)
    }

    /// The value of a key's record, by the tables or by the log: what another node's tables have is committed, and so is an entry of that index and term.
    pub fn value(&self, key: u64, record: &Record) -> Option<u64> {
        let own = self.tables.records.get(&key).filter(|own| own.index == record.index);
        own.and_then(|own| own.value).or_else(|| {
            let entry = self.replica.as_ref()?.entry(record.index).filter(|(term, _)| *term == record.term);
            match entry? {
                (_, Body::Command(command)) => Parts::of(&command).value,
                _ => None,
            }
        })
    }

    pub fn leads(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.leader() == Some(self.id))
    }
}
