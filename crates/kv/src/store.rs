//! The interface of the store below the engine.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::pin::Pin;

use units::Bytes;

use crate::error::Result;
use crate::overlay::Overlay;
use crate::parallel_wal::{HeldRecords, WalMode};

/// Called with each key and record of a scan, in the order of keys; returns whether to go on.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// A batch that is being written.
pub type Writing<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// A store's parallel log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogReport {
    /// What the log did since it was opened.
    pub log: fs::wal::LogStats,
    /// What a crash would make the store replay.
    pub held: HeldRecords,
}

/// How much a store can still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that can still be written.
    pub free: Bytes,
    /// Below this much the engine refuses writes that grow the data, so that deletes and compactions still find room.
    pub reserve: Bytes,
}

impl Room {
    /// Whether only writes that free space may go on.
    pub fn is_short(&self) -> bool {
        self.free < self.reserve
    }
}

/// An ordered map of keys to records ([`crate::Record`]) with atomic, durable batches.
///
/// Every method may block. Readers run beside writers. The caller makes sure that no two batches in flight share a key.
pub trait Store: Send + Sync + Debug {
    /// Calls `found` once, with the stored record of `key` or with nothing.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Calls `found` once for each key, in order, from one state of the store: no batch is seen in part.
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// Visits the keys at and after `from` in their order, from one state of the store.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// Applies a batch: wholly or not at all, also across a crash. With `sync` it is durable when the future is ready. Nothing
    /// happens before the first poll; `batch` is free when this returns. A poll may block where RocksDB lets writers wait.
    fn write(&self, batch: &Overlay, sync: bool) -> Writing<'_>;

    /// Whether the drive would take another batch at once. If not, the caller had better wait until a batch in flight is
    /// written, and make one batch of all that has come by then.
    fn takes_more(&self) -> bool {
        true
    }

    /// Which log the store has: it decides how pipelines make batches.
    fn wal(&self) -> WalMode {
        WalMode::Group
    }

    /// Its parallel log; none where it has RocksDB's own.
    fn log(&self) -> Option<LogReport> {
        None
    }

    /// Makes every earlier write durable.
    fn sync(&self) -> Result<()>;

    /// Estimated number of keys.
    fn key_estimate(&self) -> u64;

    /// Bytes of memory that the data takes.
    fn used_memory(&self) -> u64 {
        0
    }

    /// How much can still be written; none where there is no such limit.
    fn room(&self) -> Option<Room> {
        None
    }

    /// Lines of `name:value` about the store for INFO.
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Flushes the memtables and closes the files.
    fn close(&self) -> Result<()>;
}
