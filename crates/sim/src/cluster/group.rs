//! A group of a simulated cluster: its members, as the latest of its replicas has applied them, and what it has committed.

use std::sync::Arc;

use placement::GroupPlan;
use replica::{Base, Configuration, Index, ReplicaId, Role, Version};
use shard::{Group, GroupId};
use units::Instant;

use super::node::{Node, id_of};
use super::report::ClusterFailureKind;
use super::tables::Committed;

/// A fault of a group, for the report.
pub(super) type Fault = (ClusterFailureKind, String);

/// A group.
pub(super) struct GroupState {
    /// The place of the group among those of the run.
    place: usize,
    /// The number of members that may fail, of the group's first members.
    may_fail: usize,
    pub committed: Arc<Committed>,
    /// The latest members that a replica has applied, and the index of that change.
    pub members: (Configuration, Index),
    /// The members of the group's plan in etcd.
    pub planned: Configuration,
}

impl GroupState {
    /// The group at a place of a run, which begins with the members of a plan.
    pub(super) fn new(place: usize, plan: &GroupPlan) -> GroupState {
        let planned = placement::configuration(plan);
        let since = Base::first(planned.clone(), plan.preferred()).state.since;
        let members = (planned.clone(), since);
        GroupState { place, may_fail: planned.may_fail(), committed: Arc::default(), members, planned }
    }

    /// The group's number.
    pub(super) fn id(&self) -> GroupId {
        id_of(self.place)
    }

    /// True if the group has the members of its plan in etcd, and no change is under way.
    pub(super) fn has_planned_members(&self) -> bool {
        self.members.0 == self.planned
    }

    /// The group's replica on a node, if it is a member.
    fn member(&self, node: &Node) -> Option<ReplicaId> {
        node.replica(self.place).map(|(id, _)| id).filter(|id| self.members.0.role(*id).is_some())
    }

    /// A replica has applied these members: the latest ones stay. True if a change of members has begun.
    pub(super) fn learn(&mut self, group: &Group) -> bool {
        let later = group.with_replica(|replica| {
            let members = replica.members();
            (members.since() > self.members.1).then(|| (members.current().clone(), members.since()))
        });
        let Some(later) = later else { return false };
        self.members = later;
        self.members.0.is_joint()
    }

    /// True if a node has a member of the group.
    pub(super) fn has_member(&self, nodes: &[Node], node: usize) -> bool {
        nodes.get(node).is_some_and(|of| self.member(of).is_some())
    }

    /// Members whose drives are lost.
    pub(super) fn lost_members(&self, nodes: &[Node]) -> Vec<ReplicaId> {
        nodes.iter().filter(|node| node.is_lost).filter_map(|node| self.member(node)).collect()
    }

    /// The node that leads in the highest term.
    pub(super) fn leader(&self, nodes: &[Node]) -> Option<usize> {
        let leads = nodes.iter().enumerate().filter_map(|(node, of)| {
            let group = of.group(self.place)?;
            let own = Some(group.place().replica);
            let term = group.with_replica(|replica| (replica.leader() == own).then(|| replica.term()));
            term.map(|term| (term, node))
        });
        leads.max().map(|(_, node)| node)
    }

    /// True if one more node's drive may be lost: the group's members do not change, and a majority without the node's replica has applied the last change.
    /// Until then the old members decide too.
    pub(super) fn may_lose(&self, lost: &Node, nodes: &[Node]) -> bool {
        let members = &self.members.0;
        let may_fail = members.may_fail().min(self.may_fail);
        let member = self.member(lost);
        let has_applied = |id: ReplicaId| {
            let group = nodes.iter().find_map(|node| {
                node.group(self.place).filter(|group| group.place().replica == id && member != Some(id))
            });
            group.is_some_and(|group| group.with_replica(|replica| replica.members().current() == members))
        };
        self.has_planned_members()
            && members.is_majority(has_applied)
            && (member.is_none() || self.lost_members(nodes).len() < may_fail)
    }

    /// The last committed value of each key is on more members' drives than may fail, those that are lost included; one node answers reads.
    pub(super) fn check(&self, nodes: &[Node], now: Instant) -> Result<(), Fault> {
        let answering = nodes.iter().filter(|node| node.answers(self.place, now)).count();
        if answering > 1 {
            let kind = ClusterFailureKind::NotLinearizable;
            return Err((kind, format!("{answering} nodes answer reads by their leases")));
        }
        if let Some(contradiction) = self.committed.contradiction() {
            return Err((ClusterFailureKind::Lost, contradiction));
        }
        let members = &self.members.0;
        if members.is_joint() {
            return Ok(());
        }
        let voters: Vec<&Node> = nodes.iter().filter(|node| self.member(node).is_some()).collect();
        let lost = self.lost_members(nodes).len();
        let puts = self.committed.puts();
        let has: Vec<Vec<bool>> = voters.iter().map(|node| node.has(self.place, &puts)).collect();
        let lacks = puts.into_iter().enumerate().find_map(|(place, (key, write))| {
            let copies = has.iter().filter(|has| has.get(place) == Some(&true)).count();
            (copies + lost <= members.may_fail()).then(|| {
                format!("the value of {key:?} by {write:?} has {copies} copies, and {lost} drives are lost")
            })
        });
        lacks.map_or(Ok(()), |lacks| Err((ClusterFailureKind::Lost, lacks)))
    }

    /// True if a replica's tables are further behind the leader's than `entries`.
    pub(super) fn has_slow_tables(&self, nodes: &[Node], entries: u64) -> bool {
        let applied = |node: &Node| {
            let runs = node.group(self.place).is_some() && self.member(node).is_some();
            node.tables(self.place).filter(|_| runs).map(|tables| tables.applied_index().0)
        };
        let applied: Vec<u64> = nodes.iter().filter_map(applied).collect();
        let most = applied.iter().max().copied().unwrap_or_default();
        applied.into_iter().any(|own| own + entries < most)
    }

    /// The group's replicas, for people.
    pub(super) fn describe(&self, nodes: &[Node]) -> String {
        let describe = |(number, node): (usize, &Node)| {
            let (ReplicaId(id), _) = node.replica(self.place)?;
            let Some(group) = node.group(self.place) else {
                return Some(format!("{id} on node {} is down", number + 1));
            };
            let applied = node.tables(self.place).map(|tables| tables.applied_index().0).unwrap_or_default();
            Some(group.with_replica(|replica| {
                let leader = replica.leader().map(|leader| leader.0).unwrap_or_default();
                let (term, whole) = (replica.term().0, if replica.is_whole() { "whole" } else { "lacks values" });
                let of = replica.offices().standing().iter().map(|office| office.holder.0);
                let offices: Vec<u64> = of.collect();
                format!(
                    "{id} on node {} {:?} {whole}, term {term}, leader {leader}, applied {applied}, {} bytes of log, offices {offices:?}, {} bytes free",
                    number + 1,
                    group.place().role,
                    replica.log_bytes(),
                    node.free().unwrap_or_default().0
                )
            }))
        };
        let replicas: Vec<String> = nodes.iter().enumerate().filter_map(describe).collect();
        format!(
            "voters {:?}, planned {:?}; {}",
            self.members.0.voters().map(|(id, _)| id.0).collect::<Vec<_>>(),
            self.planned.voters().map(|(id, _)| id.0).collect::<Vec<_>>(),
            replicas.join("; ")
        )
    }

    /// An error says which member is below a version.
    pub(super) fn is_at(&self, version: Version, nodes: &[Node]) -> Result<(), Fault> {
        let voters = nodes.iter().filter(|node| self.member(node).is_some());
        let is_below = |node: &&Node| {
            let group = node.group(self.place);
            group.is_some_and(|group| group.with_replica(|replica| replica.version()) < version)
        };
        let below = voters.into_iter().find(is_below).and_then(|node| self.member(node));
        below.map_or(Ok(()), |replica| {
            let why = format!("replica {} is below version {version}", replica.0);
            Err((ClusterFailureKind::Stuck, why))
        })
    }

    /// An error says in what the members differ, or what they lack.
    pub(super) fn is_whole(&self, nodes: &[Node]) -> Result<(), Fault> {
        let stuck = |why: String| Err((ClusterFailureKind::Stuck, why));
        let diverged = |why: String| Err((ClusterFailureKind::Diverged, why));
        let members = &self.members.0;
        if !self.has_planned_members() || !self.lost_members(nodes).is_empty() {
            return stuck(format!("members change: {members:?}, planned {:?}", self.planned));
        }
        let is_left_out = |id: ReplicaId| members.role(id).is_none();
        let runs = nodes.iter().filter(|node| node.is_up()).filter_map(|node| node.replica(self.place));
        if let Some((id, _)) = runs.into_iter().find(|(id, _)| is_left_out(*id)) {
            return stuck(format!("replica {} was left out, and is not deleted", id.0));
        }
        let voters: Vec<&Node> = nodes.iter().filter(|node| self.member(node).is_some()).collect();
        let leads = |node: &&&Node| {
            node.group(self.place).is_some_and(|group| {
                let own = Some(group.place().replica);
                group.with_replica(|replica| replica.leader() == own && replica.is_whole())
            })
        };
        let leaders: Vec<ReplicaId> =
            voters.iter().filter(leads).filter_map(|node| self.member(node)).collect();
        let [leader] = leaders[..] else { return stuck(format!("{leaders:?} lead and are whole")) };
        let contents = |node: &Node| node.tables(self.place).map(|tables| tables.contents());
        let of_leader =
            voters.iter().find(|node| self.member(node) == Some(leader)).and_then(|node| contents(node));
        let Some(of_leader) = of_leader else { return stuck("the leader is no member".into()) };
        for node in voters {
            let Some(((id, role), own)) = node.replica(self.place).zip(contents(node)) else { continue };
            if own.applied != of_leader.applied {
                let (own, applied) = (own.applied, of_leader.applied);
                let why = format!("replica {} has applied {own:?}, the leader {applied:?}", id.0);
                let is_lost = own > applied;
                let kind = if is_lost { ClusterFailureKind::Lost } else { ClusterFailureKind::Stuck };
                return Err((kind, why));
            }
            if !own.has_records_of(&of_leader) {
                return diverged(format!("replica {} has other records than the leader", id.0));
            }
            let keeps_all = role == Role::Backup || id == leader;
            let lacks = own.rows.values().filter(|row| row.value.is_none()).count();
            if lacks > 0 && keeps_all {
                return diverged(format!("replica {} lacks {lacks} values", id.0));
            }
        }
        Ok(())
    }
}
