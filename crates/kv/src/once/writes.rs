//! A batch's changes of the table of ids.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::id::OnceId;
use super::table::OnceIds;

/// A batch's changes of the table of ids.
#[derive(Clone, Debug, Default)]
pub struct OnceWrites {
    /// The new records; `None` expires the id.
    records: BTreeMap<OnceId, Option<Bytes>>,
    /// Number of ids that the batch makes, and that it expires.
    made: usize,
    expired: usize,
}

impl OnceWrites {
    /// Whether the batch leaves the table as it is.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Number of ids that the batch changes.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The ids that the batch changes, in their order, with their new records; `None` expires the id.
    pub fn entries(&self) -> impl Iterator<Item = (OnceId, Option<&Bytes>)> {
        self.records.iter().map(|(id, record)| (*id, record.as_ref()))
    }

    /// The batch's record of `id`: `Some(None)` if the id expires, `None` if the batch does not change the id.
    pub fn get(&self, id: OnceId) -> Option<Option<&Bytes>> {
        self.records.get(&id).map(Option::as_ref)
    }

    /// Sets the record of an id that is in the table.
    pub(crate) fn put(&mut self, id: OnceId, record: Bytes) {
        self.records.insert(id, Some(record));
    }

    /// Adds a new id with its record.
    pub(crate) fn make(&mut self, id: OnceId, record: Bytes) {
        self.made += 1;
        self.put(id, record);
    }

    /// The id that is to expire before another one is made in a table with `ids` and at most `most` of them: `Some(None)` if each id is in use by this batch, `None` if there is room. As many longest idle ids as the batch changes, and one more, are known.
    pub(crate) fn to_expire(&self, ids: &OnceIds, most: usize) -> Option<Option<OnceId>> {
        let count = (ids.count + self.made).saturating_sub(self.expired);
        (count >= most).then(|| ids.longest_idle.iter().find(|id| !self.records.contains_key(id)).copied())
    }

    /// Expires an id that is in the table of the store.
    pub(crate) fn expire(&mut self, id: OnceId) {
        self.expired += 1;
        self.records.insert(id, None);
    }

    /// Makes the changes none.
    pub(crate) fn reset(&mut self) {
        *self = OnceWrites::default();
    }
}
