//! One server of the group: its drive, its log and its snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use units::sync::Event;
use zoned::ZonedDevice;

use super::syncs::Syncs;

/// A server of the group.
pub(super) struct Server {
    pub(super) device: Arc<dyn ZonedDevice>,
    pub(super) state: Mutex<ServerState>,
    /// Signalled when the log has something to write.
    pub(super) log_work: Event,
}

/// The log and the snapshot of a server.
#[derive(Debug, Default)]
pub(super) struct ServerState {
    /// Entries of the group's log that reached the server, and that its drive has durably.
    pub(super) received: u64,
    pub(super) durable: u64,
    /// Votes that are to become durable: the term, and the candidate.
    pub(super) votes: VecDeque<(u64, usize)>,
    /// Entries of the log that came before the run.
    pub(super) before: u64,
    /// Entries, since the start of the log, that the last durable snapshot covers.
    pub(super) covered: u64,
    /// Bytes that the snapshot under way still has to write, and the entries that it covers.
    pub(super) snapshot: Option<SnapshotUnderWay>,
    pub(super) syncs: Syncs,
}

/// A snapshot that was begun and is not durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotUnderWay {
    pub(super) left: u64,
    pub(super) covers: u64,
}

impl ServerState {
    /// Durable entries since the start of the log.
    pub(super) fn entries(&self) -> u64 {
        self.before + self.durable
    }

    /// Entries of the log since the last durable snapshot.
    pub(super) fn entries_since_snapshot(&self) -> u64 {
        self.entries().saturating_sub(self.covered)
    }
}
