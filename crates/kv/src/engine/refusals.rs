//! The refusal of writes: after a failure of the engine, or while the drive is short of room.

use crate::error::Error;
use crate::store::{Room, Store};
use crate::txn::Refusal;

/// The drive's free room is read again after this many milliseconds, or after `ROOM_PART` of the room was
/// written.
pub(super) const ROOM_AGE_MS: u64 = 100;
/// The drive's free room is read again when batches have taken 1 / `ROOM_PART` of what lies beyond the
/// reserve, within the bounds `ROOM_BYTES_MIN` and `ROOM_BYTES_MAX`. A fast drive can fill a third of a small
/// room in `ROOM_AGE_MS`.
const ROOM_PART: u64 = 8;
const ROOM_BYTES_MIN: u64 = 256 << 10;
const ROOM_BYTES_MAX: u64 = 64 << 20;

/// Decides whether writes are refused. Reads the drive's free room at intervals.
#[derive(Default)]
pub(super) struct Refusals {
    /// Why the engine takes no more writes; `None` while it takes them.
    failure: Option<Refusal>,
    /// The refusal of writes that grow the data, while the drive is short of room.
    shortage: Option<Refusal>,
    /// Time at which the room was read, in milliseconds since 1970.
    read_ms: u64,
    /// Bytes of the batches written since the room was read, and the number of bytes at which the room is
    /// read again.
    written: u64,
    may_write: u64,
}

impl Refusals {
    /// Counts a batch of `bytes` that is being written.
    pub fn note_batch(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes as u64);
    }

    /// Ends all writes with `error`; reads go on.
    pub fn fail(&mut self, error: &Error) {
        if self.failure.is_none() {
            tracing::error!(%error, "the engine takes no writes any more; reads go on; restart the server");
            self.failure = Some(Refusal { text: error.to_client().into(), growth_only: false });
        }
    }

    /// The failure after which the engine takes no writes.
    pub fn failure(&self) -> Option<&Refusal> {
        self.failure.as_ref()
    }

    /// Why writes are refused at `now_ms`, if they are: the engine has failed, or the drive is short of room.
    pub fn refusal(&mut self, store: &dyn Store, now_ms: u64) -> Option<Refusal> {
        if self.failure.is_some() {
            return self.failure.clone();
        }
        if now_ms.abs_diff(self.read_ms) < ROOM_AGE_MS && self.written < self.may_write {
            return self.shortage.clone();
        }
        (self.read_ms, self.written) = (now_ms, 0);
        let room = store.room();
        self.may_write = room.map_or(u64::MAX, |room| {
            let beyond = room.free.0.saturating_sub(room.reserve.0);
            (beyond / ROOM_PART).clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX)
        });
        let short = room.filter(Room::is_short);
        if short.is_some() != self.shortage.is_some() {
            match &short {
                Some(room) => {
                    tracing::warn!(free = room.free.0, reserve = room.reserve.0, "the drive is full")
                }
                None => tracing::info!("the drive has room again"),
            }
        }
        self.shortage = short.map(|room| {
            let error =
                Error::NoSpace(format!("{} bytes are free, {} are kept back", room.free.0, room.reserve.0));
            Refusal { text: error.to_client().into(), growth_only: true }
        });
        self.shortage.clone()
    }
}
