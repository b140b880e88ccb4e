//! Other replicas in the place of those on dead nodes.

use std::collections::{BTreeMap, BTreeSet};

use replica::{ReplicaId, Role};

use super::candidates::Candidate;
use crate::error::PlaceError;
use crate::values::node::Offers;
use crate::values::plan::{GroupPlan, Member};
use replica::{GroupId, NodeId};

/// The plans to be written after nodes died.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replacements {
    /// The plans that changed.
    pub changed: BTreeMap<GroupId, GroupPlan>,
    /// The replicas on dead nodes for which there is no other node: they stay in the plans.
    pub lacking: Vec<PlaceError>,
}

/// Puts other replicas in the place of those on `dead` nodes. Nothing else moves: replicas on nodes that are neither `dead` nor `live` stay. `nodes`: every node of the cluster.
///
/// A new replica has a number that no replica of its group ever had, the role of the one that it replaces, and a live node without a replica of the group. Of several such nodes it gets one in the rack with
/// the fewest replicas of the group; of these the one with the fewest replicas of all groups; of these the one with the lowest id.
///
/// Where the preferred first primary is replaced, another witness on a node that offers `primary` is preferred; if there is none left, one of the new witnesses gets such a node. Where nodes are too few for all,
/// backups are replaced before the other witnesses.
///
/// The plans are what the groups are to have: each group brings a new replica up before it removes the old one, and none where a majority is lost.
pub fn replace(
    plans: &BTreeMap<GroupId, GroupPlan>,
    nodes: &[Candidate],
    dead: &BTreeSet<NodeId>,
    live: &BTreeSet<NodeId>,
) -> Replacements {
    let nodes: BTreeMap<NodeId, &Candidate> = nodes.iter().map(|node| (node.id, node)).collect();
    let mut replacing = Replacing {
        free: live.difference(dead).filter_map(|id| nodes.get(id).copied()).collect(),
        nodes,
        dead,
        replicas: BTreeMap::new(),
        offices: BTreeMap::new(),
    };
    for plan in plans.values() {
        for member in plan.members() {
            *replacing.replicas.entry(member.node).or_default() += 1;
        }
        if let Some(member) = plan.member(plan.preferred()) {
            *replacing.offices.entry(member.node).or_default() += 1;
        }
    }
    let mut replacements = Replacements::default();
    for (group, plan) in plans {
        if plan.members().iter().any(|member| dead.contains(&member.node)) {
            let changed = replacing.change(*group, plan, &mut replacements.lacking);
            if changed != *plan {
                replacements.changed.insert(*group, changed);
            }
        }
    }
    replacements
}

/// The replicas of one group that are still to be replaced.
#[derive(Clone, Copy)]
struct Demand {
    backups: usize,
    witnesses: usize,
    /// True if one of the witnesses needs a node that offers `primary`.
    primary: bool,
}

impl Demand {
    /// True if free nodes with these offers can take all of it.
    fn is_met_by(mut self, mut free: Vec<Offers>) -> bool {
        if self.primary {
            // Of the nodes that offer `primary` one that takes no backup is the least loss for these.
            let primaries = free.iter().enumerate().filter(|(_, offers)| offers.primary);
            let Some((at, _)) = primaries.min_by_key(|(_, offers)| offers.backup) else { return false };
            let Some(others) = self.witnesses.checked_sub(1) else { return false };
            free.swap_remove(at);
            self.witnesses = others;
        }
        let count = |fits: fn(&Offers) -> bool| free.iter().filter(|offers| fits(offers)).count();
        count(|offers| offers.backup) >= self.backups
            && count(|offers| offers.takes_witness()) >= self.witnesses
            && count(|offers| offers.backup || offers.takes_witness()) >= self.backups + self.witnesses
    }

    /// The demand without a replica of this role, which got a node with these offers.
    fn without(self, role: Role, offers: Offers) -> Demand {
        match role {
            Role::Backup => Demand { backups: self.backups.saturating_sub(1), ..self },
            Role::Witness => Demand {
                witnesses: self.witnesses.saturating_sub(1),
                primary: self.primary && !offers.primary,
                ..self
            },
        }
    }
}

/// The nodes, and what they have by the plans so far.
struct Replacing<'a> {
    nodes: BTreeMap<NodeId, &'a Candidate>,
    dead: &'a BTreeSet<NodeId>,
    /// The live nodes.
    free: Vec<&'a Candidate>,
    /// Number of replicas of each node.
    replicas: BTreeMap<NodeId, usize>,
    /// Number of preferred primaries of each node.
    offices: BTreeMap<NodeId, usize>,
}

impl<'a> Replacing<'a> {
    fn offers_primary(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.offers.primary)
    }

    fn change(&mut self, group: GroupId, plan: &GroupPlan, lacking: &mut Vec<PlaceError>) -> GroupPlan {
        let mut members = plan.members().to_vec();
        let mut last = plan.last_replica();
        let is_dead = |member: &Member| self.dead.contains(&member.node);
        let keeps_primary = members.iter().any(|member| {
            member.role == Role::Witness && !is_dead(member) && self.offers_primary(member.node)
        });
        let mut gone: Vec<Member> = members.iter().filter(|member| is_dead(member)).copied().collect();
        let count = |role| gone.iter().filter(|member| member.role == role).count();
        let witnesses = count(Role::Witness);
        let mut demand =
            Demand { backups: count(Role::Backup), witnesses, primary: !keeps_primary && witnesses > 0 };
        // A witness for a node that offers `primary` comes first where the group lacks one, then the backups.
        gone.sort_by_key(|member| {
            (
                !(demand.primary && member.role == Role::Witness),
                member.replica != plan.preferred(),
                member.replica,
            )
        });
        if let Some(rest) = gone.get_mut(usize::from(demand.primary)..) {
            rest.sort_by_key(|member| (member.role == Role::Witness, member.replica));
        }
        for old in gone {
            // A node deletes a replica that leaves before it takes another one of the group, and the old one may have to stay until the new one votes.
            let used: BTreeSet<NodeId> =
                members.iter().chain(plan.leaving()).map(|member| member.node).collect();
            let Some(new) = self.choose(&old, &members, &used, demand) else {
                demand = demand.without(old.role, Offers::default());
                let (replica, node) = (old.replica.0, old.node);
                lacking.push(PlaceError::NoReplacement { group, replica, role: role_name(old.role), node });
                continue;
            };
            demand = demand.without(old.role, new.offers);
            last = ReplicaId(last.0 + 1);
            *self.replicas.entry(new.id).or_default() += 1;
            members.retain(|member| member.replica != old.replica);
            members.push(Member { replica: last, node: new.id, role: old.role });
        }
        let preferred = self.prefer(plan, &members);
        // A plan from which too many replicas leave waits until some are gone.
        plan.replaced_by(members, preferred, last).unwrap_or_else(|_| plan.clone())
    }

    /// The node for a new replica in the place of `old`: the best one after which the other replicas of the demand find nodes too; else one that offers `primary`, if the demand has that; else
    /// the best one that takes the role.
    fn choose(
        &self,
        old: &Member,
        members: &[Member],
        used: &BTreeSet<NodeId>,
        demand: Demand,
    ) -> Option<&'a Candidate> {
        let free: Vec<&Candidate> =
            self.free.iter().copied().filter(|node| !used.contains(&node.id)).collect();
        let in_rack = |node: &Candidate| {
            let others = members.iter().filter(|member| !self.dead.contains(&member.node));
            others
                .filter(|member| self.nodes.get(&member.node).is_some_and(|other| other.rack == node.rack))
                .count()
        };
        let takes_role = |node: &&Candidate| match old.role {
            Role::Backup => node.offers.backup,
            Role::Witness => node.offers.takes_witness(),
        };
        let mut fitting: Vec<&Candidate> = free.iter().copied().filter(takes_role).collect();
        fitting.sort_by_key(|node| (in_rack(node), self.replicas.get(&node.id).copied(), node.id));
        let leaves_enough = |node: &&Candidate| {
            let rest = free.iter().filter(|other| other.id != node.id).map(|other| other.offers);
            demand.without(old.role, node.offers).is_met_by(rest.collect())
        };
        let is_wanted =
            |node: &&Candidate| demand.primary && old.role == Role::Witness && node.offers.primary;
        let best = fitting.iter().copied().find(leaves_enough);
        best.or_else(|| fitting.iter().copied().find(is_wanted)).or_else(|| fitting.first().copied())
    }

    /// The preferred first primary among `members`: the one of the plan if its replica stays, else the witness that is not on a dead node, offers `primary`, and has the fewest offices.
    fn prefer(&mut self, plan: &GroupPlan, members: &[Member]) -> ReplicaId {
        let is_dead = |member: &Member| self.dead.contains(&member.node);
        let before = members.iter().find(|member| member.replica == plan.preferred());
        if before.is_some_and(|member| !is_dead(member)) {
            return plan.preferred();
        }
        let rank = |member: &&Member| {
            let offices = self.offices.get(&member.node).copied().unwrap_or(0);
            (is_dead(member), !self.offers_primary(member.node), offices, member.replica)
        };
        let witnesses = members.iter().filter(|member| member.role == Role::Witness);
        let chosen = witnesses.min_by_key(rank).expect("a plan has K + 1 witnesses");
        *self.offices.entry(chosen.node).or_default() += 1;
        chosen.replica
    }
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Backup => "backup",
        Role::Witness => "witness",
    }
}

#[cfg(test)]
mod tests;
