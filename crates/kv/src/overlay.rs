//! Writes that are decided but not yet in the store: the batch to come, and what later commands see.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::Record;

/// A batch: perhaps everything cleared first, then records put or deleted, one entry a key.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    cleared: bool,
    entries: BTreeMap<Bytes, Option<Record>>,
    bytes: usize,
}

impl Overlay {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        !self.cleared && self.entries.is_empty()
    }

    /// Whether everything stored before goes.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Keys put or deleted.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// About how many bytes of keys and values were put since the last [`reset`](Overlay::reset).
    pub fn byte_size(&self) -> usize {
        self.bytes
    }

    /// The entries in the order of keys; nothing as a value is a delete.
    pub fn entries(&self) -> impl Iterator<Item = (&Bytes, Option<&Record>)> {
        self.entries.iter().map(|(k, v)| (k, v.as_ref()))
    }

    /// The entries after `key`, in the order of keys.
    pub(crate) fn entries_from(&self, from: &[u8]) -> impl Iterator<Item = (&Bytes, &Option<Record>)> {
        use std::ops::Bound;
        self.entries.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
    }

    /// What the batch says of a key: nothing if it says nothing.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Record>> {
        match self.entries.get(key) {
            Some(entry) => Some(entry.as_ref()),
            None if self.cleared => Some(None),
            None => None,
        }
    }

    /// Puts a record.
    pub fn put(&mut self, key: Bytes, record: Record) {
        self.bytes += key.len() + record.value.len() + crate::HEADER_LEN;
        self.entries.insert(key, Some(record));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: Bytes) {
        self.bytes += key.len();
        self.entries.insert(key, None);
    }

    /// Deletes everything, here and in the store.
    pub fn clear(&mut self) {
        self.cleared = true;
        self.entries.clear();
    }

    /// Forgets the batch.
    pub fn reset(&mut self) {
        self.cleared = false;
        self.entries.clear();
        self.bytes = 0;
    }
}
