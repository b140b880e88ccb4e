//! The steps of a workload on tables, a function of the seed.

use kv::{Expiry, OnceId};
use replica::{Index, Term};
use shard::{Batch, Entry, Put, Row, Rows, Write, once_row_key, row_key};

use super::Contents;
use crate::Rng;
use crate::trace::Drive;

/// The number of groups.
pub(super) const GROUPS: usize = 2;
const STEPS: usize = 90;
/// The entries of a group's log.
const ENTRIES: u64 = 220;
const KEYS: u64 = 24;
/// The number of keys that are ids for commands that run once.
const IDS: u64 = 4;
/// The records of a part of another replica's tables.
const ROWS_OF_A_PART: usize = 6;
/// The longest value, in bytes; most are short.
const LONGEST_VALUE: u64 = 24_000;

/// A step of a workload.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Apply(Vec<Entry>),
    Flush,
    DropValues(Index),
    Merge(Rows, Index),
    /// A snapshot's base is durable: the tables' index is raised, and made durable.
    SkipTo(Index),
    Give(Vec<u8>, Row),
    /// The replica goes, and another one begins with nothing.
    Remove,
}

impl Act {
    /// True if everything up to the step is durable behind it.
    pub(super) fn makes_durable(&self) -> bool {
        matches!(self, Act::Flush | Act::SkipTo(_) | Act::Remove)
    }

    /// Carries the step out on the model of a group's tables.
    pub(super) fn carry_out(&self, contents: &mut Contents) {
        match self {
            Act::Apply(entries) => entries.iter().for_each(|entry| contents.apply(entry)),
            Act::Flush => {}
            Act::DropValues(upto) => contents.drop_values(*upto),
            Act::Merge(rows, index) => contents.merge(rows.clone(), *index),
            Act::SkipTo(index) => contents.applied = contents.applied.max(*index),
            Act::Give(key, row) => contents.give(key, row.clone()),
            Act::Remove => *contents = Contents::default(),
        }
    }
}

/// The drive and the steps of a workload.
pub(super) struct Workload {
    pub drive: Drive,
    /// The steps, each with its group.
    pub steps: Vec<(usize, Act)>,
    /// For each step, whether it changes the group's tables.
    changes: Vec<bool>,
}

impl Workload {
    pub(super) fn new(seed: u64, workload: u64, volatile_cache: bool) -> Workload {
        let mut rng = Rng::at(seed, &[workload, 0x7ab1]);
        let tiny = Drive::tiny(volatile_cache);
        let drive = match rng.below(2) {
            0 => Drive { zones: 160, zone_size: 16, zone_capacity: 14, ..tiny },
            _ => Drive { zones: 96, zone_size: 32, zone_capacity: 28, max_append: 16, ..tiny },
        };
        let logs: Vec<Vec<Entry>> = (0..GROUPS).map(|_| log(&mut rng)).collect();
        let mut models = vec![Contents::default(); GROUPS];
        let (mut steps, mut changes) = (Vec::new(), Vec::new());
        while steps.len() < STEPS {
            let group = rng.index(GROUPS);
            let (Some(log), Some(model)) = (logs.get(group), models.get_mut(group)) else { break };
            for act in acts(&mut rng, log, model) {
                let before = model.clone();
                act.carry_out(model);
                steps.push((group, act));
                changes.push(*model != before);
            }
        }
        Workload { drive, steps, changes }
    }

    /// The number of steps that the end of the flush at `index` promises: those up to the last one that changes the group's tables.
    pub(super) fn covered_by(&self, index: usize) -> usize {
        let Some((group, _)) = self.steps.get(index) else { return 0 };
        let mut before = self.steps.iter().zip(&self.changes).take(index + 1);
        before.rposition(|((of, _), changes)| of == group && *changes).map_or(0, |step| step + 1)
    }
}

/// The entries of a group's log.
fn log(rng: &mut Rng) -> Vec<Entry> {
    let entry = |rng: &mut Rng, index: u64| {
        let mut keys: Vec<u64> = (0..1 + rng.below(3)).map(|_| rng.below(KEYS)).collect();
        keys.sort_unstable();
        keys.dedup();
        let writes = keys.into_iter().map(|key| Write {
            key: if key < IDS {
                once_row_key(OnceId { group: 0, view: 1, number: key })
            } else {
                row_key(format!("key{key:03}").as_bytes())
            },
            put: rng.chance(80).then(|| put(rng)),
        });
        let writes = writes.collect();
        let batch = Batch { clears: rng.chance(3), writes };
        (Index(index), Term(1 + index / 40), rng.chance(95).then_some(batch))
    };
    (1..=ENTRIES).map(|index| entry(rng, index)).collect()
}

fn put(rng: &mut Rng) -> Put {
    let len = if rng.chance(80) { rng.below(60) } else { rng.below(LONGEST_VALUE) };
    let value = (0..len).map(|_| rng.below(256) as u8).collect();
    let expires = if rng.chance(80) { Expiry::NEVER } else { Expiry::at(1_795_294_357_811) };
    Put { expires, value: Some(value) }
}

/// The next steps of a group.
fn acts(rng: &mut Rng, log: &[Entry], model: &Contents) -> Vec<Act> {
    let applied = model.applied.0;
    match rng.below(100) {
        0..50 => {
            let first = usize::try_from(applied).unwrap_or(usize::MAX);
            let mut entries: Vec<Entry> = log.iter().skip(first).take(1 + rng.index(4)).cloned().collect();
            if rng.chance(25) {
                entries.iter_mut().for_each(drop_value);
            }
            if entries.is_empty() { vec![Act::Flush] } else { vec![Act::Apply(entries)] }
        }
        50..62 => vec![Act::Flush],
        62..74 => vec![Act::DropValues(Index(rng.below(applied + 1)))],
        74..87 => snapshot(rng, log, applied),
        87 => vec![Act::Remove],
        _ => lacking(rng, log, model).into_iter().collect(),
    }
}

fn drop_value((.., batch): &mut Entry) {
    let writes = batch.iter_mut().flat_map(|batch| &mut batch.writes);
    writes.filter_map(|write| write.put.as_mut()).for_each(|put| put.value = None);
}

/// Another replica's tables, taken in parts, all of them or not.
fn snapshot(rng: &mut Rng, log: &[Entry], applied: u64) -> Vec<Act> {
    let index = applied + rng.below(8);
    let behind = usize::try_from(index + rng.below(4)).unwrap_or(usize::MAX).min(log.len());
    let index = Index(index.min(behind as u64));
    let mut other = Contents::default();
    log.iter().take(behind).for_each(|entry| other.apply(entry));
    other.drop_values(Index(if rng.chance(50) { 0 } else { rng.below(index.0 + 1) }));
    let mut acts = Vec::new();
    let mut from = Some(Vec::new());
    while let Some(key) = from {
        if rng.chance(7) {
            return acts;
        }
        let rows = other.part(&key, ROWS_OF_A_PART);
        from = rows.to.clone();
        acts.push(Act::Merge(rows, index));
    }
    if rng.chance(60) {
        acts.push(Act::SkipTo(index));
    }
    acts
}

/// The value of a record that lacks it, if one does.
fn lacking(rng: &mut Rng, log: &[Entry], model: &Contents) -> Option<Act> {
    let lacking: Vec<(&Vec<u8>, &Row)> = model.rows.iter().filter(|(_, row)| row.value.is_none()).collect();
    let (key, row) = *lacking.get(rng.index(lacking.len().max(1)))?;
    let (.., batch) = log.iter().find(|(index, ..)| *index == row.index)?;
    let write = batch.as_ref()?.writes.iter().find(|write| write.key == *key)?;
    let value = write.put.as_ref()?.value.clone();
    Some(Act::Give(key.clone(), Row { value, ..row.clone() }))
}
