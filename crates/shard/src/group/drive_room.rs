//! The room on a replica's drive, of which the group's leader hears.

use std::time::Duration;

use fs::Fs;
use replica::Event;
use units::{Bytes, Instant};

use super::Group;

/// The drive of a replica, which tells the leader when it nears full.
pub(super) struct DriveRoom {
    fs: Fs,
    /// Free bytes below which the drive nears full.
    reserve: Bytes,
    /// The replica was told that the drive nears full.
    lacks_room: bool,
    /// When the free bytes were read last.
    looked_at: Instant,
}

impl DriveRoom {
    /// `Some` if the drive has come to near full, or has room again. Reads the drive's free bytes if `pause` has passed since the last time.
    fn changed(&mut self, now: Instant, pause: Duration) -> Option<bool> {
        if now.since(self.looked_at) < pause {
            return None;
        }
        self.looked_at = now;
        let lacks = self.fs.statfs().free < self.reserve;
        (std::mem::replace(&mut self.lacks_room, lacks) != lacks).then_some(lacks)
    }
}

impl Group {
    /// Has the replica tell the leader when less than `reserve` is free on its drive.
    pub(crate) fn watch_room(&self, fs: Fs, reserve: Bytes) {
        *self.drive.lock() = Some(DriveRoom { fs, reserve, lacks_room: false, looked_at: Instant::ORIGIN });
    }

    /// True if this replica leads, and the drive of another voter nears full: see [`replica::Replica::voter_lacks_room`].
    pub(crate) fn voter_lacks_room(&self) -> bool {
        self.state.lock().replica.voter_lacks_room(self.parts.driver.now())
    }

    /// Tells the replica if its drive has come to near full, or has room again. Reads the drive's free bytes twice a heartbeat at most.
    pub(super) fn update_room(&self) {
        let (now, pause) = (self.parts.driver.now(), self.options.settings.heartbeat / 2);
        let changed = self.drive.lock().as_mut().and_then(|drive| drive.changed(now, pause));
        let Some(lacks) = changed else { return };
        let (group, replica) = (self.place.group, self.place.replica.0);
        if lacks {
            tracing::warn!(%group, replica, "the drive nears full: the leader refuses writes that need room");
        } else {
            tracing::info!(%group, replica, "the drive has room again");
        }
        self.handle(Event::Room { lacks });
    }
}
