//! What the writer knows of the room on the drive.

use crate::command::client_text;
use crate::{Error, Refusal, Room, Store};

/// How old the knowledge may be.
pub(super) const ROOM_AGE_MS: u64 = 100;
/// And how much may be written by it: a part of what is free beyond what is kept back, within bounds. A fast drive takes a
/// third of a small one's room in the time above.
const ROOM_PART: u64 = 8;
const ROOM_BYTES_MIN: u64 = 256 << 10;
const ROOM_BYTES_MAX: u64 = 64 << 20;

/// Looks at the room now and then.
#[derive(Default)]
pub(super) struct RoomWatch {
    looked_ms: u64,
    /// Bytes of batches since, and how many there may be before the next look.
    written: u64,
    may_write: u64,
    refusal: Option<Refusal>,
}

impl RoomWatch {
    /// So many bytes are being written.
    pub fn writes(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes as u64);
    }

    /// What speaks against writes that grow the data.
    pub fn look(&mut self, store: &dyn Store, now_ms: u64) -> Option<Refusal> {
        if now_ms.abs_diff(self.looked_ms) < ROOM_AGE_MS && self.written < self.may_write {
            return self.refusal.clone();
        }
        (self.looked_ms, self.written) = (now_ms, 0);
        let room = store.room();
        self.may_write = room.map_or(u64::MAX, |room| {
            let beyond = room.free.0.saturating_sub(room.reserve.0);
            (beyond / ROOM_PART).clamp(ROOM_BYTES_MIN, ROOM_BYTES_MAX)
        });
        let short = room.filter(Room::is_short);
        if short.is_some() != self.refusal.is_some() {
            match &short {
                Some(room) => {
                    tracing::warn!(free = room.free.0, reserve = room.reserve.0, "the drive is full")
                }
                None => tracing::info!("the drive has room again"),
            }
        }
        self.refusal = short.map(|room| {
            let error =
                Error::NoSpace(format!("{} bytes are free, {} are kept back", room.free.0, room.reserve.0));
            Refusal { text: client_text(&error).into(), growth_only: true }
        });
        self.refusal.clone()
    }
}
