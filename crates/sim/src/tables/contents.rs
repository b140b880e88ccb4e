//! A model of what a replica's tables hold.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use kv::{OnceId, OnceIds};
use replica::Index;
use shard::{Entry, Row, Rows, Write, client_key};

/// The contents of tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Contents {
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

    /// True if both hold records of the same entries, with their values or without.
    pub(crate) fn has_records_of(&self, other: &Contents) -> bool {
        let name = |contents: &Contents| {
            let rows = contents.rows.iter();
            rows.map(|(key, row)| (key.clone(), row.index, row.term)).collect::<Vec<_>>()
        };
        self.rows.len() == other.rows.len() && name(self) == name(other)
    }

    /// Puts an entry into the tables.
    pub(crate) fn apply(&mut self, (index, term, batch): &Entry) {
        self.applied = self.applied.max(*index);
        let Some(batch) = batch else { return };
        if batch.clears {
            self.rows.retain(|key, row| client_key(key).is_none() || row.index >= *index);
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

    /// Takes a part of another replica's tables, which hold the log up to `index`.
    pub(crate) fn merge(&mut self, Rows { from, to, rows }: Rows, index: Index) {
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

    /// Takes the value of a record that lacks it.
    pub(crate) fn give(&mut self, key: &[u8], row: Row) {
        let named = |present: &Row| (present.index, present.term) == (row.index, row.term);
        if self.rows.get(key).is_some_and(named) {
            self.put(key.to_vec(), row);
        }
    }

    /// Drops the values of records of entries up to `upto`.
    pub(crate) fn drop_values(&mut self, upto: Index) {
        self.rows.values_mut().filter(|row| row.index <= upto).for_each(|row| row.value = None);
    }

    /// The ids for commands that run once, the `most` longest idle ones by name.
    pub(crate) fn once_ids(&self, most: usize) -> OnceIds {
        let id =
            |key: &[u8]| if client_key(key).is_none() { OnceId::from_bytes(key.get(1..)?) } else { None };
        let ids = self.rows.iter().filter_map(|(key, row)| Some((row.index, id(key)?)));
        let in_order: BTreeSet<(Index, OnceId)> = ids.collect();
        OnceIds {
            count: in_order.len(),
            longest_idle: in_order.into_iter().take(most).map(|(_, id)| id).collect(),
        }
    }

    /// The records from the key `from` on, at most `count`.
    pub(crate) fn part(&self, from: &[u8], count: usize) -> Rows {
        let mut found = self.rows.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
        let rows = found.by_ref().take(count).map(|(key, row)| (key.clone(), row.clone())).collect();
        let to = found.next().map(|(key, _)| key.clone());
        Rows { from: from.to_vec(), to, rows }
    }
}
