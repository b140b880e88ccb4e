//! State of one server, as one poll of its AdminServer shows it.

use std::fmt;
use std::time::Duration;

use units::Bytes;

/// The number of a server within its ensemble (`myid`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub u64);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server {}", self.0)
    }
}

/// The number of a transaction: the leader's epoch, and a counter within that epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Zxid(pub u64);

impl Zxid {
    /// The epoch of the leader that proposed the transaction.
    pub fn epoch(self) -> u64 {
        self.0 >> 32
    }

    /// The number of the transaction within its epoch.
    pub fn counter(self) -> u64 {
        self.0 & 0xffff_ffff
    }
}

/// A server's part in its ensemble. Observers have none here: [`crate::checks`] refuses them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The server leads.
    Leader,
    /// The server follows the leader and votes.
    Follower,
}

/// State of a server that serves clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The server's part.
    pub role: Role,
    /// The leader, as this server knows it.
    pub leader: ServerId,
    /// The last transaction that the server applied.
    pub zxid: Zxid,
    /// The last transaction in the newest snapshot; `None` where the server has no snapshot yet.
    pub snapshot: Option<Zxid>,
    /// Snapshots that this process of the server has written since its counters began, commanded or by itself.
    pub snapshots: u64,
    /// Syncs of the log in that time.
    pub syncs: u64,
    /// Time that those syncs took together. ZooKeeper counts whole milliseconds of each.
    pub sync_time: Duration,
    /// A snapshot's approximate size, from the size of the data and the number of nodes.
    pub data: Bytes,
    /// Size of the leader's last proposal: one transaction in the log. `None` on followers, and before the first proposal.
    pub proposal: Option<Bytes>,
}

impl Sample {
    /// True if counters have fallen since the sample `before`: they began anew, in another process or by the command `stat_reset`.
    pub fn counters_fell(&self, before: &Sample) -> bool {
        self.snapshots < before.snapshots || self.syncs < before.syncs || self.sync_time < before.sync_time
    }
}

/// Result of one poll of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Health {
    /// The server serves clients.
    Serving(Sample),
    /// The AdminServer answers, but the server serves no clients: an election, or a snapshot that a server takes before it serves.
    Starting,
    /// The AdminServer cannot be reached, or does not answer as it should; the text says why.
    Unreachable(String),
    /// Nobody listens at the AdminServer's address: the server's process has ended, or is beginning. The text says more.
    Gone(String),
    /// The server's settings make turns useless or dangerous; the text is a sentence.
    Faulty(String),
}
