//! The writes of commands that ran, before the store has them: the next batch, over which later commands read.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::record::{HEADER_LEN, Record};

/// A batch: clears the database first if told to, then puts or deletes one record a key.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    cleared: bool,
    entries: BTreeMap<Bytes, Option<Record>>,
    bytes: usize,
    pipelines: usize,
}

impl Overlay {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        !self.cleared && self.entries.is_empty()
    }

    /// Whether the batch begins by clearing the database.
    pub fn is_cleared(&self) -> bool {
        self.cleared
    }

    /// Keys put or deleted.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Notes that the next writes are those of one more pipeline.
    pub(crate) fn begin_pipeline(&mut self) {
        self.pipelines += 1;
    }

    /// Pipelines whose writes the batch joins.
    pub fn pipelines(&self) -> usize {
        self.pipelines
    }

    /// About how many bytes of keys and values were put since the last [`reset`](Overlay::reset).
    pub fn byte_size(&self) -> usize {
        self.bytes
    }

    /// The entries in the order of keys; `None` is a delete.
    pub fn entries(&self) -> impl Iterator<Item = (&Bytes, Option<&Record>)> {
        self.entries.iter().map(|(k, v)| (k, v.as_ref()))
    }

    /// The entries at and after `from`, in the order of keys.
    pub(crate) fn entries_from(&self, from: &[u8]) -> impl Iterator<Item = (&Bytes, &Option<Record>)> {
        use std::ops::Bound;
        self.entries.range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
    }

    /// The batch's write of a key: a record, a delete, or none.
    pub fn get(&self, key: &[u8]) -> Option<Option<&Record>> {
        match self.entries.get(key) {
            Some(entry) => Some(entry.as_ref()),
            None if self.cleared => Some(None),
            None => None,
        }
    }

    /// Puts a record.
    pub fn put(&mut self, key: Bytes, record: Record) {
        self.bytes += key.len() + record.value.len() + HEADER_LEN;
        self.entries.insert(key, Some(record));
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: Bytes) {
        self.bytes += key.len();
        self.entries.insert(key, None);
    }

    /// Clears the database: every earlier write of the batch goes too.
    pub fn clear(&mut self) {
        self.cleared = true;
        self.entries.clear();
    }

    /// Makes the batch empty.
    pub fn reset(&mut self) {
        self.cleared = false;
        self.entries.clear();
        self.bytes = 0;
        self.pipelines = 0;
    }
}
