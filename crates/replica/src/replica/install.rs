//! A replica that takes a snapshot: the group's state at an index, and tables that it gets from the sender.

use crate::base::Base;
use crate::event::Message;
use crate::{Index, ReplicaId, Term};

/// The snapshot that a replica takes.
///
/// Raft hears of a snapshot once the tables hold it: until then the log stays as it is, and a crash leaves a replica that lags behind as before. Tables that are ahead of the log lose nothing: a record says which entry wrote it, and an older one does not replace it.
///
/// Only the snapshot for which the tables were got counts, from a leader that still leads: another leader's may say that this replica keeps other values.
#[derive(Debug, Default)]
pub(super) struct Install {
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    message: Box<Message>,
    index: Index,
    /// Entries of the log were given to the tables meanwhile. They may bring back keys that the snapshot does not have.
    applied: bool,
}

impl Install {
    /// A snapshot came that says `base`, which the log does not reach. True if the tables are to be got for it.
    pub(super) fn begin(&mut self, message: Box<Message>, base: &Base) -> bool {
        let is_free = self.under_way.is_none();
        if is_free {
            self.under_way = Some(UnderWay { message, index: base.index, applied: false });
        }
        is_free
    }

    /// Entries of the log are given to the tables.
    pub(super) fn applies(&mut self) {
        if let Some(under_way) = &mut self.under_way {
            under_way.applied = true;
        }
    }

    /// The tables hold the snapshot of that index. Returns it if it counts; else the leader sends one again.
    pub(super) fn installed(
        &mut self,
        index: Index,
        (leader, term): (Option<ReplicaId>, Term),
    ) -> Option<Box<Message>> {
        let UnderWay { message, applied, .. } = self.under_way.take_if(|present| present.index == index)?;
        let is_leader_s = message.raft.term == term.0 && leader == Some(ReplicaId(message.raft.from));
        (is_leader_s && !applied).then_some(message)
    }

    /// The tables did not get the snapshot of that index.
    pub(super) fn failed(&mut self, index: Index) {
        self.under_way.take_if(|present| present.index == index);
    }
}
