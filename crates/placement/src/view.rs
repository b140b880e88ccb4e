//! Everything that etcd holds of a cluster, at one revision.

use std::collections::{BTreeMap, BTreeSet};

use crate::keys::Key;
use crate::names::{ClusterName, Revision, parse_node};
use crate::value_error::{ValueError, quoted};
use crate::values::drain::Drain;
use crate::values::liveness::Liveness;
use crate::values::meta::Meta;
use crate::values::node::Node;
use crate::values::plan::GroupPlan;
use crate::values::seen::Seen;
use crate::values::slot_map::SlotMap;
use replica::{GroupId, NodeId};

/// The most nodes of a cluster.
pub const MAX_NODES: usize = 1024;

/// A key of etcd with its value.
#[derive(Clone, Copy, Debug)]
pub struct RawValue<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The revision of the key's last change.
    pub changed: Revision,
}

/// The plan of a group, and the revision of its last change: a new plan takes its place only if it has not changed since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Want {
    /// The members that the group is to have.
    pub plan: GroupPlan,
    /// The revision at which the plan was written.
    pub changed: Revision,
}

/// Everything that etcd holds of a cluster, at one revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterView {
    /// The revision of etcd's store at which all of this was read.
    pub revision: Revision,
    /// The cluster's identity and numbers.
    pub meta: Meta,
    /// The nodes that ever joined and were not removed.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The nodes whose leases last.
    pub alive: BTreeMap<NodeId, Liveness>,
    /// The nodes that are to have no replicas.
    pub draining: BTreeMap<NodeId, Drain>,
    /// The members that each group is to have; a group that was not placed yet has none.
    pub want: BTreeMap<GroupId, Want>,
    /// The members by the groups' logs; a group that was never led has none.
    pub seen: BTreeMap<GroupId, Seen>,
    /// The groups' slots.
    pub slots: SlotMap,
    /// The node that is elected to place and replace.
    pub placer: Option<NodeId>,
}

/// A key whose value is wrong.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("etcd's key {key}: {error}")]
pub struct KeyError {
    /// The key.
    pub key: String,
    /// The fault of the value.
    pub error: ValueError,
}

impl ClusterView {
    /// The cluster in these values, which were read at one revision; `None` if there is no value at all.
    ///
    /// # Errors
    /// [`KeyError`] names the first key whose value is none of its kind or contradicts another one:
    /// - a key that this version does not know, a missing `meta` or `slots`;
    /// - a group number that the cluster does not have;
    /// - two nodes that are alive with one address, a live node without a value of its own;
    /// - a plan for another K, or with a replica on a node that is not in the cluster.
    ///
    /// A `meta` of a version that this program does not speak is named first, whatever the other keys are.
    pub fn decode<'a>(
        cluster: &ClusterName,
        revision: Revision,
        values: impl IntoIterator<Item = RawValue<'a>>,
    ) -> Result<Option<ClusterView>, KeyError> {
        let values: Vec<RawValue<'a>> = values.into_iter().collect();
        let meta = Key::Meta.path(cluster);
        if let Some(raw) = values.iter().find(|raw| raw.key == meta.as_bytes()) {
            Meta::decode(raw.value).map_err(|error| KeyError { key: meta, error })?;
        }
        let mut parts = Parts::default();
        for raw in &values {
            let fault = |error| KeyError { key: quoted(&String::from_utf8_lossy(raw.key)), error };
            let path =
                std::str::from_utf8(raw.key).map_err(|_| fault(ValueError::rule("the key is no text")))?;
            parts.add(Key::parse(cluster, path).map_err(fault)?, raw).map_err(fault)?;
        }
        if values.is_empty() {
            return Ok(None);
        }
        parts.view(revision).map(Some).map_err(|(key, error)| KeyError { key: key.path(cluster), error })
    }

    /// The values that a node keeps on its drive, to start from without etcd: keys, values and the revisions of their last changes, where those count. Who is alive is not among them.
    pub fn durable_values(&self, cluster: &ClusterName) -> Vec<(String, Vec<u8>, Revision)> {
        let never = Revision(0);
        let mut values = vec![
            (Key::Meta.path(cluster), self.meta.encode(), never),
            (Key::Slots.path(cluster), self.slots.encode(), never),
        ];
        values
            .extend(self.nodes.iter().map(|(id, node)| (Key::Node(*id).path(cluster), node.encode(), never)));
        values.extend(self.want.iter().map(|(group, Want { plan, changed })| {
            (Key::Want(*group).path(cluster), plan.encode(), *changed)
        }));
        values.extend(
            self.seen.iter().map(|(group, seen)| (Key::Seen(*group).path(cluster), seen.encode(), never)),
        );
        values
    }

    /// The nodes whose leases last, with their values.
    pub fn live_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().filter(|(id, _)| self.alive.contains_key(id)).map(|(id, node)| (*id, node))
    }
}

/// The values that were decoded so far.
#[derive(Default)]
struct Parts {
    meta: Option<Meta>,
    nodes: BTreeMap<NodeId, Node>,
    alive: BTreeMap<NodeId, Liveness>,
    draining: BTreeMap<NodeId, Drain>,
    want: BTreeMap<GroupId, Want>,
    seen: BTreeMap<GroupId, Seen>,
    slots: Option<SlotMap>,
    placer: Option<NodeId>,
}

impl Parts {
    fn add(&mut self, key: Key, raw: &RawValue<'_>) -> Result<(), ValueError> {
        match key {
            Key::Meta => self.meta = Some(Meta::decode(raw.value)?),
            Key::Slots => self.slots = Some(SlotMap::decode(raw.value)?),
            Key::Node(id) => {
                self.nodes.insert(id, Node::decode(raw.value)?);
                if self.nodes.len() > MAX_NODES {
                    return Err(ValueError::rule(format!("the cluster has more than {MAX_NODES} nodes")));
                }
            }
            Key::Alive(id) => {
                self.alive.insert(id, Liveness::decode(raw.value)?);
            }
            Key::Draining(id) => {
                self.draining.insert(id, Drain::decode(raw.value)?);
            }
            Key::Want(group) => {
                let plan = GroupPlan::decode(raw.value)?;
                self.want.insert(group, Want { plan, changed: raw.changed });
            }
            Key::Seen(group) => {
                self.seen.insert(group, Seen::decode(raw.value)?);
            }
            Key::Placer => {
                let text =
                    std::str::from_utf8(raw.value).map_err(|_| ValueError::rule("the value is no text"))?;
                self.placer = Some(parse_node(text)?);
            }
        }
        Ok(())
    }

    fn view(self, revision: Revision) -> Result<ClusterView, (Key, ValueError)> {
        let missing = |key| (key, ValueError::rule("the key is missing"));
        let meta = self.meta.ok_or_else(|| missing(Key::Meta))?;
        let slots = self.slots.ok_or_else(|| missing(Key::Slots))?;
        let view = ClusterView {
            revision,
            meta,
            nodes: self.nodes,
            alive: self.alive,
            draining: self.draining,
            want: self.want,
            seen: self.seen,
            slots,
            placer: self.placer,
        };
        view.check()?;
        Ok(view)
    }
}

impl ClusterView {
    /// Checks the values against each other.
    fn check(&self) -> Result<(), (Key, ValueError)> {
        let exists = |group: GroupId, key| {
            if group.0 < u64::from(self.meta.groups()) {
                return Ok(());
            }
            Err((key, ValueError::rule(format!("the cluster has {} groups, no {group}", self.meta.groups()))))
        };
        for range in self.slots.ranges() {
            exists(range.group, Key::Slots)?;
        }
        for group in self.seen.keys() {
            exists(*group, Key::Seen(*group))?;
        }
        for (group, Want { plan, .. }) in &self.want {
            let key = Key::Want(*group);
            exists(*group, key)?;
            self.check_plan(plan).map_err(|error| (key, error))?;
        }
        let mut addresses = BTreeMap::new();
        for id in self.alive.keys() {
            let Some(node) = self.nodes.get(id) else {
                return Err((
                    Key::Alive(*id),
                    ValueError::rule("the node is alive and has no value of its own"),
                ));
            };
            for address in BTreeSet::from([&node.peer, &node.client]) {
                if let Some(other) = addresses.insert(address, *id) {
                    let sentence = format!("nodes {other} and {id} are alive with one address, {address}");
                    return Err((Key::Node(*id), ValueError::rule(sentence)));
                }
            }
        }
        Ok(())
    }

    /// True if the group has had later replicas than its plan knows: the plan comes from an old backup of etcd, and nobody follows it.
    pub fn has_old_plan(&self, group: GroupId) -> bool {
        let plan = self.want.get(&group).map(|want| want.plan.last_replica());
        self.seen.get(&group).zip(plan).is_some_and(|(seen, last)| seen.last_replica > last)
    }

    fn check_plan(&self, plan: &GroupPlan) -> Result<(), ValueError> {
        if plan.copies() != self.meta.copies() {
            return Err(ValueError::rule(format!(
                "a plan for K = {}, where the cluster has K = {}",
                plan.copies(),
                self.meta.copies()
            )));
        }
        if let Some(member) = plan.members().iter().find(|member| !self.nodes.contains_key(&member.node)) {
            return Err(ValueError::rule(format!(
                "replica {} is on node {}, which is not in the cluster",
                member.replica.0, member.node
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
