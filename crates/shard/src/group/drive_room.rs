//! The room on a replica's drive.

use std::time::Duration;

use fs::Fs;
use units::{Bytes, Instant};

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
    /// The drive of a file system, which nears full when less than `reserve` is free.
    pub(super) fn new(fs: Fs, reserve: Bytes) -> DriveRoom {
        DriveRoom { fs, reserve, lacks_room: false, looked_at: Instant::ORIGIN }
    }

    /// `Some` if the drive has come to near full, or has room again. Reads the drive's free bytes if `pause` has passed since the last time.
    pub(super) fn changed(&mut self, now: Instant, pause: Duration) -> Option<bool> {
        if now.since(self.looked_at) < pause {
            return None;
        }
        self.looked_at = now;
        let lacks = self.fs.statfs().free < self.reserve;
        (std::mem::replace(&mut self.lacks_room, lacks) != lacks).then_some(lacks)
    }
}
