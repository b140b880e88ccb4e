//! Plans from what a group's log says, where etcd was restored from a backup that knows less.

use std::collections::BTreeSet;

use replica::{GroupId, NodeId, ReplicaId, Role, Version};
use uuid::Uuid;

use crate::values::plan::{GroupPlan, Member};
use crate::values::seen::Seen;
use crate::view::ClusterView;

/// True if the member is on no node that anybody knows.
pub(super) fn is_unknown(member: &Member) -> bool {
    member.node == unknown_node(member.replica)
}

/// The name of a dead node, in the place of the node of a member that neither etcd nor the leader's process knows. Names of nodes are random numbers of 122 bits: none is this one.
fn unknown_node(replica: ReplicaId) -> NodeId {
    NodeId(Uuid::from_u128(u128::MAX - u128::from(replica.0)))
}

/// The plan from which a group goes on. A plan of an old backup of etcd, which knows less than the group's log or contradicts it, gives way to one of the log's members. Those whose nodes nobody knows are on [`unknown_node`]s.
///
/// `None`, and the group gets no other plan: it never had a leader, and begins with its first members only; or its leader has not written what its log says since etcd was restored; or the plan is an old one, and a change of members is under way.
pub(super) fn plan_of_log(view: &ClusterView, group: GroupId, plan: &GroupPlan) -> Option<GroupPlan> {
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
    let is_overtaken = |member: &&Member| {
        member.replica <= seen.last_replica && seen.configuration.member(member.replica).is_none()
    };
    let overtaken: Vec<Member> = plan.members().iter().filter(is_overtaken).copied().collect();
    if seen.version < Version::LAST_REPLICA || overtaken.is_empty() {
        return plan.clone();
    }
    let numbers = (plan.last_replica().0 + 1..).map(ReplicaId);
    let new: Vec<(Member, ReplicaId)> = overtaken.iter().copied().zip(numbers).collect();
    let number =
        |of: ReplicaId| new.iter().find(|(member, _)| member.replica == of).map_or(of, |(_, number)| *number);
    let mut members: Vec<Member> =
        plan.members().iter().map(|member| Member { replica: number(member.replica), ..*member }).collect();
    members.sort_by_key(|member| member.replica);
    let last = new.last().map_or(plan.last_replica(), |(_, number)| *number);
    plan.replaced_by(members, number(plan.preferred()), last).unwrap_or_else(|_| plan.clone())
}
