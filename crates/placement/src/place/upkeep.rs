//! The changes that a cluster's plans need, of the process that is elected to place.

use std::collections::{BTreeMap, BTreeSet};

use replica::{GroupId, NodeId, ReplicaId};

use super::candidates::Candidate;
use super::from_log::{is_unknown, plan_of_log};
use super::replacing::{Replacements, replace};
use crate::error::PlaceError;
use crate::values::plan::GroupPlan;
use crate::view::{ClusterView, Want};

/// The changes of etcd that a cluster needs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Upkeep {
    /// The plans that change. Each takes the place of the plan in the view alone.
    pub plans: BTreeMap<GroupId, GroupPlan>,
    /// The nodes that leave the cluster: drained for good, not alive, and without replicas.
    pub removed: Vec<NodeId>,
    /// The replicas for which there is no other node.
    pub lacking: Vec<PlaceError>,
}

/// The changes of etcd that the cluster in `view` needs, with these nodes as `dead`, in groups that have had a leader: plans of an old backup of etcd give way to what the groups' logs say, replicas on dead and draining nodes are replaced, replicas that left and whose nodes are gone are forgotten, nodes that were drained for good are removed.
pub fn upkeep(view: &ClusterView, dead: &BTreeSet<NodeId>) -> Upkeep {
    let gone: BTreeSet<NodeId> = dead.iter().chain(view.draining.keys()).copied().collect();
    let live: BTreeSet<NodeId> =
        view.live_nodes().map(|(id, _)| id).filter(|id| !gone.contains(id)).collect();
    let nodes: Vec<Candidate> = view.nodes.iter().map(|(id, node)| Candidate::new(*id, node)).collect();
    let plans =
        view.want.iter().filter_map(|(group, want)| Some((*group, plan_of_log(view, *group, &want.plan)?)));
    let plans: BTreeMap<GroupId, GroupPlan> = plans.collect();
    let unknown = plans.values().flat_map(GroupPlan::members).filter(|member| is_unknown(member));
    let gone: BTreeSet<NodeId> = unknown.map(|member| member.node).chain(gone).collect();
    let Replacements { changed, lacking } = replace(&plans, &nodes, &gone, &live);
    let mut upkeep = Upkeep { lacking, ..Upkeep::default() };
    for (group, Want { plan, .. }) in &view.want {
        let wanted = changed.get(group).or_else(|| plans.get(group)).unwrap_or(plan).clone();
        let wanted = wanted.without_gone(|member| {
            let is_left =
                !view.nodes.contains_key(&member.node) && !is_in_group(view, *group, member.replica);
            is_left || is_unknown(member)
        });
        if wanted != *plan && !wanted.members().iter().any(is_unknown) {
            upkeep.plans.insert(*group, wanted);
        }
    }
    // A node may have a member that an old plan does not know.
    let are_current = view.want.keys().all(|group| plans.contains_key(group) && !view.has_old_plan(*group));
    if !are_current {
        return upkeep;
    }
    let is_last = |(id, drain): (&NodeId, &crate::Drain)| drain.is_last.then_some(*id);
    let removed = view.draining.iter().filter_map(is_last);
    upkeep.removed =
        removed.filter(|node| !view.alive.contains_key(node) && !has_replicas(view, *node)).collect();
    upkeep
}

/// True if the replica is a member by the group's log, as far as etcd knows.
fn is_in_group(view: &ClusterView, group: GroupId, replica: ReplicaId) -> bool {
    view.seen.get(&group).is_none_or(|seen| seen.configuration.member(replica).is_some())
}

/// True if a plan has a member on the node, or a group still has a replica there that leaves.
fn has_replicas(view: &ClusterView, node: NodeId) -> bool {
    view.want.iter().any(|(group, Want { plan, .. })| {
        let leaving = plan.leaving().iter().filter(|member| member.node == node);
        plan.member_on(node).is_some()
            || leaving.into_iter().any(|member| is_in_group(view, *group, member.replica))
    })
}

#[cfg(test)]
mod tests;
