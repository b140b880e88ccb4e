//! The steps of the writers of an engine's workload.

use std::collections::{BTreeMap, BTreeSet};

use kv::parallel_wal::{BatchBuilder, Family};

use super::shape::{Mode, Shape, WRITERS};
use crate::Rng;

/// Number of steps of each writer.
pub(super) const STEPS_PER_WRITER: usize = 36;
/// Number of column families beside the default one.
pub(super) const EXTRA_FAMILIES: u8 = 1;
/// A family of modelled tables that is written rarely: its memtable is often empty.
pub(super) const RARE_FAMILY: u32 = 2;
/// The number of the first family that a writer creates.
const FIRST_OWN_FAMILY: u32 = 16;
/// Number of keys of the rare family, and of each family that a writer creates.
const RARE_KEYS: u64 = 2;
const OWN: u64 = 3;
/// Number of keys that are written with sync, and read: few, so that writers share keys.
const REGISTER_KEYS: u64 = 4;
/// Number of keys whose writes a power cut may lose.
const LOSABLE_KEYS: u64 = 8;
/// Number of keys that range deletes remove.
const RANGE_DELETED_KEYS: u64 = 5;
/// Number of keys that are merged, and the most merges of each. Each merge adds to a digit of two bits of its own.
pub(super) const COUNTER_KEYS: u64 = 4;
pub(super) const MERGES_PER_COUNTER: u32 = 31;
/// Bytes of a long value, at most: long values may be longer than a block.
const LONGEST_VALUE: usize = 9000;
const LONGEST_SHORT_VALUE: usize = 700;

/// A database key and its column family.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub family: u32,
    pub name: String,
}

impl Key {
    fn numbered_key(kind: &str, n: u64) -> Key {
        Key { family: (n % (u64::from(EXTRA_FAMILIES) + 1)) as u32, name: format!("{kind}{n}") }
    }

    pub(super) fn register_key(n: u64) -> Key {
        Key { family: 0, name: format!("r{n}") }
    }

    pub(super) fn counter_key(n: u64) -> Key {
        Key::numbered_key("c", n)
    }

    /// Two keys that always change in one batch.
    pub(super) fn paired_keys() -> [Key; 2] {
        [Key { family: 0, name: "p".into() }, Key { family: 1, name: "q".into() }]
    }

    fn rare_key(n: u64) -> Key {
        Key { family: RARE_FAMILY, name: format!("b{n}") }
    }

    /// The keys of a family that a writer created.
    pub(super) fn own(family: u32) -> impl Iterator<Item = Key> {
        (0..OWN).map(move |n| Key { family, name: format!("o{n}") })
    }

    /// A key that range deletes may remove: all such keys are in one family.
    fn range_deleted_key(n: u64) -> Key {
        Key { family: 1, name: format!("z{n}") }
    }
}

/// A change that a write batch makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Put(Key),
    Delete(Key),
    SingleDelete(Key),
    /// Deletes all ranged keys from the first to the second number, the second excluded.
    DeleteRange(u64, u64),
    /// Adds to the digit with this number of a counter.
    Merge(Key, u32),
}

impl Change {
    /// The keys that the change sets (true) or removes; none for a merge.
    pub(super) fn sets(&self) -> Vec<(Key, bool)> {
        match self {
            Change::Put(key) => vec![(key.clone(), true)],
            Change::Delete(key) | Change::SingleDelete(key) => vec![(key.clone(), false)],
            Change::DeleteRange(from, to) => {
                (*from..*to).map(|n| (Key::range_deleted_key(n), false)).collect()
            }
            Change::Merge(..) => Vec::new(),
        }
    }

    /// Whether a flush of the default family makes the change durable.
    fn is_of_default(&self) -> bool {
        match self {
            Change::Put(key) | Change::Delete(key) | Change::SingleDelete(key) | Change::Merge(key, _) => {
                key.family == 0
            }
            Change::DeleteRange(from, _) => Key::range_deleted_key(*from).family == 0,
        }
    }
}

/// A step of a database's writer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Write {
        changes: Vec<Change>,
        sync: bool,
        /// If false, the write bypasses the log, and a flush makes it durable.
        logged: bool,
        /// The tables refuse the batch, after the log has it.
        refused: bool,
    },
    /// Reads the register with this number.
    Read(u64),
    Flush,
    /// Flushes the default family alone, without telling the parallel WAL.
    FlushPast,
    Sync,
    /// Creates a family; like the variants after it, only for modelled tables.
    CreateFamily(u32),
    DropFamily(u32),
    /// Puts keys by an ingested table, not through the log.
    Ingest(Vec<Key>),
    Checkpoint,
}

impl Act {
    /// Whether a sync of the log makes the step durable.
    pub(super) fn is_in_the_log(&self) -> bool {
        matches!(self, Act::Write { logged: true, .. })
    }

    /// Whether the step is a write to the default family alone.
    pub(super) fn is_of_default(&self) -> bool {
        matches!(self, Act::Write { changes, .. } if changes.iter().all(Change::is_of_default))
    }
}

/// The number that a step's values begin with; no two steps have the same number.
pub(super) fn id(writer: usize, index: usize) -> u64 {
    (1 + writer * STEPS_PER_WRITER + index) as u64
}

/// The name of the checkpoint that a step writes.
pub(super) fn checkpoint_name(writer: usize, index: usize) -> String {
    format!("{writer}.{index}")
}

/// The writer and index of the step that wrote a value.
pub(super) fn step_of(id: u64) -> Option<(usize, usize)> {
    let n = usize::try_from(id.checked_sub(1)?).ok()?;
    (n < WRITERS * STEPS_PER_WRITER).then_some((n / STEPS_PER_WRITER, n % STEPS_PER_WRITER))
}

/// The values that a workload's steps put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    seed: u64,
    long_percent: u64,
}

impl Values {
    /// The values of the workload number `workload` of an exploration with the seed `seed`.
    pub(super) fn new(seed: u64, workload: u64, shape: &Shape) -> Values {
        // LevelDB's memtable is full at 64 KiB: long values fill it several times.
        Values { seed: seed ^ workload, long_percent: if shape.mode == Mode::LevelDb { 50 } else { 6 } }
    }

    /// The value that the step with the number `id` puts: the number, then bytes that only this step writes.
    pub(super) fn of(self, id: u64) -> Vec<u8> {
        let mut rng = Rng::at(self.seed, &[id, 0xba7c]);
        let longest = if rng.chance(self.long_percent) { LONGEST_VALUE } else { LONGEST_SHORT_VALUE };
        let len = rng.index(longest);
        let mut value = id.to_le_bytes().to_vec();
        while value.len() < len {
            value.extend_from_slice(&rng.draw().to_le_bytes());
        }
        value
    }
}

/// The write batch of a step.
pub(super) fn batch(values: Values, id: u64, changes: &[Change]) -> Vec<u8> {
    let value = values.of(id);
    let add = |batch: BatchBuilder, change: &Change| match change {
        Change::Put(Key { family, name }) => batch.put(Family(*family), name.as_bytes(), &value),
        Change::Delete(Key { family, name }) => batch.delete(Family(*family), name.as_bytes()),
        Change::SingleDelete(Key { family, name }) => batch.single_delete(Family(*family), name.as_bytes()),
        Change::DeleteRange(from, to) => {
            let (from, to) = (Key::range_deleted_key(*from), Key::range_deleted_key(*to));
            batch.delete_range(Family(from.family), from.name.as_bytes(), to.name.as_bytes())
        }
        Change::Merge(Key { family, name }, digit) => {
            batch.merge(Family(*family), name.as_bytes(), &(1_u64 << (2 * digit)).to_le_bytes())
        }
    };
    changes.iter().fold(BatchBuilder::new(), add).build()
}

/// The batches that are written before the writers begin. The first one turns the marks of a parallel WAL on.
pub(super) fn batches_before_writers(shape: &Shape) -> Vec<Vec<u8>> {
    if !shape.put_counters {
        return Vec::new();
    }
    let counters = || (0..COUNTER_KEYS).map(Key::counter_key);
    let merge =
        |batch: BatchBuilder, Key { family, name }| batch.merge(Family(family), name.as_bytes(), &[0; 8]);
    let put = |batch: BatchBuilder, Key { family, name }| batch.put(Family(family), name.as_bytes(), &[0; 8]);
    vec![
        counters().fold(BatchBuilder::new(), merge).build(),
        counters().fold(BatchBuilder::new(), put).build(),
    ]
}

/// The plan of a workload: the steps of all writers.
pub(super) fn plan_steps(seed: u64, workload: u64, shape: &Shape) -> Vec<Vec<Act>> {
    let mut rng = Rng::at(seed, &[workload, 0xac7]);
    let mut merged: BTreeMap<u64, u32> = BTreeMap::new();
    let mut plans = vec![Vec::new(); WRITERS];
    let mut single: Vec<Option<Key>> = vec![None; WRITERS];
    let mut model = Rng::at(seed, &[workload, 0x7ab1]);
    let mut own: Vec<Option<u32>> = vec![None; WRITERS];
    // One step of each writer per round, so that the digits of a counter are spread over time and writers.
    for index in 0..STEPS_PER_WRITER {
        for (writer, (acts, single)) in plans.iter_mut().zip(&mut single).enumerate() {
            if let Some(own) = own.get_mut(writer).filter(|_| shape.modelled)
                && let Some(act) = draw_model_step(&mut model, shape, (writer, index), own)
            {
                acts.push(act);
                continue;
            }
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
    let write = |changes, sync| Act::Write { changes, sync, logged: true, refused: false };
    let kind = rng.below(20);
    let often = if shape.lazy { 8 } else { 30 };
    let fresh = || Some(Key { family: 0, name: format!("u{writer}.{index}") });
    // LevelDB does not sync a log that it closes: the next log shall be written without a sync in between.
    if shape.lazy && shape.mode == Mode::LevelDb && rng.chance(80) {
        return mixed_batch(rng, 2, fresh());
    }
    match kind {
        0..=6 if shape.lazy && rng.chance(70) => mixed_batch(rng, often, fresh()),
        7 if shape.lazy => Act::Flush,
        0..=3 => {
            let (one, other) = (rng.below(REGISTER_KEYS), rng.below(REGISTER_KEYS));
            let mut changes = vec![Change::Put(Key::register_key(one))];
            if one != other && rng.chance(30) {
                changes.push(Change::Put(Key::register_key(other)));
            }
            write(changes, true)
        }
        4 => write(vec![Change::Delete(Key::register_key(rng.below(REGISTER_KEYS)))], true),
        5..=8 => Act::Read(rng.below(REGISTER_KEYS)),
        9 if rng.chance(50) => Act::Flush,
        9 => Act::Sync,
        10 => write(Key::paired_keys().into_iter().map(Change::Put).collect(), rng.chance(often)),
        11 if shape.deletes_ranges() && rng.chance(40) => {
            let (a, b) = (rng.below(RANGE_DELETED_KEYS + 1), rng.below(RANGE_DELETED_KEYS + 1));
            write(vec![Change::DeleteRange(a.min(b), a.max(b))], rng.chance(often))
        }
        11 | 12 => {
            write(vec![Change::Put(Key::range_deleted_key(rng.below(RANGE_DELETED_KEYS)))], rng.chance(often))
        }
        13 if shape.mode.is_parallel() => {
            let changes = vec![Change::Put(Key::register_key(rng.below(REGISTER_KEYS)))];
            Act::Write { changes, sync: rng.chance(50), logged: true, refused: true }
        }
        14..=16 if shape.merges => {
            let counter = rng.below(COUNTER_KEYS);
            let digit = merged.entry(counter).or_default();
            if *digit == MERGES_PER_COUNTER {
                return Act::Sync;
            }
            *digit += 1;
            let mut changes = vec![Change::Merge(Key::counter_key(counter), *digit - 1)];
            if rng.chance(40) {
                changes.push(Change::Put(Key::numbered_key("m", rng.below(LOSABLE_KEYS))));
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
        _ => mixed_batch(rng, often, None),
    }
}

/// A batch over keys that are not read; `synced` per cent of such batches are synced. The key `fresh`, which no other batch
/// writes, shows whether the batch is found.
fn mixed_batch(rng: &mut Rng, synced: u64, fresh: Option<Key>) -> Act {
    let keys: BTreeSet<u64> = (0..1 + rng.below(3)).map(|_| rng.below(LOSABLE_KEYS)).collect();
    let change = |n| {
        let key = Key::numbered_key("m", n);
        if rng.chance(20) { Change::Delete(key) } else { Change::Put(key) }
    };
    let changes = keys.into_iter().map(change).chain(fresh.map(Change::Put)).collect();
    Act::Write { changes, sync: rng.chance(synced), logged: true, refused: false }
}

/// A step that modelled tables take and RocksDB does not, or none. `own`: the family that the writer has created.
fn draw_model_step(
    rng: &mut Rng,
    shape: &Shape,
    (writer, index): (usize, usize),
    own: &mut Option<u32>,
) -> Option<Act> {
    let put = |keys: Vec<Key>, sync| {
        let changes = keys.into_iter().map(Change::Put).collect();
        Act::Write { changes, sync, logged: true, refused: false }
    };
    Some(match (rng.below(20), *own) {
        (0 | 1, None) => {
            let family = FIRST_OWN_FAMILY + (writer * STEPS_PER_WRITER + index) as u32;
            *own = Some(family);
            Act::CreateFamily(family)
        }
        (0, Some(family)) => {
            *own = None;
            Act::DropFamily(family)
        }
        (2..=4, Some(family)) => {
            let mut keys: Vec<Key> = Key::own(family).filter(|_| rng.chance(50)).collect();
            keys.push(Key::numbered_key("m", rng.below(LOSABLE_KEYS)));
            put(keys, rng.chance(40))
        }
        (5 | 6, _) => put(vec![Key::rare_key(rng.below(RARE_KEYS))], true),
        (7 | 8, _) if shape.exact && !shape.ordered => {
            let keys: BTreeSet<u64> = (0..1 + rng.below(2)).map(|_| rng.below(LOSABLE_KEYS)).collect();
            let changes = keys.into_iter().map(|n| Change::Put(Key::numbered_key("m", n))).collect();
            Act::Write { changes, sync: false, logged: false, refused: false }
        }
        (9, _) if shape.exact => {
            let registers = (0..REGISTER_KEYS).map(Key::register_key);
            let keys = registers.chain((0..LOSABLE_KEYS).map(|n| Key::numbered_key("m", n)));
            Act::Ingest(keys.filter(|_| rng.chance(30)).collect())
        }
        (10, _) => Act::Checkpoint,
        (11 | 12, _) => Act::Flush,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;
    use crate::engine::EngineWorkload;

    fn workload_of(target: Target, workload: u64) -> EngineWorkload {
        EngineWorkload { target, seed: 7, workload, volatile_cache: true }
    }

    #[test]
    fn workloads_of_leveldb_have_steps_that_leveldb_knows_alone() {
        let mut kinds = std::collections::BTreeSet::new();
        for workload in 0..24 {
            let shape = Shape::of(workload_of(Target::LevelDb, workload));
            for act in plan_steps(7, workload, &shape).into_iter().flatten() {
                kinds.insert(match act {
                    Act::Write { changes, sync, logged: true, refused: false } => {
                        let known = |change: &Change| matches!(change, Change::Put(_) | Change::Delete(_));
                        assert!(changes.iter().all(known), "{changes:?}");
                        if sync { "synced" } else { "unsynced" }
                    }
                    Act::Read(_) => "read",
                    Act::Sync => "sync",
                    Act::Flush => "flush",
                    act => panic!("{act:?}"),
                });
            }
        }
        assert_eq!(kinds.len(), 5, "{kinds:?}");
    }

    #[test]
    fn workloads_have_every_mode_and_every_kind_of_step() {
        let mut seen = std::collections::BTreeSet::new();
        for workload in 0..48 {
            let shape = Shape::of(workload_of(Target::Engine, workload));
            seen.insert(format!("{:?}", shape.mode));
            assert!(!shape.ordered || (shape.mode.is_parallel() && !shape.merges), "{shape:?}");
            seen.extend(shape.ordered.then(|| format!("ordered on {}", shape.threads)));
            for act in plan_steps(7, workload, &shape).into_iter().flatten() {
                match act {
                    Act::Write { refused: true, .. } => drop(seen.insert("refused".into())),
                    Act::Write { changes, sync, logged: true, .. } => changes.iter().for_each(|change| {
                        let name = format!("{change:?}");
                        seen.insert(format!("{} {sync}", name.split('(').next().unwrap_or_default()));
                    }),
                    Act::Write { logged: false, .. } => drop(seen.insert("unlogged".into())),
                    act => drop(seen.insert(format!("{act:?}").split('(').next().unwrap_or_default().into())),
                }
            }
        }
        assert_eq!(seen.len(), 3 + 3 + 2 + 2 * 5 + 8, "{seen:?}");
    }

    #[test]
    fn a_value_names_its_step() {
        assert_eq!(step_of(id(3, STEPS_PER_WRITER - 1)), Some((3, STEPS_PER_WRITER - 1)));
        assert_eq!((step_of(0), step_of(id(3, STEPS_PER_WRITER - 1) + 1)), (None, None));
        assert_eq!(Values { seed: 1, long_percent: 6 }.of(7)[..8], 7_u64.to_le_bytes());
    }
}
