//! A group's tables in RocksDB: one database has those of all groups of a process ([`TablesDb`]), each with keys of its own ([`row`]).

mod db;
mod idle_ids;
mod row;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kv::{OnceId, OnceIds};
use parking_lot::Mutex;
use replica::{Index, Role};
use rocks::{Cursor, WriteBatch};

use self::db::Outcome;
pub use self::db::{TablesDb, TablesOptions};
use self::idle_ids::IdleIds;
use self::row::{GroupKeys, TablesState, decode_row, encode_row};
use crate::batch::{Batch, Put, Write};
use crate::row_key::{client_key, is_row_key, once_id, row_key};
use crate::tables::{Entry, Row, Rows, Tables};
use crate::{Error, GroupId, Result};

/// The most records, and about the most bytes, of a part of the tables that another replica gets.
const PART_ROWS: usize = 4096;
const PART_BYTES: usize = 1 << 20;

/// The most records whose values can be dropped without a walk over the tables.
const KNOWN_VALUES: usize = 1 << 16;

/// The records that one call of [`Tables::drop_values`] visits at most on the walk over the tables.
const WALK_ROWS: usize = 4096;

/// The tables of one replica of a group.
///
/// An entry's changes and the index of the last entry are one batch of RocksDB, so that a crash leaves the tables as they were behind one of the entries. A value that is dropped before a flush never reaches the drive: the flush writes the record's last version alone.
pub struct GroupTables {
    group: GroupId,
    keys: GroupKeys,
    db: Arc<TablesDb>,
    /// The index up to which the log is in the tables, also in memory.
    applied: AtomicU64,
    state: Mutex<State>,
}

/// The lock is held from the read of a record to the write that depends on it.
struct State {
    /// The state that the tables have, as far as it is written.
    written: TablesState,
    /// The sequence number of the last batch; 0 before the first.
    sequence: u64,
    values: KeptValues,
    /// The ids, once they were asked for.
    ids: Option<IdleIds>,
}

/// The records that have values, which a witness is told to drop some day.
struct KeptValues {
    /// False for a backup, which drops no value.
    are_dropped: bool,
    /// Records that got values, by the index of their entry.
    known: BTreeSet<(Index, Vec<u8>)>,
    /// The key from which on other records may have values; `None` if none has.
    unknown_from: Option<Vec<u8>>,
}

/// No row key is before these bytes.
const FIRST_ROW: &[u8] = b"o";

impl KeptValues {
    fn note(&mut self, index: Index, key: &[u8]) {
        if !self.are_dropped {
            return;
        }
        if self.known.len() >= KNOWN_VALUES {
            self.known.clear();
            self.unknown_from = Some(Vec::new());
        }
        self.known.insert((index, key.to_vec()));
    }
}

/// A batch of RocksDB under way, with the records with values that it puts.
#[derive(Default)]
struct Changes {
    batch: WriteBatch,
    values: Vec<(Index, Vec<u8>)>,
    /// The ids that the batch changes, with the index of the new record's entry; `None` if the id goes.
    ids: Vec<(OnceId, Option<Index>)>,
}

impl GroupTables {
    /// The tables of a group's replica of that role, empty if the database has none.
    ///
    /// # Errors
    /// `Tables` where the database fails, or has tables of another version.
    pub fn open(db: &Arc<TablesDb>, group: GroupId, role: Role) -> Result<GroupTables> {
        let keys = GroupKeys::of(group);
        let stored = db.rocks().get(&keys.state()).map_err(|error| error.to_string());
        let written = stored.and_then(|state| match state {
            Some(state) => TablesState::decode(&state),
            None => Ok(TablesState::default()),
        });
        let written = written.map_err(|why| Error::Tables { group, why })?;
        let are_dropped = role == Role::Witness;
        let values = KeptValues { are_dropped, known: BTreeSet::new(), unknown_from: Some(Vec::new()) };
        let state = Mutex::new(State { written, sequence: 0, values, ids: None });
        let applied = AtomicU64::new(written.applied.0);
        Ok(GroupTables { group, keys, db: Arc::clone(db), applied, state })
    }

    /// Removes everything that the database has of a group, durably. No tables of the group may be open.
    ///
    /// # Errors
    /// `Tables` where the database fails.
    pub fn remove(db: &TablesDb, group: GroupId) -> Result<()> {
        let keys = GroupKeys::of(group);
        let remove = || {
            let nothing = TablesState::default().encode();
            let stored = db.rocks().get(&keys.state()).map_err(|error| error.to_string())?;
            if stored.is_none_or(|stored| stored[..] == nothing[..]) {
                return Ok(());
            }
            let mut batch = WriteBatch::default();
            let (from, to) = keys.records();
            batch.delete_range(&from, &to);
            // The last change is a put: RocksDB reports how far its tables go.
            batch.put(&keys.state(), &nothing);
            db.flush(db.apply(&mut batch)?)
        };
        remove().map_err(|why| Error::Tables { group, why })
    }

    fn done<T>(&self, outcome: Outcome<T>) -> Result<T> {
        outcome.map_err(|why| Error::Tables { group: self.group, why })
    }

    fn read(&self, key: &[u8]) -> Outcome<Option<Row>> {
        if !is_row_key(key) {
            return Ok(None);
        }
        let stored = self.db.rocks().get(&self.keys.row(key)).map_err(|error| error.to_string())?;
        stored.map(|stored| self.decode(key, &stored)).transpose()
    }

    fn read_many(&self, keys: &[&[u8]]) -> Outcome<Vec<Option<Row>>> {
        debug_assert!(keys.iter().all(|key| is_row_key(key)), "each key is a row's");
        let names: Vec<Vec<u8>> = keys.iter().map(|key| self.keys.row(key)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let stored = self.db.rocks().multi_get(&names).map_err(|error| error.to_string())?;
        let row = |(stored, key): (&Option<_>, &&[u8])| {
            stored.as_deref().map(|stored| self.decode(key, stored)).transpose()
        };
        stored.iter().zip(keys).map(row).collect()
    }

    fn decode(&self, key: &[u8], stored: &[u8]) -> Outcome<Row> {
        decode_row(stored).ok_or_else(|| format!("the record of key \"{}\" is damaged", key.escape_ascii()))
    }

    /// Calls `visit` with each record from the key `from` on, until it returns false.
    fn walk(&self, from: &[u8], mut visit: impl FnMut(&[u8], Row) -> bool) -> Outcome<()> {
        let at = |cursor: &Cursor| cursor.status().map_err(|error| error.to_string());
        // The state of the tables comes before all rows.
        let from = from.max(FIRST_ROW);
        let mut cursor = self.db.rocks().iter(&self.keys.row(from)).map_err(|error| error.to_string())?;
        while cursor.valid() {
            let Some(key) = self.keys.row_key(cursor.key()) else { break };
            if !visit(key, self.decode(key, cursor.value())?) {
                break;
            }
            cursor.next();
        }
        at(&cursor)
    }

    fn put(&self, changes: &mut Changes, key: &[u8], row: &Row) {
        changes.batch.put(&self.keys.row(key), &encode_row(row));
        if row.value.is_some() {
            changes.values.push((row.index, key.to_vec()));
        }
        changes.ids.extend(once_id(key).map(|id| (id, Some(row.index))));
    }

    fn delete(&self, changes: &mut Changes, key: &[u8]) {
        changes.batch.delete(&self.keys.row(key));
        changes.ids.extend(once_id(key).map(|id| (id, None)));
    }

    /// Writes a batch together with the state of the tables.
    fn write(&self, state: &mut State, mut changes: Changes, new: TablesState) -> Outcome<()> {
        if self.db.rules.writes_index_apart() {
            self.db.apply(&mut changes.batch)?;
            changes.batch.clear();
        }
        // The last change is a put, so that no table ends before it: RocksDB reports how far its tables go.
        changes.batch.put(&self.keys.state(), &new.encode());
        state.sequence = self.db.apply(&mut changes.batch)?;
        state.written = new;
        for (index, key) in changes.values {
            state.values.note(index, &key);
        }
        if let Some(ids) = &mut state.ids {
            changes.ids.into_iter().for_each(|(id, index)| ids.note(id, index));
        }
        Ok(())
    }

    fn apply_entry(&self, ahead: Index, changes: &mut Changes, (index, term, batch): &Entry) -> Outcome<()> {
        let Some(Batch { clears, writes }) = batch else { return Ok(()) };
        // Only records that came from another replica are of later entries.
        let may_be_later = *index <= ahead && !self.db.rules.replaces_later_records();
        if *clears {
            let (from, to) = self.keys.clients();
            changes.batch.delete_range(&from, &to);
            if may_be_later {
                self.walk(&row_key(b""), |key, row| {
                    if row.index >= *index {
                        self.put(changes, key, &row);
                    }
                    true
                })?;
            }
        }
        for Write { key, put } in writes {
            if self.db.rules.forgets_answers() && client_key(key).is_none() && self.read(key)?.is_some() {
                continue;
            }
            if may_be_later && self.read(key)?.is_some_and(|present| present.index >= *index) {
                self.give_value_of(changes, key, (*index, put.as_ref()))?;
                continue;
            }
            match put {
                Some(Put { expires, value }) => {
                    let row = Row { index: *index, term: *term, expires: *expires, value: value.clone() };
                    self.put(changes, key, &row);
                }
                None => self.delete(changes, key),
            }
        }
        Ok(())
    }

    /// The record of this entry is present already. Its value is taken, where the record lacks it.
    fn give_value_of(
        &self,
        changes: &mut Changes,
        key: &[u8],
        (index, put): (Index, Option<&Put>),
    ) -> Outcome<()> {
        let value = put.and_then(|put| put.value.as_ref());
        if let (Some(value), Some(present)) = (value, self.read(key)?)
            && present.index == index
            && present.value.is_none()
        {
            self.put(changes, key, &Row { value: Some(value.clone()), ..present });
        }
        Ok(())
    }

    fn merge_part(&self, Rows { from, to, rows }: Rows, index: Index) -> Outcome<()> {
        let mut state = self.state.lock();
        let (mut changes, mut ahead) = (Changes::default(), state.written.ahead);
        let mut others = rows.into_iter().peekable();
        let applied = Index(self.applied.load(Ordering::Acquire));
        let mut take_alone = |changes: &mut Changes, key: &[u8], row: &Row| {
            // A record of an entry that is applied here is here, or was overwritten or deleted.
            if row.index > applied {
                ahead = ahead.max(row.index);
                self.put(changes, key, row);
            }
        };
        let mut both = Vec::new();
        self.walk(&from, |key, own| {
            if to.as_ref().is_some_and(|to| key >= &to[..]) {
                return false;
            }
            while let Some((other_key, row)) = others.next_if(|(other, _)| &other[..] < key) {
                take_alone(&mut changes, &other_key, &row);
            }
            match others.next_if(|(other, _)| &other[..] == key) {
                Some((_, other)) => both.push((key.to_vec(), own, other)),
                None if own.index <= index => self.delete(&mut changes, key),
                None => {}
            }
            true
        })?;
        for (key, row) in others {
            take_alone(&mut changes, &key, &row);
        }
        for (key, own, other) in both {
            let is_later = other.index > own.index;
            if is_later || other.index == own.index && own.value.is_none() && other.value.is_some() {
                ahead = ahead.max(other.index);
                self.put(&mut changes, &key, &other);
            }
        }
        let new = TablesState { ahead, ..state.written };
        self.write(&mut state, changes, new)
    }

    fn drop_values_upto(&self, upto: Index) -> Outcome<()> {
        let mut state = self.state.lock();
        let mut changes = Changes::default();
        let behind = (Index(upto.0.saturating_add(1)), Vec::new());
        let kept = state.values.known.split_off(&behind);
        let dropped = std::mem::replace(&mut state.values.known, kept);
        let drop = |changes: &mut Changes, key: &[u8], row: Row| {
            if row.index <= upto && row.value.is_some() {
                self.put(changes, key, &Row { value: None, ..row });
            }
        };
        for (_, key) in dropped {
            if let Some(row) = self.read(&key)? {
                drop(&mut changes, &key, row);
            }
        }
        if let Some(from) = state.values.unknown_from.take() {
            let (mut visited, mut later, mut next) = (0, Vec::new(), None);
            self.walk(&from, |key, row| {
                visited += 1;
                if visited > WALK_ROWS {
                    next = Some(key.to_vec());
                    return false;
                }
                if row.index > upto && row.value.is_some() {
                    later.push((row.index, key.to_vec()));
                }
                drop(&mut changes, key, row);
                true
            })?;
            state.values.unknown_from = next;
            for (index, key) in later {
                state.values.note(index, &key);
            }
        }
        if changes.batch.is_empty() {
            return Ok(());
        }
        let written = state.written;
        self.write(&mut state, changes, written)
    }

    fn make_durable(&self) -> Outcome<Index> {
        let (sequence, applied) = {
            let mut state = self.state.lock();
            let applied = Index(self.applied.load(Ordering::Acquire));
            if state.written.applied < applied {
                let new = TablesState { applied, ..state.written };
                self.write(&mut state, Changes::default(), new)?;
            }
            (state.sequence, state.written.applied)
        };
        self.db.flush(sequence)?;
        Ok(applied)
    }
}

impl Tables for GroupTables {
    fn applied(&self) -> Index {
        Index(self.applied.load(Ordering::Acquire))
    }

    fn apply(&self, entries: &[Entry]) -> Result<()> {
        let mut state = self.state.lock();
        let mut changes = Changes::default();
        let ahead = state.written.ahead;
        for entry in entries {
            self.done(self.apply_entry(ahead, &mut changes, entry))?;
        }
        let Some((last, ..)) = entries.last() else { return Ok(()) };
        let applied = self.applied().max(*last);
        let new = TablesState { applied, ..state.written };
        self.done(self.write(&mut state, changes, new))?;
        self.applied.fetch_max(applied.0, Ordering::AcqRel);
        Ok(())
    }

    fn skip_to(&self, index: Index) -> Result<()> {
        self.applied.fetch_max(index.0, Ordering::AcqRel);
        Ok(())
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Row>>> {
        self.done(self.read_many(keys))
    }

    fn rows(&self, from: &[u8]) -> Result<Rows> {
        let (mut rows, mut bytes, mut to) = (Vec::new(), 0, None);
        self.done(self.walk(from, |key, row| {
            if !rows.is_empty() && (bytes >= PART_BYTES || rows.len() >= PART_ROWS) {
                to = Some(key.to_vec());
                return false;
            }
            bytes += key.len() + row.value.as_ref().map_or(0, Vec::len);
            rows.push((key.to_vec(), row));
            true
        }))?;
        Ok(Rows { from: from.to_vec(), to, rows })
    }

    fn key_estimate(&self) -> u64 {
        self.db.key_estimate()
    }

    fn once_ids(&self, most: usize) -> Result<OnceIds> {
        let state = &mut *self.state.lock();
        if state.ids.is_none() {
            let mut ids = IdleIds::default();
            self.done(self.walk(FIRST_ROW, |key, row| {
                let id = once_id(key);
                id.into_iter().for_each(|id| ids.note(id, Some(row.index)));
                id.is_some()
            }))?;
            state.ids = Some(ids);
        }
        Ok(state.ids.as_ref().map(|ids| ids.longest_idle(most)).unwrap_or_default())
    }

    fn merge(&self, rows: Rows, index: Index) -> Result<()> {
        self.done(self.merge_part(rows, index))
    }

    fn give(&self, key: &[u8], row: Row) -> Result<()> {
        let mut state = self.state.lock();
        let present = self.done(self.read(key))?;
        if present.is_none_or(|present| {
            (present.index, present.term) != (row.index, row.term) || present.value.is_some()
        }) {
            return Ok(());
        }
        let mut changes = Changes::default();
        self.put(&mut changes, key, &row);
        let written = state.written;
        self.done(self.write(&mut state, changes, written))
    }

    fn drop_values(&self, upto: Index) -> Result<()> {
        self.done(self.drop_values_upto(upto))
    }

    fn flush(&self) -> Result<Index> {
        self.done(self.make_durable())
    }
}

impl std::fmt::Debug for GroupTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tables of {}, applied {}", self.group, self.applied.load(Ordering::Acquire))
    }
}
