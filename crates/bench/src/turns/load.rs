//! The load of a replicated group, and how its snapshots are scheduled.

use std::time::Duration;

use serde::Serialize;
use units::Bytes;

use crate::{Error, Result};

/// The longest snapshot, so that a log's limit cannot overflow.
const LONGEST_SNAPSHOT: Bytes = Bytes(64 << 30);
/// A shorter snapshot is over before a report of a leader's next ping.
const SHORTEST_SNAPSHOT: Bytes = Bytes(1 << 20);
const LONGEST_ENTRY: Bytes = Bytes(64 << 10);
const MOST_CLIENTS: u32 = 4096;
const LONGEST_TIME: Duration = Duration::from_secs(3600);

/// The rule by which a server's snapshot begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Nobody writes snapshots.
    None,
    /// Each server by itself, at a random length of its log from half of the due one on, as ZooKeeper's servers do (`snapCount / 2 + random(snapCount / 2)`).
    Random,
    /// The leader, once a second, to one more server, while fewer than the number of servers less a majority and the slow ones write (ZOOKEEPER-3657).
    Patch,
    /// The crate `turns`.
    Turns,
}

/// The length of a server's log at which the server's snapshot is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// This number of entries since the last snapshot, at any size of a snapshot. ZooKeeper's `snapCount` is 100,000.
    Entries(u64),
    /// As many bytes as the snapshot has: a restart takes at most twice as long.
    Snapshot,
}

/// A replicated group, its clients and its snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnsLoad {
    /// The profile of each server's emulated drive. Default `zn540`.
    pub profile: String,
    /// Servers, 3 to 9. Default 5.
    pub servers: u32,
    /// Clients, each of which writes its next entry when the one before was acknowledged. Default 64.
    pub clients: u32,
    /// Bytes of an entry. Default 1 KiB.
    pub entry: Bytes,
    /// How long the leader computes for each entry, one after the other. Default 20 us: 50,000 entries a second at most.
    pub leader_time: Duration,
    /// How long a message takes. Default 10 us.
    pub one_way: Duration,
    /// Bytes of a snapshot. Default 100 MiB.
    pub snapshot: Bytes,
    /// When a snapshot is due. Default 100,000 entries.
    pub due: Due,
    /// The rule by which snapshots begin.
    pub policy: Policy,
    /// Whether each drive has a scheduler ([`zoned::Share`]) before it.
    pub scheduler: bool,
    /// The time that is measured, after [`WARM_UP`].
    pub time: Duration,
    /// Seed of the servers' first logs and of the random lengths.
    pub seed: u64,
}

/// The time before what is measured: the drives' schedulers learn, and a first leader of `turns` waits for leases of leaders before.
pub const WARM_UP: Duration = Duration::from_secs(4);

impl Default for TurnsLoad {
    fn default() -> TurnsLoad {
        TurnsLoad {
            profile: "zn540".into(),
            servers: 5,
            clients: 64,
            entry: Bytes(1 << 10),
            leader_time: Duration::from_micros(20),
            one_way: Duration::from_micros(10),
            snapshot: Bytes(100 << 20),
            due: Due::Entries(100_000),
            policy: Policy::Turns,
            scheduler: true,
            time: Duration::from_secs(60),
            seed: 1,
        }
    }
}

impl TurnsLoad {
    /// Says what is wrong with the settings.
    ///
    /// # Errors
    /// A number outside of its range.
    pub fn check(&self) -> Result<()> {
        let problem = if !(3..=9).contains(&self.servers) {
            Some(format!("a group of {} servers: 3 to 9", self.servers))
        } else if !(1..=MOST_CLIENTS).contains(&self.clients) {
            Some(format!("{} clients: 1 to {MOST_CLIENTS}", self.clients))
        } else if !(Bytes(1)..=LONGEST_ENTRY).contains(&self.entry) {
            Some(format!("entries of {} bytes: 1 byte to {} KiB", self.entry.0, LONGEST_ENTRY.0 >> 10))
        } else if !(SHORTEST_SNAPSHOT..=LONGEST_SNAPSHOT).contains(&self.snapshot) {
            Some(format!(
                "snapshots of {} bytes: {} MiB to {} GiB",
                self.snapshot.0,
                SHORTEST_SNAPSHOT.0 >> 20,
                LONGEST_SNAPSHOT.0 >> 30
            ))
        } else if matches!(self.due, Due::Entries(entries) if entries < 2 || entries > u64::from(u32::MAX)) {
            Some("a snapshot is due after 2 to 2^32 - 1 entries".into())
        } else if self.time.is_zero() || self.time > LONGEST_TIME {
            Some(format!("a measurement of {:?}: above 0 and at most an hour", self.time))
        } else {
            None
        };
        problem.map_or(Ok(()), |why| Err(Error::settings(why)))
    }

    /// The length of the log at which a snapshot is due.
    pub(super) fn due_log(&self) -> Bytes {
        match self.due {
            Due::Entries(entries) => Bytes(entries * self.entry.0),
            Due::Snapshot => self.snapshot,
        }
    }
}
