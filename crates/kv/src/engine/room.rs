//! What the writer knows of the room on the drive.

use crate::command::client_text;
use crate::{Error, Refusal, Room, Store};

/// How old the knowledge may be.
pub(super) const ROOM_AGE_MS: u64 = 100;

/// Looks at the room now and then.
#[derive(Default)]
pub(super) struct RoomWatch {
    looked_ms: u64,
    refusal: Option<Refusal>,
}

impl RoomWatch {
    /// What speaks against writes that grow the data.
    pub fn look(&mut self, store: &dyn Store, now_ms: u64) -> Option<Refusal> {
        if now_ms.abs_diff(self.looked_ms) < ROOM_AGE_MS {
            return self.refusal.clone();
        }
        self.looked_ms = now_ms;
        let short = store.room().filter(Room::is_short);
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
