//! The next batch: the writes of commands that ran and that the store does not have yet. Later commands read
//! the store through it.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::once::{OnceId, OnceWrites};
use crate::record::{HEADER_LEN, Record};

/// A batch of writes: optionally clears the database first, then puts or deletes one record per key. Beside the keys, changes of the table of ids.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    cleared: bool,
    entries: BTreeMap<Bytes, Option<Record>>,
    once: OnceWrites,
    bytes: usize,
    pipelines: usize,
}

/// The writes of some keys at one time of a batch.
#[derive(Debug)]
pub(crate) struct Savepoint {
    entries: Vec<(Bytes, Option<Option<Record>>)>,
    bytes: usize,
}

impl Overlay {
    /// Whether the batch has no writes.
    pub fn is_empty(&self) -> bool {
        !self.cleared && self.entries.is_empty() && self.once.is_empty()
    }

    /// Whether the batch begins by clearing the database.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Number of keys that the batch puts or deletes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Notes that the next writes are those of one more pipeline.
    pub(crate) fn begin_pipeline(&mut self) {
        self.pipelines += 1;
    }

    /// Number of pipelines whose writes are in the batch.
    pub fn pipelines(&self) -> usize {
        self.pipelines
    }

    /// Approximate bytes of keys and values put since the last [`reset`](Overlay::reset).
    pub fn byte_size(&self) -> usize {
        self.bytes
    }

    /// The batch's writes in the order of keys; `None` is a delete.
    pub fn entries(&self) -> impl Iterator<Item = (&Bytes, Option<&Record>)> {
        self.entries.iter().map(|(k, v)| (k, v.as_ref()))
    }

    /// The batch's writes at and after the key `from`, in the order of keys.
    pub(crate) fn entries_from(&self, from: &[u8]) -> impl Iterator<Item = (&Bytes, &Option<Record>)> {
        use std::ops::Bound;
        self.entries.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
    }

    /// The batch's write of `key`: `Some(None)` is a delete, `None` no write.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Record>> {
        match self.entries.get(key) {
            Some(entry) => Some(entry.as_ref()),
            None if self.cleared => Some(None),
            None => None,
        }
    }

    /// The changes of the table of ids. Clearing the database leaves them, and the table, as they are.
    pub fn once(&self) -> &OnceWrites {
        &self.once
    }

    /// Sets the record of an id that is in the table.
    pub fn put_once(&mut self, id: OnceId, record: Bytes) {
        self.bytes += record.len();
        self.once.put(id, record);
    }

    /// Adds a new id to the table.
    pub fn make_once(&mut self, id: OnceId, record: Bytes) {
        self.bytes += record.len();
        self.once.make(id, record);
    }

    /// Removes an id from the table.
    pub fn expire_once(&mut self, id: OnceId) {
        self.once.expire(id);
    }

    /// The writes of `keys` as they are now.
    pub(crate) fn savepoint(&self, keys: impl Iterator<Item = Bytes>) -> Savepoint {
        let entries = keys.map(|key| (self.entries.get(&key).cloned(), key));
        Savepoint { entries: entries.map(|(entry, key)| (key, entry)).collect(), bytes: self.bytes }
    }

    /// Makes the writes of a savepoint's keys what they were then.
    pub(crate) fn restore(&mut self, savepoint: Savepoint) {
        for (key, entry) in savepoint.entries {
            match entry {
                Some(entry) => self.entries.insert(key, entry),
                None => self.entries.remove(&key),
            };
        }
        self.bytes = savepoint.bytes;
    }

    /// Adds a put of a record.
    pub fn put(&mut self, key: Bytes, record: Record) {
        self.bytes += key.len() + record.value.len() + HEADER_LEN;
        self.entries.insert(key, Some(record));
    }

    /// Adds a delete of a key.
    pub fn delete(&mut self, key: Bytes) {
        self.bytes += key.len();
        self.entries.insert(key, None);
    }

    /// Adds deletes of those keys that the batch does not write.
    pub(crate) fn delete_unwritten(&mut self, keys: Vec<Bytes>) {
        for key in keys {
            if self.get(&key).is_none() {
                self.delete(key);
            }
        }
    }

    /// Adds the clearing of the database, which drops every earlier write of the batch.
    pub fn clear(&mut self) {
        self.cleared = true;
        self.entries.clear();
    }

    /// Makes the batch empty.
    pub fn reset(&mut self) {
        self.cleared = false;
        self.entries.clear();
        self.once.reset();
        self.bytes = 0;
        self.pipelines = 0;
    }
}
