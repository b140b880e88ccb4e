//! What the engine needs of an ordered store.

use std::fmt::Debug;
use std::ops::ControlFlow;

use units::Bytes;

use crate::{Overlay, Result};

/// Called with each key and record of a scan, in the order of keys; says whether to go on.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

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
/// Every method may block. Readers run beside the one writer.
pub trait Store: Send + Sync + Debug {
    /// Calls `found` once, with the stored record of `key` or with nothing.
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;

    /// Calls `found` once for each key, in order, from one state of the store: no batch is seen in part.
    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()>;

    /// Visits what lies at and after `from` in the order of keys, from one state of the store.
    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()>;

    /// Applies a batch: wholly or not at all, also across a crash. With `sync` it is durable on return.
    fn write(&self, batch: &Overlay, sync: bool) -> Result<()>;

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
