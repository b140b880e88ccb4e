//! A replica that takes a snapshot: the group's state at an index, and tables that it gets from the sender.

use crate::base::Base;
use crate::event::Message;
use crate::{Index, ReplicaId, Term};

/// The snapshot that a replica takes.
///
/// Raft hears of a snapshot once the tables hold it: until then the log stays as it is, and a crash leaves a replica that lags behind as before. Tables that are ahead of the log lose nothing: a record says which entry wrote it, and an older one does not replace it.
#[derive(Debug, Default)]
pub(super) struct Install {
    under_way: Option<(Box<Message>, Index)>,
    /// The index at which the tables hold a snapshot, durably.
    installed: Index,
}

impl Install {
    /// A snapshot came that says `base`, which the log does not reach. Returns the message if the tables hold it already, or the index that they are to hold.
    pub(super) fn receive(
        &mut self,
        message: Box<Message>,
        base: &Base,
    ) -> Result<Box<Message>, Option<Index>> {
        if self.installed >= base.index {
            return Ok(message);
        }
        match &mut self.under_way {
            // The same leader repeats it, or another one sends what it has.
            Some((present, index)) if *index == base.index => {
                *present = message;
                Err(None)
            }
            Some(_) => Err(None),
            None => {
                self.under_way = Some((message, base.index));
                Err(Some(base.index))
            }
        }
    }

    /// The tables hold the snapshot. Returns it if its sender, the leader of its term, leads still; else it is sent again.
    pub(super) fn installed(
        &mut self,
        index: Index,
        (leader, term): (Option<ReplicaId>, Term),
    ) -> Option<Box<Message>> {
        let (message, _) = self.under_way.take_if(|(_, present)| *present == index)?;
        self.installed = self.installed.max(index);
        (message.raft.term == term.0 && leader == Some(ReplicaId(message.raft.from))).then_some(message)
    }

    /// The tables did not get the snapshot of that index.
    pub(super) fn failed(&mut self, index: Index) {
        self.under_way.take_if(|(_, present)| *present == index);
    }
}
