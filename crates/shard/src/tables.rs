//! The tables of one replica of a group, as the group uses them.

use std::fmt::Debug;

use kv::{Expiry, OnceIds};
use replica::{Index, Term};

use crate::Result;
use crate::batch::Batch;
use crate::row_key::is_row_key;

/// A row of the tables of a group: the record of a client's key, or of an id for commands that run once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The index of the entry that wrote the record, and its term: they name the record on every replica.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
    /// The key's expiry; none of an id.
    pub expires: Expiry,
    /// The value; `None` where this replica does not keep it, or lacks it.
    pub value: Option<Vec<u8>>,
}

/// The records of a part of the row keys, all of them, in the order of these keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// The key at which the part begins.
    pub from: Vec<u8>,
    /// The key before which the part ends; `None` if no key is behind it.
    pub to: Option<Vec<u8>>,
    /// The keys and their records.
    pub rows: Vec<(Vec<u8>, Row)>,
}

impl Rows {
    /// True if the keys are row keys, ascend, lie within the part, and the part is not empty where another one follows.
    pub(crate) fn is_sound(&self) -> bool {
        let Rows { from, to, rows } = self;
        let ascends = rows.is_sorted_by(|(one, _), (next, _)| one < next);
        let is_within =
            |key: &Vec<u8>| is_row_key(key) && key >= from && to.as_ref().is_none_or(|to| key < to);
        let goes_on = to.as_ref().is_none_or(|to| to > from && !rows.is_empty());
        ascends && goes_on && rows.iter().all(|(key, _)| is_within(key))
    }
}

/// An entry to be put into the tables: its index and term, and its batch if it is a command.
pub type Entry = (Index, Term, Option<Batch>);

/// The tables of one replica of a group: an ordered map of row keys to records, and the index up to which the group's log is in it.
///
/// A row key ([`row_key`](crate::row_key()), [`once_row_key`](crate::once_row_key)) stands for a client's key, or for an id for commands that run once. All rows are replicated alike, but that a batch which clears all keys leaves the ids.
///
/// A record that comes with an entry, or from another replica, takes the place of one of an earlier entry only: the tables may be ahead of the index, and entries come again after a crash. Each method may block. A crash leaves the tables as they were at the last [`flush`](Tables::flush) or later, wholly: records and index together.
pub trait Tables: Send + Sync + Debug {
    /// The index up to which the log is in the tables, also in memory.
    fn applied(&self) -> Index;

    /// Puts entries into the tables, all of them or none, with their index.
    ///
    /// # Errors
    /// The store's.
    fn apply(&self, entries: &[Entry]) -> Result<()>;

    /// The tables hold the log up to `index` at least, by a snapshot that they took. Never lowers their index, may be called beside the other methods, and need not be durable.
    ///
    /// # Errors
    /// The store's.
    fn skip_to(&self, index: Index) -> Result<()>;

    /// The record of a key.
    ///
    /// # Errors
    /// The store's.
    fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        Ok(self.get_many(&[key])?.pop().flatten())
    }

    /// The records of keys, in their order, from one state of the tables.
    ///
    /// # Errors
    /// The store's.
    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Row>>>;

    /// Records at and after the key `from`, from one state of the tables: at least one, if there is any, and no more than fit into one message.
    ///
    /// # Errors
    /// The store's.
    fn rows(&self, from: &[u8]) -> Result<Rows>;

    /// Estimated number of keys; may be that of all groups of the process.
    fn key_estimate(&self) -> u64;

    /// The number of ids for commands that run once, and the `most` of them whose records are of the earliest entries, in that order.
    ///
    /// # Errors
    /// The store's.
    fn once_ids(&self, most: usize) -> Result<OnceIds>;

    /// Takes a part of another replica's tables, which hold the log up to `index`, by the rules of `replica::Action::Install`.
    ///
    /// # Errors
    /// The store's.
    fn merge(&self, rows: Rows, index: Index) -> Result<()>;

    /// Takes the value of a record, if the key still has that record, by index and term.
    ///
    /// # Errors
    /// The store's.
    fn give(&self, key: &[u8], row: Row) -> Result<()>;

    /// The values of records of entries up to `upto` are needed no more. They may stay.
    ///
    /// # Errors
    /// The store's.
    fn drop_values(&self, upto: Index) -> Result<()>;

    /// Makes the tables durable. Returns the index up to which they hold the log durably.
    ///
    /// # Errors
    /// The store's.
    fn flush(&self) -> Result<Index>;
}
