//! Tells etcd who leads the groups that this process leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use peers::Network;
use placement::{ClusterView, Epoch, Etcd, Seen};
use replica::{GroupId, NodeId};

use crate::replicas::Replicas;

/// The pause after a failed attempt to tell etcd who leads.
const WRITE_PAUSE: Duration = Duration::from_secs(1);

/// Tells etcd who leads the groups that this process leads.
#[derive(Default)]
pub(crate) struct Leaders {
    /// The last value of each group that was written, or is being written.
    written: Arc<Mutex<BTreeMap<GroupId, Seen>>>,
}

impl Leaders {
    /// Etcd may have lost what was written: all is written again.
    pub(crate) fn forget(&self) {
        self.written.lock().clear();
    }

    /// Etcd holds the values of this view: a value that differs from the one that was written is written again. A restored etcd may hold older ones.
    pub(crate) fn compare(&self, view: &ClusterView) {
        self.written.lock().retain(|group, seen| view.seen.get(group).is_none_or(|held| held == seen));
    }

    /// Begins to write what is new. Nothing waits for it; what etcd did not take is written again.
    pub(crate) fn write(
        &self,
        replicas: &Replicas,
        etcd: &Etcd,
        own: (NodeId, Epoch),
        network: Option<&Network>,
    ) {
        for local in replicas.all() {
            let place = local.group.place();
            let seen = local.group.with_replica(|replica| {
                let node_of = |id| network.and_then(|network| network.node_of(place.group, id));
                (replica.leader() == Some(place.replica)).then(|| Seen::of(replica, own, node_of))
            });
            let Some(seen) = seen.filter(|seen| self.written.lock().get(&place.group) != Some(seen)) else {
                continue;
            };
            self.written.lock().insert(place.group, seen.clone());
            let (etcd, written) = (etcd.clone(), Arc::clone(&self.written));
            tokio::spawn(async move {
                if let Err(error) = etcd.write_seen(place.group, &seen).await {
                    tracing::warn!(%error, group = %place.group, "etcd does not know who leads");
                    tokio::time::sleep(WRITE_PAUSE).await;
                    forget_unwritten(&mut written.lock(), place.group, &seen);
                }
            });
        }
    }
}

/// Has a value written again, unless a later one is being written.
fn forget_unwritten(written: &mut BTreeMap<GroupId, Seen>, group: GroupId, seen: &Seen) {
    if written.get(&group) == Some(seen) {
        written.remove(&group);
    }
}

#[cfg(test)]
mod tests {
    use replica::{Configuration, Index, ReplicaId, Role, Term, Version};

    use super::*;

    #[test]
    fn a_leader_that_was_not_written_is_written_again_unless_a_later_one_is() {
        let seen = |term| Seen {
            configuration: Configuration::new([(ReplicaId(1), Role::Witness), (ReplicaId(2), Role::Backup)]),
            index: Index(1),
            term: Term(term),
            leader: Some(ReplicaId(1)),
            version: Version::FIRST,
            last_replica: ReplicaId(2),
            nodes: BTreeMap::new(),
            epoch: Epoch(1),
        };
        let mut written = BTreeMap::from([(GroupId(3), seen(7))]);
        forget_unwritten(&mut written, GroupId(3), &seen(6));
        assert_eq!(written.get(&GroupId(3)), Some(&seen(7)));
        forget_unwritten(&mut written, GroupId(3), &seen(7));
        assert!(written.is_empty());
    }
}
