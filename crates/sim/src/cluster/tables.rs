//! A model of a replica's tables, which loses with the power what was not flushed.

use std::collections::BTreeMap;
use std::sync::Arc;

use kv::OnceIds;
use parking_lot::Mutex;
use replica::{Index, Term};
use shard::{Entry, Row, Rows, Tables, Write};

use crate::tables::Contents;

/// Records in one part of the tables.
const ROWS_OF_A_PART: usize = 4;

/// The last committed write of each key, as far as a node has put it into its tables.
#[derive(Debug, Default)]
pub(super) struct Committed(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: BTreeMap<Vec<u8>, LastWrite>,
    entries: BTreeMap<Index, Applied>,
    /// The first entry that is another one on another node.
    contradiction: Option<String>,
}

/// An entry that a node has put into its tables: its term, and its keys with whether they are put.
#[derive(Clone, PartialEq, Debug)]
struct Applied {
    term: Term,
    keys: Vec<(Vec<u8>, bool)>,
}

/// The last committed write of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastWrite {
    pub index: Index,
    pub term: Term,
    /// The key has a value since.
    pub puts: bool,
}

impl Committed {
    fn note(&self, (index, term, batch): &Entry) {
        let known = &mut *self.0.lock();
        let writes = batch.iter().flat_map(|batch| &batch.writes);
        let keys = writes.map(|write| (write.key.clone(), write.put.is_some())).collect();
        let entry = Applied { term: *term, keys };
        let first = known.entries.entry(*index).or_insert_with(|| entry.clone());
        if *first != entry {
            known
                .contradiction
                .get_or_insert(format!("two nodes apply {first:?} and {entry:?} at {index:?}"));
        }
        for Write { key, put } in batch.iter().flat_map(|batch| &batch.writes) {
            let write = LastWrite { index: *index, term: *term, puts: put.is_some() };
            let last = known.last.entry(key.clone()).or_insert(write);
            if last.index < *index {
                *last = write;
            }
        }
    }

    /// The first entry that was another one on another node, if there is one.
    pub(super) fn contradiction(&self) -> Option<String> {
        self.0.lock().contradiction.clone()
    }

    /// The keys that have values, and the writes that gave these.
    pub(super) fn puts(&self) -> Vec<(Vec<u8>, LastWrite)> {
        let known = self.0.lock();
        let puts = known.last.iter().filter(|(_, write)| write.puts);
        puts.map(|(key, write)| (key.clone(), *write)).collect()
    }
}

/// Tables in memory, and what of them is durable.
#[derive(Debug)]
pub(super) struct ModelTables {
    committed: Arc<Committed>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Contents,
    durable: Contents,
}

impl ModelTables {
    /// Empty tables of a node whose group has these last writes.
    pub(super) fn new(committed: &Arc<Committed>) -> ModelTables {
        ModelTables { committed: Arc::clone(committed), state: Mutex::default() }
    }

    /// True if the value of that write is durable here.
    pub(super) fn has(&self, key: &[u8], write: LastWrite) -> bool {
        let state = self.state.lock();
        state.durable.rows.get(key).is_some_and(|row| row.index == write.index && row.value.is_some())
    }

    /// The index up to which the log is in the tables.
    pub(super) fn applied_index(&self) -> Index {
        self.state.lock().live.applied
    }

    /// The contents as a reader sees them.
    pub(super) fn contents(&self) -> Contents {
        self.state.lock().live.clone()
    }

    /// The tables after a power cut. `flushed`: everything was flushed before, by the store itself.
    pub(super) fn cut(&self, flushed: bool) -> ModelTables {
        let state = self.state.lock();
        let durable = if flushed { state.live.clone() } else { state.durable.clone() };
        let state = Mutex::new(State { live: durable.clone(), durable });
        ModelTables { committed: Arc::clone(&self.committed), state }
    }
}

impl Tables for ModelTables {
    fn applied(&self) -> Index {
        self.state.lock().live.applied
    }

    fn apply(&self, entries: &[Entry]) -> shard::Result<()> {
        let mut state = self.state.lock();
        for entry in entries {
            self.committed.note(entry);
            state.live.apply(entry);
        }
        Ok(())
    }

    fn skip_to(&self, index: Index) -> shard::Result<()> {
        let live = &mut self.state.lock().live;
        live.applied = live.applied.max(index);
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]]) -> shard::Result<Vec<Option<Row>>> {
        let state = self.state.lock();
        Ok(keys.iter().map(|key| state.live.rows.get(*key).cloned()).collect())
    }

    fn rows(&self, from: &[u8]) -> shard::Result<Rows> {
        Ok(self.state.lock().live.part(from, ROWS_OF_A_PART))
    }

    fn key_estimate(&self) -> u64 {
        self.state.lock().live.rows.len() as u64
    }

    fn once_ids(&self, most: usize) -> shard::Result<OnceIds> {
        Ok(self.state.lock().live.once_ids(most))
    }

    fn merge(&self, rows: Rows, index: Index) -> shard::Result<()> {
        self.state.lock().live.merge(rows, index);
        Ok(())
    }

    fn give(&self, key: &[u8], row: Row) -> shard::Result<()> {
        self.state.lock().live.give(key, row);
        Ok(())
    }

    fn drop_values(&self, upto: Index) -> shard::Result<()> {
        let state = &mut *self.state.lock();
        for contents in [&mut state.live, &mut state.durable] {
            contents.drop_values(upto);
        }
        Ok(())
    }

    fn flush(&self) -> shard::Result<Index> {
        let mut state = self.state.lock();
        state.durable = state.live.clone();
        Ok(state.durable.applied)
    }
}
