//! Tables in memory, which take no time and are durable at once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use kv::OnceIds;
use parking_lot::Mutex;
use replica::Index;
use shard::{Entry, Row, Rows, Tables, Write};

/// Records in one part of the tables.
const ROWS_OF_A_PART: usize = 256;

/// The tables of one replica whose group never deletes a key.
#[derive(Debug, Default)]
pub struct MemoryTables {
    drops_values: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    applied: Index,
    rows: BTreeMap<Vec<u8>, Row>,
    /// The keys of records that have values, in the order of their entries, where values are dropped.
    valued: VecDeque<(Index, Vec<u8>)>,
}

impl MemoryTables {
    /// Empty tables. `drops_values`: of a witness.
    pub fn new(drops_values: bool) -> MemoryTables {
        MemoryTables { drops_values, state: Mutex::default() }
    }
}

impl State {
    /// A record takes the place of one of an earlier entry.
    fn put(&mut self, key: Vec<u8>, row: Row) {
        if self.rows.get(&key).is_none_or(|present| present.index < row.index) {
            self.rows.insert(key, row);
        }
    }
}

impl Tables for MemoryTables {
    fn applied(&self) -> Index {
        self.state.lock().applied
    }

    fn apply(&self, entries: &[Entry]) -> shard::Result<()> {
        let state = &mut *self.state.lock();
        for (index, term, batch) in entries {
            state.applied = state.applied.max(*index);
            for Write { key, put } in batch.iter().flat_map(|batch| &batch.writes) {
                let Some(put) = put else { continue };
                if self.drops_values && put.value.is_some() {
                    state.valued.push_back((*index, key.clone()));
                }
                let row = Row { index: *index, term: *term, expires: put.expires, value: put.value.clone() };
                state.put(key.clone(), row);
            }
        }
        Ok(())
    }

    /// None: the load has no commands that run once.
    fn once_ids(&self, _most: usize) -> shard::Result<OnceIds> {
        Ok(OnceIds::default())
    }

    fn skip_to(&self, index: Index) -> shard::Result<()> {
        let mut state = self.state.lock();
        state.applied = state.applied.max(index);
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]]) -> shard::Result<Vec<Option<Row>>> {
        let state = self.state.lock();
        Ok(keys.iter().map(|key| state.rows.get(*key).cloned()).collect())
    }

    fn rows(&self, from: &[u8]) -> shard::Result<Rows> {
        let state = self.state.lock();
        let mut found = state.rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let part = found.by_ref().take(ROWS_OF_A_PART);
        let rows = part.map(|(key, row)| (key.clone(), row.clone())).collect();
        let to = found.next().map(|(key, _)| key.clone());
        Ok(Rows { from: from.to_vec(), to, rows })
    }

    fn key_estimate(&self) -> u64 {
        self.state.lock().rows.len() as u64
    }

    fn merge(&self, rows: Rows, _index: Index) -> shard::Result<()> {
        let state = &mut *self.state.lock();
        rows.rows.into_iter().for_each(|(key, row)| state.put(key, row));
        Ok(())
    }

    fn give(&self, key: &[u8], row: Row) -> shard::Result<()> {
        let state = &mut *self.state.lock();
        if let Some(present) = state.rows.get_mut(key)
            && (present.index, present.term) == (row.index, row.term)
        {
            present.value = row.value;
        }
        Ok(())
    }

    fn drop_values(&self, upto: Index) -> shard::Result<()> {
        let state = &mut *self.state.lock();
        while state.valued.front().is_some_and(|(index, _)| *index <= upto)
            && let Some((_, key)) = state.valued.pop_front()
        {
            if let Some(row) = state.rows.get_mut(&key).filter(|row| row.index <= upto) {
                row.value = None;
            }
        }
        Ok(())
    }

    fn flush(&self) -> shard::Result<Index> {
        Ok(self.state.lock().applied)
    }
}
