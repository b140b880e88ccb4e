//! The changes that a cluster's plans need, of the process that is elected to place.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use replica::{GroupId, NodeId, ReplicaId, Role, Version};

use super::candidates::Candidate;
use super::replacing::{Replacements, replace};
use crate::error::PlaceError;
use crate::values::plan::{GroupPlan, Member};
use crate::values::seen::Seen;
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
    let is_unknown = |member: &Member| member.node == unknown_node(member.replica);
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

/// Stands for the node of a member that etcd has forgotten, and whose replica nobody has heard of: a dead node. No node has such a name, which is drawn from far more numbers.
fn unknown_node(replica: ReplicaId) -> NodeId {
    NodeId(Uuid::from_u128(u128::MAX - u128::from(replica.0)))
}

/// The plan from which a group goes on. A plan of an old backup of etcd, which knows less than the group's log or contradicts it, gives way to one of the log's members. Those whose nodes nobody knows are on [`unknown_node`]s.
///
/// `None`, and the group gets no other plan: it never had a leader, and begins with its first members only; or its leader has not written what its log says since etcd was restored; or the plan is an old one, and a change of members is under way.
fn plan_of_log(view: &ClusterView, group: GroupId, plan: &GroupPlan) -> Option<GroupPlan> {
    let seen = view.seen.get(&group).filter(|seen| seen.epoch == view.meta.epoch())?;
    if !view.has_old_plan(group) && !contradicts(plan, seen) {
        return Some(with_later_numbers(plan, seen));
    }
    if seen.configuration.is_joint() {
        return None;
    }
    let member = |(replica, role): (ReplicaId, Role)| {
        let node = seen.nodes.get(&replica).filter(|node| view.nodes.contains_key(node));
        Member { replica, node: node.copied().unwrap_or_else(|| unknown_node(replica)), role }
    };
    let members: Vec<Member> = seen.configuration.voters().map(member).collect();
    let is_witness = |id: ReplicaId| seen.configuration.role(id) == Some(Role::Witness);
    let mut witnesses = members.iter().map(|member| member.replica).filter(|id| is_witness(*id));
    let preferred = if is_witness(plan.preferred()) { plan.preferred() } else { witnesses.next()? };
    let comes_back = |member: &Member| seen.configuration.member(member.replica).is_some();
    plan.clone()
        .without_gone(comes_back)
        .replaced_by(members, preferred, seen.last_replica.max(plan.last_replica()))
        .ok()
}

/// True if the plan has a member on another node than the group has it, or the group got a member on the node of another one: the plan follows from an old backup of etcd.
fn contradicts(plan: &GroupPlan, seen: &Seen) -> bool {
    let nodes: BTreeSet<&NodeId> = seen.nodes.values().collect();
    if nodes.len() < seen.nodes.len() {
        return true;
    }
    let has_moved =
        |member: &Member| seen.nodes.get(&member.replica).is_some_and(|node| *node != member.node);
    plan.members().iter().any(has_moved)
}

/// The plan with numbers above all others for replicas that have not joined while later ones have: the group takes the number of such a replica for one that it had.
fn with_later_numbers(plan: &GroupPlan, seen: &Seen) -> GroupPlan {
    let is_late = |member: &&Member| {
        member.replica <= seen.last_replica && seen.configuration.member(member.replica).is_none()
    };
    let late: Vec<Member> = plan.members().iter().filter(is_late).copied().collect();
    if seen.version < Version::LAST_REPLICA || late.is_empty() {
        return plan.clone();
    }
    let numbers = (plan.last_replica().0 + 1..).map(ReplicaId);
    let new: Vec<(Member, ReplicaId)> = late.iter().copied().zip(numbers).collect();
    let number =
        |of: ReplicaId| new.iter().find(|(member, _)| member.replica == of).map_or(of, |(_, number)| *number);
    let mut members: Vec<Member> =
        plan.members().iter().map(|member| Member { replica: number(member.replica), ..*member }).collect();
    members.sort_by_key(|member| member.replica);
    let last = new.last().map_or(plan.last_replica(), |(_, number)| *number);
    plan.replaced_by(members, number(plan.preferred()), last).unwrap_or_else(|_| plan.clone())
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
