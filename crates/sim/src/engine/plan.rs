//! What the writers of a workload do, and on what.

use std::collections::{BTreeMap, BTreeSet};

use kv::parallel_wal::{BatchBuilder, Family};

use crate::Rng;
use crate::trace::{Drive, Trace};

/// Threads that write.
pub(super) const WRITERS: usize = 4;
/// Steps of each.
pub(super) const STEPS: usize = 36;
/// Families beside the default one.
pub(super) const FAMILIES: u8 = 1;
/// Keys that are written synced, and read: few, so that writers meet.
const REGISTERS: u64 = 4;
/// Keys whose writes may be lost.
const MIXED: u64 = 8;
/// Keys that range deletes take.
const RANGED: u64 = 5;
/// Keys that are merged, and how often each at most: a digit of two bits tells of each merge.
pub(super) const COUNTERS: u64 = 4;
pub(super) const MERGES: u32 = 31;
/// The longest value; few are longer than a block.
const LONG: usize = 9000;
const SHORT: usize = 700;

/// Whose log a workload writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// RocksDB's own: writers wait for their group.
    Group,
    /// A parallel log, each record alone.
    Waltz,
    /// A parallel log that joins records.
    Auto,
}

/// What a workload runs on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub mode: Mode,
    /// Under a parallel log, writes go as the server's do: whoever writes keeps their order, and has several on their way from
    /// one thread. Never where there are merges or single deletes, which the server writes none of.
    pub ordered: bool,
    /// Threads that the writers share, where they need none of their own.
    pub threads: usize,
    pub drive: Drive,
    /// Merges and single deletes are among the writes.
    pub merges: bool,
    /// Counters are put once there are marks, before the writers begin: what repeats that put undoes merges.
    pub put_counters: bool,
    /// Few writes are synced, and flushes are many.
    pub lazy: bool,
    /// Bytes of log from which on a flush is asked for.
    pub log_limit: u64,
    /// The database is closed at the end; else the power fails while it is open.
    pub closes: bool,
    /// Zones that the log writes at a time, where the drive's cache allows that.
    pub zones: usize,
}

impl Shape {
    pub(super) fn of(seed: u64, workload: u64, volatile_cache: bool) -> Shape {
        // Half of those that may be. What they write is the same either way.
        let drawn = Rng::at(seed, &[workload, 0x04de]).chance(50);
        Shape::with(seed, workload, volatile_cache, drawn)
    }

    /// The shape of a recorded workload: older builds recorded none that are ordered.
    pub(super) fn of_trace(trace: &Trace) -> Shape {
        Shape::with(trace.seed, trace.workload, trace.drive.volatile_cache, trace.ordered)
    }

    /// How a state's `n`th opening is: in any mode, whatever mode left it.
    pub(super) fn reopened(&self, seed: u64, n: u64) -> Shape {
        let mut rng = Rng::at(seed, &[n, 0x09e4]);
        let mode = match rng.below(3) {
            0 => Mode::Group,
            1 => Mode::Waltz,
            _ => Mode::Auto,
        };
        Shape { mode, ordered: mode != Mode::Group && rng.chance(50), ..*self }
    }

    fn with(seed: u64, workload: u64, volatile_cache: bool, ordered: bool) -> Shape {
        let mut rng = Rng::at(seed, &[workload, 0x5a9e]);
        let mode = match workload % 3 {
            0 => Mode::Waltz,
            1 => Mode::Group,
            _ => Mode::Auto,
        };
        let tiny = Drive::tiny(volatile_cache);
        // A zone holds a few dozen records: each workload leaves several.
        let drive = match rng.below(3) {
            0 => Drive { zones: 160, zone_size: 16, zone_capacity: 14, ..tiny },
            _ => Drive { zones: 96, zone_size: 32, zone_capacity: 28, max_append: 16, ..tiny },
        };
        let lazy = rng.chance(40);
        let merges = rng.chance(if lazy { 25 } else { 60 });
        let log_limit = if rng.chance(40) { 40 * 4096 } else { 1 << 30 };
        let put_counters = merges && rng.chance(50);
        let closes = rng.chance(50);
        // Drawn beside the rest: what a seed stands for is what it was.
        let zones = 1 + Rng::at(seed, &[workload, 0x20e5]).below(3) as usize;
        let ordered = ordered && mode != Mode::Group && !merges;
        let threads = if ordered { 1 << Rng::at(seed, &[workload, 0x74ed]).below(3) } else { WRITERS };
        Shape { mode, ordered, threads, drive, merges, put_counters, lazy, log_limit, closes, zones }
    }

    /// Half of the flushes are of one family. Where batches have marks, those would be left in memory.
    fn flushes_past(&self) -> bool {
        self.mode != Mode::Group && !self.merges
    }
}

/// A key and its family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub family: u32,
    pub name: String,
}

impl Key {
    fn numbered(kind: &str, n: u64) -> Key {
        Key { family: (n % (u64::from(FAMILIES) + 1)) as u32, name: format!("{kind}{n}") }
    }

    pub(super) fn register(n: u64) -> Key {
        Key { family: 0, name: format!("r{n}") }
    }

    pub(super) fn counter(n: u64) -> Key {
        Key::numbered("c", n)
    }

    /// Two keys that every batch writes both.
    pub(super) fn pair() -> [Key; 2] {
        [Key { family: 0, name: "p".into() }, Key { family: 1, name: "q".into() }]
    }

    /// Range deletes work in one family.
    fn ranged(n: u64) -> Key {
        Key { family: 1, name: format!("z{n}") }
    }
}

/// A change of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Put(Key),
    Delete(Key),
    SingleDelete(Key),
    /// All ranged keys from one to another, the end excluded.
    DeleteRange(u64, u64),
    /// Adds the digit of this number to a counter.
    Merge(Key, u32),
}

impl Change {
    /// The keys that it sets or removes, and whether it sets them; merges are apart.
    pub(super) fn sets(&self) -> Vec<(Key, bool)> {
        match self {
            Change::Put(key) => vec![(key.clone(), true)],
            Change::Delete(key) | Change::SingleDelete(key) => vec![(key.clone(), false)],
            Change::DeleteRange(from, to) => (*from..*to).map(|n| (Key::ranged(n), false)).collect(),
            Change::Merge(..) => Vec::new(),
        }
    }

    /// Whether a flush of the default family makes it durable.
    fn is_of_default(&self) -> bool {
        match self {
            Change::Put(key) | Change::Delete(key) | Change::SingleDelete(key) | Change::Merge(key, _) => {
                key.family == 0
            }
            Change::DeleteRange(from, _) => Key::ranged(*from).family == 0,
        }
    }
}

/// A step of a writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Write {
        changes: Vec<Change>,
        sync: bool,
        /// The tables refuse it, after the log has it.
        refused: bool,
    },
    /// Reads a register.
    Read(u64),
    Flush,
    /// A flush of the default family alone, past the engine.
    FlushPast,
    Sync,
}

impl Act {
    /// Whether it is a write to the default family alone.
    pub(super) fn is_of_default(&self) -> bool {
        matches!(self, Act::Write { changes, .. } if changes.iter().all(Change::is_of_default))
    }
}

/// What the values of a step are: no two steps write the same.
pub(super) fn id(writer: usize, index: usize) -> u64 {
    (1 + writer * STEPS + index) as u64
}

/// The step that wrote a value.
pub(super) fn step_of(id: u64) -> Option<(usize, usize)> {
    let n = usize::try_from(id.checked_sub(1)?).ok()?;
    (n < WRITERS * STEPS).then_some((n / STEPS, n % STEPS))
}

/// The value that a step puts: its number, then bytes that only this step writes.
pub(super) fn value(salt: u64, id: u64) -> Vec<u8> {
    let mut rng = Rng::at(salt, &[id, 0xba7c]);
    let len = if rng.chance(6) { rng.index(LONG) } else { rng.index(SHORT) };
    let mut value = id.to_le_bytes().to_vec();
    while value.len() < len {
        value.extend_from_slice(&rng.draw().to_le_bytes());
    }
    value
}

/// The batch of a step.
pub(super) fn batch(salt: u64, id: u64, changes: &[Change]) -> Vec<u8> {
    let value = value(salt, id);
    let add = |batch: BatchBuilder, change: &Change| match change {
        Change::Put(Key { family, name }) => batch.put(Family(*family), name.as_bytes(), &value),
        Change::Delete(Key { family, name }) => batch.delete(Family(*family), name.as_bytes()),
        Change::SingleDelete(Key { family, name }) => batch.single_delete(Family(*family), name.as_bytes()),
        Change::DeleteRange(from, to) => {
            let (from, to) = (Key::ranged(*from), Key::ranged(*to));
            batch.delete_range(Family(from.family), from.name.as_bytes(), to.name.as_bytes())
        }
        Change::Merge(Key { family, name }, digit) => {
            batch.merge(Family(*family), name.as_bytes(), &(1_u64 << (2 * digit)).to_le_bytes())
        }
    };
    changes.iter().fold(BatchBuilder::new(), add).build()
}

/// Batches that come before the writers: the first makes a parallel log's engine mark its batches.
pub(super) fn before(shape: &Shape) -> Vec<Vec<u8>> {
    if !shape.put_counters {
        return Vec::new();
    }
    let counters = || (0..COUNTERS).map(Key::counter);
    let merge =
        |batch: BatchBuilder, Key { family, name }| batch.merge(Family(family), name.as_bytes(), &[0; 8]);
    let put = |batch: BatchBuilder, Key { family, name }| batch.put(Family(family), name.as_bytes(), &[0; 8]);
    vec![
        counters().fold(BatchBuilder::new(), merge).build(),
        counters().fold(BatchBuilder::new(), put).build(),
    ]
}

/// The steps of all writers.
pub(super) fn plan(seed: u64, workload: u64, shape: &Shape) -> Vec<Vec<Act>> {
    let mut rng = Rng::at(seed, &[workload, 0xac7]);
    let mut merged: BTreeMap<u64, u32> = BTreeMap::new();
    let mut plans = vec![Vec::new(); WRITERS];
    let mut single: Vec<Option<Key>> = vec![None; WRITERS];
    // Round by round, so that the digits of a counter are spread over time and writers.
    for index in 0..STEPS {
        for (writer, (acts, single)) in plans.iter_mut().zip(&mut single).enumerate() {
            let mut act = act(&mut rng, shape, writer, index, &mut merged, single);
            if act == Act::Flush && index % 2 == 1 && shape.flushes_past() {
                act = Act::FlushPast;
            }
            acts.push(act);
        }
    }
    plans
}

fn act(
    rng: &mut Rng,
    shape: &Shape,
    writer: usize,
    index: usize,
    merged: &mut BTreeMap<u64, u32>,
    single: &mut Option<Key>,
) -> Act {
    let write = |changes, sync| Act::Write { changes, sync, refused: false };
    let kind = rng.below(20);
    let often = if shape.lazy { 8 } else { 30 };
    match kind {
        0..=6 if shape.lazy && rng.chance(70) => {
            mixed(rng, often, Some(Key { family: 0, name: format!("u{writer}.{index}") }))
        }
        7 if shape.lazy => Act::Flush,
        0..=3 => {
            let (one, other) = (rng.below(REGISTERS), rng.below(REGISTERS));
            let mut changes = vec![Change::Put(Key::register(one))];
            if one != other && rng.chance(30) {
                changes.push(Change::Put(Key::register(other)));
            }
            write(changes, true)
        }
        4 => write(vec![Change::Delete(Key::register(rng.below(REGISTERS)))], true),
        5..=8 => Act::Read(rng.below(REGISTERS)),
        9 if rng.chance(50) => Act::Flush,
        9 => Act::Sync,
        10 => write(Key::pair().into_iter().map(Change::Put).collect(), rng.chance(often)),
        11 if rng.chance(40) => {
            let (a, b) = (rng.below(RANGED + 1), rng.below(RANGED + 1));
            write(vec![Change::DeleteRange(a.min(b), a.max(b))], rng.chance(often))
        }
        11 | 12 => write(vec![Change::Put(Key::ranged(rng.below(RANGED)))], rng.chance(often)),
        13 if shape.mode != Mode::Group => {
            let changes = vec![Change::Put(Key::register(rng.below(REGISTERS)))];
            Act::Write { changes, sync: rng.chance(50), refused: true }
        }
        14..=16 if shape.merges => {
            let counter = rng.below(COUNTERS);
            let digit = merged.entry(counter).or_default();
            if *digit == MERGES {
                return Act::Sync;
            }
            *digit += 1;
            let mut changes = vec![Change::Merge(Key::counter(counter), *digit - 1)];
            if rng.chance(40) {
                changes.push(Change::Put(Key::numbered("m", rng.below(MIXED))));
            }
            write(changes, rng.chance(often))
        }
        17 if shape.merges => match single.take() {
            Some(key) => write(vec![Change::SingleDelete(key)], rng.chance(50)),
            None => {
                let key = Key { family: 1, name: format!("s{writer}.{index}") };
                *single = Some(key.clone());
                write(vec![Change::Put(key)], rng.chance(50))
            }
        },
        _ => mixed(rng, often, None),
    }
}

/// A batch over keys whose writes may be lost; so many of a hundred are synced. A key that nothing wrote before shows that the batch
/// is there, whatever an older record does to the others.
fn mixed(rng: &mut Rng, synced: u64, fresh: Option<Key>) -> Act {
    let keys: BTreeSet<u64> = (0..1 + rng.below(3)).map(|_| rng.below(MIXED)).collect();
    let change = |n| {
        let key = Key::numbered("m", n);
        if rng.chance(20) { Change::Delete(key) } else { Change::Put(key) }
    };
    let changes = keys.into_iter().map(change).chain(fresh.map(Change::Put)).collect();
    Act::Write { changes, sync: rng.chance(synced), refused: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_have_every_mode_and_every_kind_of_step() {
        let mut seen = std::collections::BTreeSet::new();
        for workload in 0..48 {
            let shape = Shape::of(7, workload, true);
            seen.insert(format!("{:?}", shape.mode));
            assert!(!shape.ordered || (shape.mode != Mode::Group && !shape.merges), "{shape:?}");
            seen.extend(shape.ordered.then(|| format!("ordered on {}", shape.threads)));
            for act in plan(7, workload, &shape).into_iter().flatten() {
                match act {
                    Act::Write { refused: true, .. } => drop(seen.insert("refused".into())),
                    Act::Write { changes, sync, .. } => changes.iter().for_each(|change| {
                        let name = format!("{change:?}");
                        seen.insert(format!("{} {sync}", name.split('(').next().unwrap_or_default()));
                    }),
                    act => drop(seen.insert(format!("{act:?}").split('(').next().unwrap_or_default().into())),
                }
            }
        }
        assert_eq!(seen.len(), 3 + 3 + 1 + 2 * 5 + 4, "{seen:?}");
    }

    #[test]
    fn a_value_tells_its_step() {
        assert_eq!(step_of(id(3, STEPS - 1)), Some((3, STEPS - 1)));
        assert_eq!((step_of(0), step_of(id(3, STEPS - 1) + 1)), (None, None));
        assert_eq!(value(1, 7)[..8], 7_u64.to_le_bytes());
    }
}
