//! A group as the store below an engine: the leader's engine runs commands over the leader's tables, and a batch is an entry of the group's log.
//!
//! A view is a term in which this replica leads and its tables have all of earlier terms. A command that reads and writes in one view is linearizable: nobody else writes in that term, and its own engine runs no two commands on one key at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use fs::Fs;
use kv::parallel_wal::WalMode;
use kv::{
    Error, OnceId, OnceIds, OnceTable, Overlay, RecordId, RecordRef, Room, Store, View, Visit, Writing,
};
use replica::Term;
use units::Bytes;

use crate::group::{Group, Refused};
use crate::row_key::{client_key, once_row_key, row_key};
use crate::tables::{Row, Tables};

/// The store of one group. Its writes are durable in the logs of a majority, whatever `sync` says.
#[derive(Debug)]
pub struct GroupStore {
    group: Arc<Group>,
    tables: Arc<dyn Tables>,
    /// The file system of the leader's drive, and the bytes that are kept free there.
    drive: Option<(Fs, Bytes)>,
}

impl GroupStore {
    /// The store of a group with these tables.
    pub fn new(group: Arc<Group>, tables: Arc<dyn Tables>) -> GroupStore {
        GroupStore { group, tables, drive: None }
    }

    /// The same, with a bound: the engine refuses writes that grow the data once less than `reserve` is free on the leader's drive, or a voter says the same of its own.
    #[must_use]
    pub fn with_reserve(self, fs: Fs, reserve: Bytes) -> GroupStore {
        self.group.watch_room(fs.clone(), reserve);
        GroupStore { drive: Some((fs, reserve)), ..self }
    }

    /// The rows of row keys, all with their values.
    fn rows(&self, keys: &[&[u8]]) -> kv::Result<Vec<Option<Row>>> {
        let rows = self.tables.get_many(keys).map_err(|error| tables_failed(&error))?;
        if rows.iter().flatten().any(|row| row.value.is_none()) {
            let group = self.group.place().group;
            return Err(Error::Missing(format!("{group}: no replica that has the value answers")));
        }
        Ok(rows)
    }

    fn to_error(&self, refused: Refused) -> Error {
        let group = self.group.place().group;
        match refused {
            Refused::NotLeader(_) => Error::NotLeader(format!("{group}: {refused}")),
            Refused::Unknown => Error::Open(format!("{group}: {refused}")),
            Refused::Full => Error::LogFull(format!("{group}: {refused}")),
            Refused::TooLong(_) => {
                Error::Refused { doing: "writing to the group's log", detail: format!("{group}: {refused}") }
            }
            Refused::NoCopy => Error::Missing(format!("{group}: {refused}")),
            // Nothing was begun here, and other replicas may go on. A write is another matter.
            Refused::Ended => Error::NotLeader(format!("{group}: {refused}")),
        }
    }
}

fn tables_failed(error: &crate::Error) -> Error {
    Error::Store { doing: "reading the group's tables", detail: error.to_string() }
}

/// A record as the engine's stores have it. Without its value where that is not here.
fn stored(row: &Row) -> Vec<u8> {
    RecordRef { expires: row.expires, value: row.value.as_deref().unwrap_or_default() }.encode()
}

impl OnceTable for GroupStore {
    fn group(&self) -> u64 {
        self.group.place().group.0
    }

    fn record(&self, id: OnceId, found: &mut dyn FnMut(Option<&[u8]>)) -> kv::Result<()> {
        let rows = self.rows(&[&once_row_key(id)])?;
        found(rows.iter().flatten().find_map(|row| row.value.as_deref()));
        Ok(())
    }

    fn ids(&self, most: usize) -> kv::Result<OnceIds> {
        self.tables.once_ids(most).map_err(|error| tables_failed(&error))
    }
}

impl Store for GroupStore {
    fn view(&self) -> kv::Result<View> {
        self.group.view().map(|term| View(term.0)).map_err(|refused| self.to_error(refused))
    }

    fn confirm(&self, view: View) -> Option<Writing<'_>> {
        let term = Term(view.0);
        if self.group.may_answer(term) {
            return None;
        }
        Some(Box::pin(
            async move { self.group.confirm(term).await.map_err(|refused| self.to_error(refused)) },
        ))
    }

    fn fetch(&self, records: Vec<RecordId>) -> Writing<'_> {
        let key = |record: &RecordId| match record {
            RecordId::Key(key) => row_key(key),
            RecordId::Once(id) => once_row_key(*id),
        };
        let keys: Vec<Vec<u8>> = records.iter().map(key).collect();
        Box::pin(async move {
            let fetched = self.group.fetch(&keys).await;
            fetched.map_err(|refused| self.to_error(refused))
        })
    }

    fn once(&self) -> Option<&dyn OnceTable> {
        Some(self)
    }

    fn expires_by_writes(&self) -> bool {
        !self.group.rules().expires_by_clock()
    }

    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> kv::Result<()> {
        self.multi_get(&[key], &mut |_, stored| found(stored))
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> kv::Result<()> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| row_key(key)).collect();
        let rows = self.rows(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        for (place, row) in rows.iter().enumerate() {
            found(place, row.as_ref().map(stored).as_deref());
        }
        Ok(())
    }

    /// Visits parts of the keys, each from one state of the tables. A record whose value is not here comes without it.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> kv::Result<()> {
        let mut from = row_key(from);
        loop {
            let part = self.tables.rows(&from).map_err(|error| tables_failed(&error))?;
            for (key, row) in part.rows.iter().filter_map(|(key, row)| Some((client_key(key)?, row))) {
                if let ControlFlow::Break(()) = visit(key, &stored(row)) {
                    return Ok(());
                }
            }
            match part.to {
                Some(to) => from = to,
                None => return Ok(()),
            }
        }
    }

    fn write(&self, batch: &Overlay, _sync: bool, view: View) -> Writing<'_> {
        let writing = self.group.write_in(Term(view.0), batch);
        Box::pin(async move {
            writing.await.map(|_| ()).map_err(|refused| match refused {
                // The other replicas may have the batch.
                Refused::Ended => Error::Open(format!("{}: {refused}", self.group.place().group)),
                refused => self.to_error(refused),
            })
        })
    }

    fn wal(&self) -> WalMode {
        WalMode::Auto
    }

    fn sync(&self) -> kv::Result<()> {
        Ok(())
    }

    fn room(&self) -> Option<Room> {
        let (fs, reserve) = self.drive.as_ref()?;
        // A voter that has no room for an entry would end its replica.
        let free = if self.group.voter_lacks_room() { Bytes(0) } else { fs.statfs().free };
        Some(Room { free, reserve: *reserve })
    }

    fn key_estimate(&self) -> u64 {
        self.tables.key_estimate()
    }

    /// Leaves the replica as it is: it serves the group without its engine too.
    fn close(&self) -> kv::Result<()> {
        Ok(())
    }
}
