//! A group of a simulated cluster: its members, as the latest of its replicas has applied them, and what it has committed.

use std::sync::Arc;

use replica::{Base, Configuration, Index, ReplicaId, Role, Version};
use shard::{Group, GroupId};
use units::Instant;

use super::node::Node;
use super::report::ClusterFailureKind;
use super::tables::Committed;

/// A fault of a group, for the report.
pub(super) type Fault = (ClusterFailureKind, String);

/// A group.
pub(super) struct GroupState {
    /// The place of the group among those of the run.
    place: usize,
    /// The state of the group's first members.
    pub first: Base,
    pub committed: Arc<Committed>,
    /// The latest members that a replica has applied, and the index of that change.
    pub members: (Configuration, Index),
    /// The highest number that a replica of the group ever had.
    pub last_replica: ReplicaId,
    /// The members that the group is asked for, until then.
    pub wanted: Option<(Configuration, Instant)>,
}

impl GroupState {
    /// The group at a place of a run, whose members have these roles, by node.
    pub(super) fn new(place: usize, roles: &[Role]) -> GroupState {
        let voters = Configuration::new((1..).map(ReplicaId).zip(roles.iter().copied()));
        let leads = (1..).map(ReplicaId).zip(roles).find(|(_, role)| **role == Role::Witness);
        let first = Base::first(voters.clone(), leads.map_or(ReplicaId(1), |(id, _)| id));
        let last_replica = voters.last_replica();
        let members = (voters, first.state.since);
        GroupState { place, first, committed: Arc::default(), members, last_replica, wanted: None }
    }

    /// The group's number.
    pub(super) fn id(&self) -> GroupId {
        GroupId(self.place as u64 + 1)
    }

    /// A replica has applied these members: the latest ones stay. True if a change of members has begun.
    pub(super) fn learn(&mut self, group: &Group) -> bool {
        let later = group.with_replica(|replica| {
            let members = replica.members();
            (members.since() > self.members.1).then(|| (members.current().clone(), members.since()))
        });
        let Some(later) = later else { return false };
        self.last_replica = self.last_replica.max(later.0.last_replica());
        self.members = later;
        self.members.0.is_joint()
    }

    /// Members whose drives are lost.
    pub(super) fn lost_members(&self, nodes: &[Node]) -> Vec<ReplicaId> {
        let lost = nodes.iter().filter(|node| node.is_lost).map(Node::id);
        lost.filter(|id| self.members.0.role(*id).is_some()).collect()
    }

    /// The node that leads in the highest term.
    pub(super) fn leader(&self, nodes: &[Node]) -> Option<usize> {
        let leads = nodes.iter().enumerate().filter_map(|(node, of)| {
            let group = of.group(self.place)?;
            let term =
                group.with_replica(|replica| (replica.leader() == Some(of.id())).then(|| replica.term()));
            term.map(|term| (term, node))
        });
        leads.max().map(|(_, node)| node)
    }

    /// True if one more member's drive may be lost: the group's members do not change, and a majority without the member has applied the last change.
    /// Until then the old members decide too.
    pub(super) fn may_lose(&self, member: ReplicaId, nodes: &[Node]) -> bool {
        let members = &self.members.0;
        let may_fail = members.may_fail().min(self.first.state.members.may_fail());
        let has_applied = |id: ReplicaId| {
            let of_id = nodes.iter().find(|node| node.id() == id && id != member);
            let group = of_id.and_then(|node| node.group(self.place));
            group.is_some_and(|group| group.with_replica(|replica| replica.members().current() == members))
        };
        self.wanted.is_none()
            && !members.is_joint()
            && members.is_majority(has_applied)
            && (members.role(member).is_none() || self.lost_members(nodes).len() < may_fail)
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
        let voters: Vec<&Node> = nodes.iter().filter(|node| members.role(node.id()).is_some()).collect();
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
            let runs = node.group(self.place).is_some() && self.members.0.role(node.id()).is_some();
            node.tables(self.place).filter(|_| runs).map(|tables| tables.applied_index().0)
        };
        let applied: Vec<u64> = nodes.iter().filter_map(applied).collect();
        let most = applied.iter().max().copied().unwrap_or_default();
        applied.into_iter().any(|own| own + entries < most)
    }

    /// The group's replicas, for people.
    pub(super) fn describe(&self, nodes: &[Node]) -> String {
        let describe = |node: &Node| {
            let id = node.id().0;
            let Some(group) = node.group(self.place) else { return format!("{id} is down") };
            let applied = node.tables(self.place).map(|tables| tables.applied_index().0).unwrap_or_default();
            group.with_replica(|replica| {
                let leader = replica.leader().map(|leader| leader.0).unwrap_or_default();
                let (term, whole) = (replica.term().0, if replica.is_whole() { "whole" } else { "lacks values" });
                let of = replica.offices().standing().iter().map(|office| office.holder.0);
                let offices: Vec<u64> = of.collect();
                format!(
                    "{id} {:?} {whole}, term {term}, leader {leader}, applied {applied}, {} bytes of log, offices {offices:?}, {} bytes free",
                    group.place().role,
                    replica.log_bytes(),
                    node.free().unwrap_or_default().0
                )
            })
        };
        let replicas: Vec<String> = nodes.iter().map(describe).collect();
        format!(
            "voters {:?}; {}",
            self.members.0.voters().map(|(id, _)| id.0).collect::<Vec<_>>(),
            replicas.join("; ")
        )
    }

    /// An error says which member is below a version.
    pub(super) fn is_at(&self, version: Version, nodes: &[Node]) -> Result<(), Fault> {
        let voters = nodes.iter().filter(|node| self.members.0.role(node.id()).is_some());
        let is_below = |node: &&Node| {
            let group = node.group(self.place);
            group.is_some_and(|group| group.with_replica(|replica| replica.version()) < version)
        };
        let below = voters.into_iter().find(is_below);
        below.map_or(Ok(()), |node| {
            let why = format!("replica {} is below version {version}", node.id().0);
            Err((ClusterFailureKind::Stuck, why))
        })
    }

    /// An error says in what the members differ, or what they lack.
    pub(super) fn is_whole(&self, nodes: &[Node]) -> Result<(), Fault> {
        let stuck = |why: String| Err((ClusterFailureKind::Stuck, why));
        let diverged = |why: String| Err((ClusterFailureKind::Diverged, why));
        let members = &self.members.0;
        if members.is_joint() || !self.lost_members(nodes).is_empty() || self.wanted.is_some() {
            return stuck(format!("members change: {members:?}, wanted {:?}", self.wanted));
        }
        let voters: Vec<&Node> = nodes.iter().filter(|node| members.role(node.id()).is_some()).collect();
        let leads = |node: &&&Node| {
            node.group(self.place).is_some_and(|group| {
                group.with_replica(|replica| replica.leader() == Some(node.id()) && replica.is_whole())
            })
        };
        let leaders: Vec<ReplicaId> = voters.iter().filter(leads).map(|node| node.id()).collect();
        let [leader] = leaders[..] else { return stuck(format!("{leaders:?} lead and are whole")) };
        let contents = |node: &Node| node.tables(self.place).map(|tables| tables.contents());
        let of_leader = voters.iter().find(|node| node.id() == leader).and_then(|node| contents(node));
        let Some(of_leader) = of_leader else { return stuck("the leader is no member".into()) };
        for node in voters {
            let id = node.id();
            let Some(own) = contents(node) else { continue };
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
            let keeps_all = node.role(self.place) == Some(Role::Backup) || id == leader;
            let lacks = own.rows.values().filter(|row| row.value.is_none()).count();
            if lacks > 0 && keeps_all {
                return diverged(format!("replica {} lacks {lacks} values", id.0));
            }
        }
        Ok(())
    }
}
