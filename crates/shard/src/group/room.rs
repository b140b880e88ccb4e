//! A group's replicas whose drives near full.

use fs::Fs;
use replica::Event;
use units::Bytes;

use super::Group;
use super::drive_room::DriveRoom;

impl Group {
    /// Has the replica tell the leader when less than `reserve` is free on its drive.
    pub(crate) fn watch_room(&self, fs: Fs, reserve: Bytes) {
        *self.drive.lock() = Some(DriveRoom::new(fs, reserve));
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
