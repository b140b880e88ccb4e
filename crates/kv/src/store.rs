//! The interface of the store below the engine.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::pin::Pin;

use units::Bytes;

use crate::error::Result;
use crate::once::{OnceTable, RecordId};
use crate::overlay::Overlay;
use crate::parallel_wal::{HeldRecords, WalMode};

/// Called with each key and record of a scan of the store, in the order of keys; `Break` ends the scan.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// The future of a batch's write, or of another operation of the store.
pub type Writing<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// The state of a store in which commands read: of a replicated store the leader's term. Any other store has one view.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct View(pub u64);

/// The state of a store's parallel log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogReport {
    /// The log's counters since its opening.
    pub log: fs::wal::LogStats,
    /// The batches that the store would replay after a crash.
    pub held: HeldRecords,
}

/// The free room of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that can still be written to the drive.
    pub free: Bytes,
    /// Free bytes below which the engine refuses writes that grow the data, so that deletes and compactions still find
    /// room.
    pub reserve: Bytes,
}

impl Room {
    /// Whether less than the reserve is free, so that only writes that free space may go on.
    pub fn is_short(&self) -> bool {
        self.free < self.reserve
    }
}

/// An ordered map of keys to records ([`crate::Record`]) with atomic, durable batches.
///
/// Every method may block. Readers run beside writers. The caller makes sure that no two batches in flight share a key.
///
/// A replicated store is read and written in a [`view`](Store::view): commands read in the view, and what they read and write counts only if the view has lasted until then.
pub trait Store: Send + Sync + Debug {
    /// The view in which commands may run now.
    ///
    /// # Errors
    /// `NotLeader` where another replica is to run them.
    fn view(&self) -> Result<View> {
        Ok(View::default())
    }

    /// Confirms that everything that was read in `view` was current until now, so that clients may be told. `None` if that is certain already.
    fn confirm(&self, _view: View) -> Option<Writing<'_>> {
        None
    }

    /// Gets records whose values [`get`](Store::get) and [`OnceTable::record`] have not found here (`Missing`).
    ///
    /// # Errors
    /// `Missing` if no other replica has one of them.
    fn fetch(&self, records: Vec<RecordId>) -> Writing<'_> {
        drop(records);
        Box::pin(std::future::ready(Ok(())))
    }

    /// True if a key whose time is past is there until a write deletes it: replicas have clocks of their own, and a key that one leader has seen expire must not come back with the next one.
    fn expires_by_writes(&self) -> bool {
        false
    }

    /// The table of ids for commands that run once; `None` if the store has none.
    fn once(&self) -> Option<&dyn OnceTable> {
        None
    }

    /// Calls `found` once, with the stored record of `key` or with nothing.
    ///
    /// # Errors
    /// `Missing` if another replica has the record's value.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Calls `found` once for each key, in order, from one state of the store: no batch is seen in part.
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// Visits the keys at and after `from` in their order, from one state of the store.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// Applies a batch, which follows from what was read in `view`, wholly or not at all, also across a crash. With `sync` the batch is durable when the future is ready.
    /// The first poll begins the write. The returned future does not borrow `batch`. A poll may block during a write stall.
    ///
    /// # Errors
    /// `NotLeader` and `Refused`: the batch never happened. `Open`: it may happen later, or never.
    fn write(&self, batch: &Overlay, sync: bool, view: View) -> Writing<'_>;

    /// Whether the drive would take another batch at once. If not, a caller that waits for a batch in flight can join
    /// all later writes in one batch.
    fn takes_more_batches(&self) -> bool {
        true
    }

    /// The store's log, which decides how pipelines are joined to batches.
    fn wal(&self) -> WalMode {
        WalMode::Group
    }

    /// The store's parallel log; `None` if the store has RocksDB's own log.
    fn log(&self) -> Option<LogReport> {
        None
    }

    /// Makes every earlier write durable.
    fn sync(&self) -> Result<()>;

    /// Estimated number of keys; deleted and expired keys count until they are compacted.
    fn key_estimate(&self) -> u64;

    /// Bytes of memory in memtables, caches and indexes.
    fn used_memory(&self) -> u64 {
        0
    }

    /// The free room on the drive; `None` if the store has no limit.
    fn room(&self) -> Option<Room> {
        None
    }

    /// Lines of `name:value` about the store, for INFO.
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Flushes the memtables and closes the store's files.
    fn close(&self) -> Result<()>;
}
