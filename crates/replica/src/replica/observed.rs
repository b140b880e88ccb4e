//! A replica's state for operators.

use units::Instant;

use super::Replica;
use crate::{ReplicaStats, Role};

impl Replica {
    /// The replica in numbers.
    pub fn stats(&self, now: Instant) -> ReplicaStats {
        ReplicaStats {
            replica: self.id,
            role: self.role,
            leader: self.leader(),
            serves: self.serves(),
            term: self.term(),
            committed: self.committed,
            applied: self.applied,
            stable: self.stable.get(),
            version: self.version(),
            log_entries: self.node.raft.raft_log.last_index().saturating_sub(self.node.store().base().0),
            log_bytes: self.log_bytes(),
            behind: self.behind(now).filter(|_| self.role == Role::Backup),
            counts: self.counts,
        }
    }
}
