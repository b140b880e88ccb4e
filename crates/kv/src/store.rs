//! What the engine needs of an ordered store.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::pin::Pin;

use units::Bytes;

use crate::{Overlay, Result};

/// Called with each key and record of a scan, in the order of keys; says whether to go on.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// A batch on its way to a store.
pub type Writing<'s> = Pin<Box<dyn Future<Output = Result<()>> + Send + 's>>;

/// How batches are best handed to a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Batching {
    /// One after another, each with everything that waits by then.
    #[default]
    OneAtATime,
    /// Side by side while the store [takes more](Store::takes_more), each with everything that waits and may go by then.
    Together,
    /// Side by side, a pipeline each, but for pipelines that share keys and would wait for each other.
    Alone,
}

/// What a store's parallel log holds and did since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogStats {
    /// Records that it would replay after a crash.
    pub held_records: u64,
    /// Bytes that they take, in whole blocks.
    pub held_bytes: u64,
    /// Records appended.
    pub records: u64,
    /// Appends that the drive took; fewer than records where they went together.
    pub appends: u64,
    /// Flushes of the drive.
    pub drive_flushes: u64,
    /// Records taken back.
    pub voids: u64,
    /// Zones that were left for the next one.
    pub replacements: u64,
    /// How often a record waited for a zone.
    pub waits: u64,
    /// Flushes of memtables that were asked for to make room in the log.
    pub flushes_asked: u64,
}

/// How much a store can still take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that can still be written.
    pub free: Bytes,
    /// Below this much the engine refuses what grows, so that deletes and compactions still find room.
    pub reserve: Bytes,
}

impl Room {
    /// Whether only what frees space may go on.
    pub fn is_short(&self) -> bool {
        self.free < self.reserve
    }
}

/// An ordered map of keys to records ([`crate::Record`]) with atomic, durable batches.
///
/// Every method may block. Readers run beside writers. Writers that run side by side see to it that no two batches on their
/// way share a key.
pub trait Store: Send + Sync + Debug {
    /// Calls `found` once, with the stored record of `key` or with nothing.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Calls `found` once for each key, in order, from one state of the store: no batch is seen in part.
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// Visits what lies at and after `from` in the order of keys, from one state of the store.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// Applies a batch, which is what `writers` have: wholly or not at all, also across a crash. With `sync` it is durable when the future is ready. Nothing
    /// happens before it is polled; `batch` is free when this returns. Polling may block where RocksDB lets writers wait.
    fn write(&self, batch: &Overlay, sync: bool, writers: usize) -> Writing<'_>;

    /// Whether another batch would be on its way at once. If not, it is better to wait until one of those that are is
    /// over, and to write everything that has come by then.
    fn takes_more(&self) -> bool {
        true
    }

    /// How it wants its batches.
    fn batching(&self) -> Batching {
        Batching::OneAtATime
    }

    /// Its parallel log; nothing where it has none.
    fn log(&self) -> Option<LogStats> {
        None
    }

    /// Makes every earlier write durable.
    fn sync(&self) -> Result<()>;

    /// How much can still be written; nothing where there is no such limit.
    fn room(&self) -> Option<Room> {
        None
    }

    /// Lines of `name:value` about the store for INFO.
    fn describe(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Writes out what is in memory and lets go of the files.
    fn close(&self) -> Result<()>;
}
