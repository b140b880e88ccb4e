//! A model of etcd: the keys of one cluster with their values and revisions, leases, and backups.
//!
//! The values are the real ones, encoded and decoded as by real processes, and the writes are the transactions of [`placement::Etcd`]. An unreachable etcd answers nothing, and no lease ends meanwhile, as where etcd elects a new leader of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fs::Uuid;
use placement::{
    ClusterName, ClusterView, Drain, Epoch, GroupPlan, Key, Liveness, Meta, Node, RawValue, Revision, Seen,
    SlotMap, Want,
};
use replica::{ClusterId, GroupId, NodeId};
use units::Instant;

/// A value, the revision of its last change, and the node whose lease it is bound to.
#[derive(Clone, Debug)]
struct Held {
    value: Vec<u8>,
    changed: Revision,
    lease: Option<NodeId>,
}

/// The contents of etcd.
#[derive(Clone, Debug, Default)]
struct Store {
    revision: Revision,
    values: BTreeMap<String, Held>,
}

/// The model of etcd.
pub(super) struct Etcd {
    cluster: ClusterName,
    store: Store,
    /// The ends of the nodes' leases.
    leases: BTreeMap<NodeId, Instant>,
    /// Etcd answers nothing.
    is_gone: bool,
    /// The contents at an earlier time.
    backup: Option<Store>,
    /// The contents of the store's revision, decoded.
    view: Option<Arc<ClusterView>>,
    /// Plans that took the place of others, with other members.
    pub plans: u64,
    /// Restores of a backup from before a replacement.
    pub replacements_forgotten: u64,
}

impl Etcd {
    /// The etcd of a new cluster without nodes and plans. `copies` is K.
    pub(super) fn new(copies: usize, groups: usize) -> Etcd {
        let groups = u32::try_from(groups).expect("a run has few groups");
        let cluster = ClusterId(Uuid::from_u128(0x636c_7573));
        let meta = Meta::new(cluster, copies, groups).expect("K and the groups of a run are within limits");
        let mut etcd = Etcd {
            cluster: ClusterName::parse("simulated").expect("a name"),
            store: Store::default(),
            leases: BTreeMap::new(),
            is_gone: false,
            backup: None,
            view: None,
            plans: 0,
            replacements_forgotten: 0,
        };
        etcd.put(Key::Meta, meta.encode(), None);
        etcd.put(Key::Slots, SlotMap::even(groups).encode(), None);
        etcd
    }

    fn put(&mut self, key: Key, value: Vec<u8>, lease: Option<NodeId>) {
        let revision = self.next_revision();
        self.store.values.insert(key.path(&self.cluster), Held { value, changed: revision, lease });
    }

    fn delete(&mut self, key: Key) {
        if self.store.values.remove(&key.path(&self.cluster)).is_some() {
            self.next_revision();
        }
    }

    fn next_revision(&mut self) -> Revision {
        self.store.revision.0 += 1;
        self.view = None;
        self.store.revision
    }

    fn held(&self, key: Key) -> Option<&Held> {
        self.store.values.get(&key.path(&self.cluster))
    }

    /// The whole contents. `None`: a value contradicts another one, and nodes refuse all.
    pub(super) fn load(&mut self) -> Option<Arc<ClusterView>> {
        if self.view.is_none() {
            let raw = self.store.values.iter().map(|(key, held)| RawValue {
                key: key.as_bytes(),
                value: &held.value,
                changed: held.changed,
            });
            let view = ClusterView::decode(&self.cluster, self.store.revision, raw).ok().flatten();
            self.view = view.map(Arc::new);
        }
        self.view.clone()
    }

    /// Registers a process of a node, which is alive until its lease ends at `until`. The lease of an earlier process ends.
    pub(super) fn register(&mut self, id: NodeId, node: &Node, until: Instant) {
        self.end_lease(id);
        self.leases.insert(id, until);
        self.put(Key::Node(id), node.encode(), None);
        self.put(Key::Alive(id), Liveness { starts: node.starts }.encode(), Some(id));
    }

    /// Keeps the lease of a node's process. False: it has ended.
    pub(super) fn keep_alive(&mut self, id: NodeId, until: Instant) -> bool {
        let lease = self.leases.get_mut(&id);
        lease.is_some_and(|end| {
            *end = until;
            true
        })
    }

    /// Ends the leases whose time is over.
    pub(super) fn end_leases(&mut self, now: Instant) {
        let ended = self.leases.iter().filter(|(_, end)| **end <= now).map(|(id, _)| *id);
        let ended: Vec<NodeId> = ended.filter(|_| !self.is_gone).collect();
        ended.into_iter().for_each(|id| self.end_lease(id));
    }

    fn end_lease(&mut self, id: NodeId) {
        if self.leases.remove(&id).is_some() {
            let before = self.store.values.len();
            self.store.values.retain(|_, held| held.lease != Some(id));
            if self.store.values.len() != before {
                self.next_revision();
            }
        }
    }

    /// Elects a node to place, if none is elected and its lease lasts.
    pub(super) fn elect(&mut self, id: NodeId) {
        if self.held(Key::Placer).is_none() && self.leases.contains_key(&id) {
            self.put(Key::Placer, id.to_string().into_bytes(), Some(id));
        }
    }

    /// Writes a plan in the place of the one that was written at the revision `replaces`, if that is still there.
    pub(super) fn write_want(&mut self, group: GroupId, plan: &GroupPlan, replaces: Option<Revision>) {
        let held = self.held(Key::Want(group));
        if held.map(|held| held.changed) != replaces {
            return;
        }
        let before = held.and_then(|held| GroupPlan::decode(&held.value).ok());
        self.plans += u64::from(before.is_some_and(|before| before.members() != plan.members()));
        self.put(Key::Want(group), plan.encode(), None);
    }

    /// Writes what a group's log says about its members, unless the value there is later.
    pub(super) fn write_seen(&mut self, group: GroupId, seen: &Seen) {
        let held = self.held(Key::Seen(group)).and_then(|held| Seen::decode(&held.value).ok());
        if held.is_none_or(|held| held != *seen && seen.may_replace(&held)) {
            self.put(Key::Seen(group), seen.encode(), None);
        }
    }

    /// An operator drains a node of the cluster, or takes that back.
    pub(super) fn set_drain(&mut self, node: NodeId, drain: Option<Drain>) {
        if self.held(Key::Node(node)).is_none() {
            return;
        }
        match drain {
            Some(drain) => self.put(Key::Draining(node), drain.encode(), None),
            None => self.delete(Key::Draining(node)),
        }
    }

    /// Removes a node that is not alive from the cluster.
    pub(super) fn remove_node(&mut self, node: NodeId) {
        if self.held(Key::Alive(node)).is_none() {
            self.delete(Key::Node(node));
            self.delete(Key::Draining(node));
        }
    }

    /// True if etcd answers nothing.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Etcd answers no more.
    pub(super) fn vanish(&mut self) {
        self.is_gone = true;
    }

    /// Etcd answers again, and the leases begin anew.
    pub(super) fn come_back(&mut self, now: Instant, ttl: Duration) {
        self.is_gone = false;
        self.leases.values_mut().for_each(|end| *end = now.after(ttl));
    }

    /// Makes a backup, once every group has had a leader: an earlier one would make groups anew.
    pub(super) fn back_up(&mut self) {
        let Some(view) = self.load() else { return };
        if view.want.keys().all(|group| view.seen.contains_key(group)) && !view.want.is_empty() {
            self.backup = Some(self.store.clone());
        }
    }

    /// Etcd's contents become those of the last backup, with the leases of then. `known`: the highest number of each group's replicas that its log knows. False, and nothing changes: there is no backup, or it lacks a number that a plan gave since and no log knows, which etcd alone remembers.
    pub(super) fn restore(&mut self, now: Instant, ttl: Duration, known: &[u64]) -> bool {
        let Some(backup) = &self.backup else { return false };
        let (given, remembered) = (self.last_replicas(&self.store), self.last_replicas(backup));
        let is_safe =
            |((given, remembered), known): ((&u64, &u64), &u64)| given == remembered || given <= known;
        if given.len() != remembered.len() || !given.iter().zip(&remembered).zip(known).all(is_safe) {
            return false;
        }
        self.replacements_forgotten += u64::from(given != remembered);
        self.store = backup.clone();
        self.view = None;
        let bound = self.store.values.values().filter_map(|held| held.lease);
        self.leases = bound.map(|id| (id, now.after(ttl))).collect();
        true
    }

    /// The highest numbers that replicas had, by the groups' plans.
    fn last_replicas(&self, store: &Store) -> Vec<u64> {
        let plan = |group| store.values.get(&Key::Want(GroupId(group)).path(&self.cluster));
        let plans = (0..).map_while(plan).filter_map(|held| GroupPlan::decode(&held.value).ok());
        plans.map(|plan| plan.last_replica().0).collect()
    }

    /// An operator raises the epoch above each that nodes remember.
    pub(super) fn raise_epoch(&mut self, remembered: Epoch) {
        let Some(meta) = self.held(Key::Meta).and_then(|held| Meta::decode(&held.value).ok()) else { return };
        let epoch = Epoch(1 + remembered.0.max(meta.epoch().0));
        self.put(Key::Meta, meta.with_epoch(epoch).encode(), None);
    }

    /// The plan of a group, as etcd holds it.
    pub(super) fn plan(&mut self, group: GroupId) -> Option<GroupPlan> {
        self.load()?.want.get(&group).map(|Want { plan, .. }| plan.clone())
    }
}
