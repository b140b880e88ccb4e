//! A model of a replica's tables, which loses with the power what was not flushed.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::Mutex;
use replica::Index;
use shard::{Entry, Row, Rows, Tables, Write};

/// Records in one part of the tables.
const ROWS_OF_A_PART: usize = 4;

/// The contents of tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Contents {
    pub rows: BTreeMap<Vec<u8>, Row>,
    /// The index up to which the log is in the tables.
    pub applied: Index,
}

impl Contents {
    /// A record takes the place of an older one; of the same record the one with its value.
    fn put(&mut self, key: Vec<u8>, row: Row) {
        match self.rows.get_mut(&key) {
            Some(present) if present.index == row.index => {
                present.value = present.value.take().or(row.value);
            }
            Some(present) if present.index > row.index => {}
            _ => {
                self.rows.insert(key, row);
            }
        }
    }

    fn apply(&mut self, (index, term, batch): &Entry) {
        self.applied = self.applied.max(*index);
        let Some(batch) = batch else { return };
        if batch.clears {
            self.rows.retain(|_, row| row.index >= *index);
        }
        for Write { key, put } in &batch.writes {
            match put {
                Some(put) => {
                    let (expires, value) = (put.expires, put.value.clone());
                    self.put(key.clone(), Row { index: *index, term: *term, expires, value });
                }
                None if self.rows.get(key).is_some_and(|present| present.index < *index) => {
                    self.rows.remove(key);
                }
                None => {}
            }
        }
    }

    fn merge(&mut self, Rows { from, to, rows }: Rows, index: Index) {
        let rows: BTreeMap<Vec<u8>, Row> = rows.into_iter().collect();
        let is_in_part = |key: &Vec<u8>| *key >= from && to.as_ref().is_none_or(|to| key < to);
        self.rows.retain(|key, own| !is_in_part(key) || own.index > index || rows.contains_key(key));
        for (key, row) in rows {
            // A record of an entry that is applied here is here, or was overwritten or deleted.
            if row.index > self.applied || self.rows.contains_key(&key) {
                self.put(key, row);
            }
        }
    }
}

/// Tables in memory, and what of them is durable.
#[derive(Debug, Default)]
pub(super) struct ModelTables(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    live: Contents,
    durable: Contents,
}

impl ModelTables {
    /// The contents as a reader sees them.
    pub(super) fn contents(&self) -> Contents {
        self.0.lock().live.clone()
    }

    /// The tables after a power cut. `flushed`: everything was flushed before, by the store itself.
    pub(super) fn cut(&self, flushed: bool) -> ModelTables {
        let state = self.0.lock();
        let durable = if flushed { state.live.clone() } else { state.durable.clone() };
        ModelTables(Mutex::new(State { live: durable.clone(), durable }))
    }
}

impl Tables for ModelTables {
    fn applied(&self) -> Index {
        self.0.lock().live.applied
    }

    fn apply(&self, entries: &[Entry]) -> shard::Result<()> {
        let mut state = self.0.lock();
        entries.iter().for_each(|entry| state.live.apply(entry));
        Ok(())
    }

    fn skip_to(&self, index: Index) -> shard::Result<()> {
        let live = &mut self.0.lock().live;
        live.applied = live.applied.max(index);
        Ok(())
    }

    fn get(&self, key: &[u8]) -> shard::Result<Option<Row>> {
        Ok(self.0.lock().live.rows.get(key).cloned())
    }

    fn rows(&self, from: &[u8]) -> shard::Result<Rows> {
        let state = self.0.lock();
        let mut found = state.live.rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let rows = found.by_ref().take(ROWS_OF_A_PART).map(|(key, row)| (key.clone(), row.clone())).collect();
        let to = found.next().map(|(key, _)| key.clone());
        Ok(Rows { from: from.to_vec(), to, rows })
    }

    fn merge(&self, rows: Rows, index: Index) -> shard::Result<()> {
        self.0.lock().live.merge(rows, index);
        Ok(())
    }

    fn give(&self, key: &[u8], row: Row) -> shard::Result<()> {
        let live = &mut self.0.lock().live;
        if live.rows.get(key).is_some_and(|present| present.index == row.index) {
            live.put(key.to_vec(), row);
        }
        Ok(())
    }

    fn drop_values(&self, upto: Index) -> shard::Result<()> {
        let state = &mut *self.0.lock();
        for contents in [&mut state.live, &mut state.durable] {
            contents.rows.values_mut().filter(|row| row.index <= upto).for_each(|row| row.value = None);
        }
        Ok(())
    }

    fn flush(&self) -> shard::Result<Index> {
        let mut state = self.0.lock();
        state.durable = state.live.clone();
        Ok(state.durable.applied)
    }
}
