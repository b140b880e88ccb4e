//! Inputs and outputs of the coordinator.

use std::time::Duration;

use units::{Bytes, Instant};

use crate::sample::{Health, Role, ServerId, Zxid};

/// An input of [`super::Coordinator::step`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// A server was polled.
    Polled {
        /// The server.
        server: ServerId,
        /// When the poll was begun.
        asked_at: Instant,
        /// The result.
        health: Health,
    },
    /// The command for a snapshot ended.
    Ended {
        /// The server.
        server: ServerId,
        /// The result.
        outcome: Outcome,
    },
}

/// Result of a command for a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The snapshot is taken. The file may lie in the page cache only.
    Taken {
        /// Size of the file.
        size: Bytes,
        /// The last transaction in the snapshot.
        zxid: Zxid,
    },
    /// The command began no snapshot, because the server had one commanded a moment ago (429).
    RateLimited,
    /// The command began no snapshot: it was not sent, or the server refused it at once.
    Refused(String),
    /// The server tried to take a snapshot and failed. None is under way there.
    Failed(String),
    /// No answer that tells whether the server is taking a snapshot.
    Unanswered(String),
}

/// A task that [`super::Coordinator::step`] gives to its caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Command a snapshot, and report its end with [`Event::Ended`].
    Command(ServerId),
    /// Notify the user.
    Notify(Notice),
}

/// A message for the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The coordinator knows another leader, or another epoch of the same.
    Leader {
        /// The leader.
        server: ServerId,
    },
    /// A server's turn begins.
    TurnBegins {
        /// The server.
        server: ServerId,
        /// The server's part.
        role: Role,
        /// Estimated bytes of the log since the last snapshot.
        log: Bytes,
        /// Estimated bytes of the snapshot.
        snapshot: Bytes,
        /// The other servers whose snapshots are due, as far as they answer.
        also_due: Vec<ServerId>,
    },
    /// The server answered that the snapshot is taken.
    SnapshotTaken {
        /// The server.
        server: ServerId,
        /// Size of the file.
        size: Bytes,
        /// The time since the command.
        took: Duration,
    },
    /// The server's turn is over.
    TurnEnds {
        /// The server.
        server: ServerId,
        /// The time since the command.
        took: Duration,
        /// How the turn ended.
        because: TurnEnd,
    },
    /// The server does not say whether it took the snapshot. No other turn begins until there is evidence. The notice is repeated each
    /// [`longest_snapshot`](super::Settings::longest_snapshot).
    Unanswered {
        /// The server.
        server: ServerId,
        /// The cause.
        why: String,
    },
    /// A snapshot without an answer is commanded again, of the same server.
    CommandedAgain {
        /// The server.
        server: ServerId,
    },
    /// The server took no snapshot.
    NoSnapshot {
        /// The server.
        server: ServerId,
        /// The cause.
        why: String,
    },
    /// A server took snapshots that nobody commanded here.
    OwnSnapshots {
        /// The server.
        server: ServerId,
        /// Number of snapshots.
        count: u64,
    },
    /// A server's health changed for the worse: it serves no clients, does not answer, or has a fault.
    NotServing {
        /// The server.
        server: ServerId,
        /// A sentence.
        why: String,
    },
    /// A server serves clients again.
    Serves {
        /// The server.
        server: ServerId,
    },
    /// Snapshots are due, and no turn begins.
    Waits {
        /// The cause.
        why: String,
    },
}

/// How a turn ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnEnd {
    /// The snapshot is taken, and the server's syncs are as fast as before.
    Settled,
    /// The snapshot is taken. The server's syncs stayed slow until the time to wait was over.
    StillSlow,
    /// No snapshot was begun, or it was given up.
    NoSnapshot,
    /// The server's process ended, and another one serves.
    Restarted,
    /// The server's process ended, and the longest time of a snapshot has passed since the command.
    Gone,
}
