//! The replicas that this node has, and how they come to be those of the groups' plans in etcd.
//!
//! The group's own log is the truth about its members. A plan makes a node create a replica, which begins without any members; a leader asks its group for the members of the plan; a replica that the plan has no more is deleted once more than half of the plan's members say that the group has left it out.
//!
//! Crash safety: a replica is in the groups' log before it is in the node's state, and leaves the state before the log. A replica that the log has and the state has not is one whose creation or deletion a crash cut short: it is deleted at the next start. A replica that the state has and the log has not was lost, and is never begun again: it may have voted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::Fs;
use placement::{ClusterView, Etcd, Step, Want, members_to_ask, new_replica, next_step, without_deleted};
use replica::{Base, Event, Index, NodeId, Replica, Version};
use shard::{GroupId, Peers, Place, StoredGroup};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::block_in_place;
use tokio::time::Instant;
use units::block_on;

use crate::error::{Error, Result};
use crate::replicas::Replicas;
use crate::state::NodeState;

/// The pause after which a leader is asked again for the members of its group's plan.
const CHANGE_PAUSE: Duration = Duration::from_secs(2);

/// The replicas of this node.
pub(crate) struct Planned {
    fs: Fs,
    replicas: Arc<Replicas>,
    /// The node's state on its drive.
    pub state: NodeState,
    /// The replicas that the log held at the start, and that are not started yet.
    stored: BTreeMap<GroupId, StoredGroup>,
    /// The groups' plans, by the last view of etcd.
    want: BTreeMap<GroupId, Want>,
    /// The version that the groups are to have, by the last view of etcd.
    version: Version,
    /// Questions to other members whether a group has left its replica here out.
    asked: BTreeMap<GroupId, oneshot::Receiver<Option<Index>>>,
    /// The earliest time at which the groups that this process leads are asked again for the members of their plans.
    change_at: Instant,
    /// Times at which they were asked.
    changes: usize,
    /// Messages for people that were logged last, by group: each is logged once in a row.
    logged: BTreeMap<GroupId, String>,
}

impl Planned {
    /// The replicas of a node's state, of which the log holds `stored`. None is started yet.
    pub(crate) fn new(
        fs: Fs,
        replicas: Arc<Replicas>,
        state: NodeState,
        stored: BTreeMap<GroupId, StoredGroup>,
    ) -> Planned {
        let (want, asked, logged) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Planned {
            fs,
            replicas,
            state,
            stored,
            want,
            version: Version::FIRST,
            asked,
            change_at: Instant::now(),
            changes: 0,
            logged,
        }
    }

    /// Makes the node's state durable.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn save(&self) -> Result<()> {
        let saved = || block_on(&**self.fs.driver(), self.state.save(&self.fs));
        block_in_place(saved)
    }

    fn me(&self) -> NodeId {
        self.state.node
    }

    fn log(&mut self, group: GroupId, why: &dyn std::fmt::Display) {
        let text = why.to_string();
        if self.logged.get(&group) != Some(&text) {
            tracing::warn!(%group, "{text}");
            self.logged.insert(group, text);
        }
    }

    /// Starts the replicas that this node has, whatever etcd says now, and creates those that the plans have and the node has not.
    pub(crate) fn follow(&mut self, view: &ClusterView, peers: &Arc<dyn Peers>) {
        self.want = view.want.clone();
        self.version = view.meta.version();
        self.delete_unknown();
        let present = self.present();
        for place in present.values() {
            if self.replicas.group(place.group).is_none() {
                self.start(*place, peers).unwrap_or_else(|error| self.log(place.group, &error));
            }
        }
        for group in view.want.keys().filter(|group| !present.contains_key(group)) {
            let Some((own, base)) = new_replica(view, *group, self.me()) else { continue };
            let place = Place { group: *group, replica: own.replica, role: own.role };
            let created = self.create(place, &base, peers);
            created.unwrap_or_else(|error| self.log(*group, &error));
        }
    }

    /// The node's replicas.
    fn present(&self) -> BTreeMap<GroupId, Place> {
        let replicas = self.state.belonging.iter().flat_map(|belonging| &belonging.replicas);
        let place = |(group, (replica, role)): (&_, &_)| {
            (*group, Place { group: *group, replica: *replica, role: *role })
        };
        replicas.map(place).collect()
    }

    /// Deletes what the log has of replicas that the node's state has not.
    fn delete_unknown(&mut self) {
        let present = self.present();
        let unknown: Vec<GroupId> =
            self.stored.keys().filter(|group| !present.contains_key(group)).copied().collect();
        for group in unknown {
            match block_in_place(|| self.replicas.delete(group)) {
                Ok(()) => drop(self.stored.remove(&group)),
                Err(error) => self.log(group, &error),
            }
        }
    }

    /// Writes a new replica into the log, then into the node's state, and starts it.
    fn create(&mut self, place: Place, base: &Base, peers: &Arc<dyn Peers>) -> Result<()> {
        let stored = block_in_place(|| self.replicas.create(place.group, base))?;
        self.stored.insert(place.group, stored);
        let Some(belonging) = &mut self.state.belonging else { return Ok(()) };
        belonging.replicas.insert(place.group, (place.replica, place.role));
        if let Err(error) = self.save() {
            if let Some(belonging) = &mut self.state.belonging {
                belonging.replicas.remove(&place.group);
            }
            return Err(error);
        }
        self.start(place, peers)
    }

    /// Starts a replica of the node's state.
    fn start(&mut self, place: Place, peers: &Arc<dyn Peers>) -> Result<()> {
        let Place { group, replica, role } = place;
        let Some(stored) = self.stored.get(&group).cloned() else {
            return Err(Error::State(format!("the log has lost replica {}", replica.0)));
        };
        block_in_place(|| self.replicas.start(place, stored, Arc::clone(peers)))?;
        self.stored.remove(&group);
        tracing::info!(%group, replica = replica.0, ?role, "a replica is started");
        Ok(())
    }

    /// Has the groups that this process leads get the members of their plans, and the cluster's version. To be called again and again: a leader forgets what it was asked for when it leads no more.
    pub(crate) fn change_members(&mut self) {
        let now = Instant::now();
        if now < self.change_at {
            return;
        }
        self.change_at = now + CHANGE_PAUSE;
        self.changes += 1;
        for local in self.replicas.all() {
            let place = local.group.place();
            if local.group.with_replica(Replica::version) < self.version {
                local.group.tell(Event::Raise(self.version));
            }
            let Some(Want { plan, .. }) = self.want.get(&place.group) else { continue };
            let state =
                local.group.with_replica(|replica| replica.serves_in().map(|_| replica.state().state));
            let Some(state) = state else { continue };
            match next_step(&state, plan, place.replica) {
                Step::Done => {}
                Step::OldPlan => {
                    tracing::warn!(group = %place.group, "the group has had later replicas than its plan in etcd: it keeps its members until it has another plan");
                }
                Step::Change(wanted) => local.group.tell(Event::Change(wanted)),
                Step::HandOver(witnesses) => {
                    let could = |to| local.group.could_hand_over_to(to, Duration::ZERO);
                    if let Some(to) = Step::successor(&witnesses, self.changes, could) {
                        local.group.tell(Event::HandOverTo(to));
                    }
                }
            }
        }
    }

    /// The highest version of a group here, if that is above the cluster's by the last view: etcd was restored from a backup from before the cluster was raised.
    pub(crate) fn forgotten_version(&self) -> Option<Version> {
        let versions =
            self.replicas.all().into_iter().map(|local| local.group.with_replica(Replica::version));
        versions.max().filter(|highest| *highest > self.version)
    }

    /// Deletes the replicas that their groups have left out, and takes them out of the plans in etcd. To be called again and again: the other members are asked meanwhile.
    pub(crate) fn delete_left_out(&mut self, etcd: &Etcd) {
        let mut left_out = Vec::new();
        self.asked.retain(|group, asked| match asked.try_recv() {
            Err(TryRecvError::Empty) => true,
            Ok(Some(since)) => {
                left_out.push((*group, since));
                false
            }
            Ok(None) | Err(TryRecvError::Closed) => false,
        });
        for (group, since) in left_out {
            self.delete(group, since).unwrap_or_else(|error| self.log(group, &error));
        }
        let present = self.present();
        for (group, place) in &present {
            let Some(Want { plan, .. }) = self.want.get(group) else { continue };
            let Some(local) = self.replicas.group(*group) else { continue };
            if self.asked.contains_key(group) {
                continue;
            }
            if let Some(others) = members_to_ask(plan, place.replica) {
                let (sender, answer) = oneshot::channel();
                self.asked.insert(*group, answer);
                tokio::spawn(async move { sender.send(local.group.left_out_at(&others).await) });
            }
        }
        let me = self.me();
        for (group, Want { plan, changed }) in &self.want {
            let without = without_deleted(plan, me, present.get(group).map(|place| place.replica));
            if without != *plan {
                let (etcd, group, changed) = (etcd.clone(), *group, *changed);
                tokio::spawn(async move {
                    // Another plan meanwhile: the view that has it comes, and the replica is taken out of that one.
                    let _conflict = etcd.write_want(group, &without, Some(changed)).await;
                });
            }
        }
    }

    /// Deletes a replica that the change of members at `left_out_at` left out: from the node's state first, so that it never starts again. A replica that has applied a later change meanwhile stays, and so does one whose state cannot be written: the next view of etcd starts it again.
    fn delete(&mut self, group: GroupId, left_out_at: Index) -> Result<()> {
        let Some(local) = self.replicas.group(group) else { return Ok(()) };
        let stopped = block_in_place(|| self.replicas.stop(group));
        let is_later = local.group.with_replica(|replica| replica.members().since()) > left_out_at;
        self.stored.insert(group, local.group.with_stored(Clone::clone));
        stopped?;
        let Some(belonging) = &mut self.state.belonging else { return Ok(()) };
        if is_later {
            return Ok(());
        }
        let Some(replica) = belonging.replicas.remove(&group) else { return Ok(()) };
        if let Err(error) = self.save() {
            if let Some(belonging) = &mut self.state.belonging {
                belonging.replicas.insert(group, replica);
            }
            return Err(error);
        }
        self.stored.remove(&group);
        tracing::info!(%group, replica = replica.0.0, "the group has left its replica here out: it is deleted");
        block_in_place(|| self.replicas.delete(group))
    }
}

#[cfg(test)]
mod tests;
