//! The table of ids in a store, beside the keys: no command on keys sees or changes the table.

use bytes::Bytes;

use super::id::OnceId;
use crate::error::Result;

/// Largest number of ids in a table. One more makes the longest idle one expire.
pub const IDS_MAX: usize = 1 << 16;

/// The ids of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OnceIds {
    /// The number of ids.
    pub count: usize,
    /// The longest idle ids, as many as were asked for: those whose records were written the longest ago, the oldest first.
    pub longest_idle: Vec<OnceId>,
}

/// The table of ids of a store. A batch ([`Overlay::once`](crate::Overlay::once)) changes keys and table together.
///
/// Every method may block.
pub trait OnceTable {
    /// The number of the group of replicas that the store belongs to, which ids name.
    fn group(&self) -> u64;

    /// Calls `found` once, with the stored record of `id` ([`OnceRecord`](super::OnceRecord)) or with nothing.
    ///
    /// # Errors
    /// `Missing` if another replica has the record.
    fn record(&self, id: OnceId, found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// The number of ids, and the `most` longest idle ones. No batch is in flight.
    ///
    /// # Errors
    /// The store's.
    fn ids(&self, most: usize) -> Result<OnceIds>;
}

/// The name of a record of a store: a client's key, or an id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RecordId {
    /// The record of a key.
    Key(Bytes),
    /// The record of an id.
    Once(OnceId),
}
