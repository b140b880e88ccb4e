//! The steps by which nodes bring groups to the members of their plans in etcd, as pure functions.
//!
//! A node creates the replicas that plans have on it ([`new_replica`]), a leader brings its group to the members of the plan ([`next_step`]), and a node whose replica the plan has no more asks members whether the group has left it out ([`members_to_ask`]) before it deletes the replica. A deleted replica is taken out of the plan ([`without_deleted`]).

use replica::{Base, Configuration, GroupId, GroupState, NodeId, ReplicaId, Role};

use crate::names::Epoch;
use crate::values::plan::{GroupPlan, Member};
use crate::view::{ClusterView, Want};

/// The next step of a group whose leader is to bring it to its plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// The group has the members of its plan.
    Done,
    /// The group has had later replicas than its plan: the plan comes from an old backup of etcd, and the group keeps its members.
    OldPlan,
    /// The group is to have these members.
    Change(Configuration),
    /// One of these witnesses of the plan, which are members, is to lead: a leader that the plan has no more would only do the same.
    HandOver(Vec<ReplicaId>),
}

impl Step {
    /// The witness to hand over to, of those of [`Step::HandOver`]: one that could take over at once, else each in turn, by the number of the attempt. The leader waits until that one has everything committed.
    pub fn successor(
        witnesses: &[ReplicaId],
        attempt: usize,
        could_at_once: impl Fn(ReplicaId) -> bool,
    ) -> Option<ReplicaId> {
        let at_once = witnesses.iter().copied().find(|witness| could_at_once(*witness));
        at_once.or_else(|| witnesses.get(attempt.checked_rem(witnesses.len())?).copied())
    }
}

/// The next step from the members of `state`, which `leader` leads, to those of the plan. A leader that the plan has no more hands over to a witness of both; where there are none, one of the plan's takes the place of another one first, beside the leader.
pub fn next_step(state: &GroupState, plan: &GroupPlan, leader: ReplicaId) -> Step {
    let current = &state.members;
    let last_replica = state.last_replica.max(current.last_replica());
    if *current == configuration(plan) {
        return Step::Done;
    }
    if last_replica > plan.last_replica() {
        return Step::OldPlan;
    }
    if plan.member(leader).is_some() {
        return Step::Change(configuration(plan));
    }
    let witnesses = || plan.members().iter().filter(|member| member.role == Role::Witness);
    let both = witnesses().map(|member| member.replica).filter(|replica| current.role(*replica).is_some());
    let both: Vec<ReplicaId> = both.collect();
    if !both.is_empty() {
        return Step::HandOver(both);
    }
    let stands_back = witnesses().next_back().map(|member| member.replica);
    let others = plan.members().iter().filter(|member| Some(member.replica) != stands_back);
    let others = others.map(|member| (member.replica, member.role));
    Step::Change(Configuration::new(others.chain([(leader, Role::Witness)])))
}

/// The replica of the group that `node`, which has none, is to create, and the state from which it begins: that of the group's first members where the group never had a leader and etcd was never restored, else no members. None by a plan of an old backup of etcd.
pub fn new_replica(view: &ClusterView, group: GroupId, node: NodeId) -> Option<(Member, Base)> {
    let Want { plan, .. } = view.want.get(&group)?;
    let own = plan.member_on(node).filter(|_| !view.has_old_plan(group))?;
    let is_new = view.meta.epoch() == Epoch(1) && !view.seen.contains_key(&group);
    let begins = is_first(plan) && is_new;
    let base = if begins { Base::first(configuration(plan), plan.preferred()) } else { Base::joining() };
    Some((*own, base))
}

/// The members that the node of `replica` asks whether the group has left it out: those of the plan, where the plan has the replica no more.
pub fn members_to_ask(plan: &GroupPlan, replica: ReplicaId) -> Option<Vec<ReplicaId>> {
    let is_member = plan.member(replica).is_some();
    (!is_member).then(|| plan.members().iter().map(|member| member.replica).collect())
}

/// The plan without the replicas that leave and that `node` has deleted: all on the node but `present`, the group's replica there.
pub fn without_deleted(plan: &GroupPlan, node: NodeId, present: Option<ReplicaId>) -> GroupPlan {
    plan.clone().without_gone(|member| member.node == node && present != Some(member.replica))
}

/// The members of a plan, as a group has them.
pub fn configuration(plan: &GroupPlan) -> Configuration {
    Configuration::new(plan.members().iter().map(|member| (member.replica, member.role)))
}

/// True for a plan of the replicas that a group has first: none of them has taken the place of another.
fn is_first(plan: &GroupPlan) -> bool {
    plan.last_replica().0 == plan.members().len() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use replica::{ClusterId, Index, Term, Version};
    use uuid::Uuid;

    use super::*;
    use crate::Revision;
    use crate::values::meta::Meta;
    use crate::values::seen::Seen;
    use crate::values::slot_map::SlotMap;

    const GROUP: GroupId = GroupId(0);

    fn node(number: u64) -> NodeId {
        NodeId(Uuid::from_u128(number.into()))
    }

    /// A plan of a witness, a backup and a witness with these numbers, each on the node of its number.
    fn plan(numbers: [u64; 3], last: u64) -> GroupPlan {
        let roles = [Role::Witness, Role::Backup, Role::Witness];
        let member =
            |(number, role): (u64, Role)| Member { replica: ReplicaId(number), node: node(number), role };
        let mut members: Vec<Member> = numbers.into_iter().zip(roles).map(member).collect();
        members.sort_by_key(|member| member.replica);
        GroupPlan::new(members, ReplicaId(numbers[0]), ReplicaId(last)).unwrap()
    }

    fn view(plan: GroupPlan) -> ClusterView {
        let want = Want { plan, changed: Revision(8) };
        ClusterView {
            revision: Revision(9),
            meta: Meta::new(ClusterId(Uuid::from_u128(77)), 1, 1).unwrap(),
            nodes: BTreeMap::new(),
            alive: BTreeMap::new(),
            draining: BTreeMap::new(),
            want: BTreeMap::from([(GROUP, want)]),
            seen: BTreeMap::new(),
            slots: SlotMap::even(1),
            placer: None,
        }
    }

    /// The value `seen` of a group whose log has the members of a plan. `last`: the highest number that a replica of the group had.
    fn seen(plan: &GroupPlan, last: u64) -> Seen {
        Seen {
            configuration: configuration(plan),
            index: Index(1),
            term: Term(1),
            leader: None,
            version: Version(1),
            last_replica: ReplicaId(last),
            nodes: BTreeMap::new(),
            epoch: Epoch(1),
        }
    }

    fn state(members: &Configuration) -> GroupState {
        GroupState::first_version(members.clone(), Index(1), Vec::new())
    }

    #[test]
    fn replicas_begin_a_group_only_by_a_first_plan_of_a_group_without_a_leader() {
        let first = plan([1, 2, 3], 3);
        let mut view_of_first = view(first.clone());
        let (own, base) = new_replica(&view_of_first, GROUP, node(2)).unwrap();
        assert_eq!((own.replica, base), (ReplicaId(2), Base::first(configuration(&first), ReplicaId(1))));
        assert_eq!(new_replica(&view_of_first, GROUP, node(9)), None);
        view_of_first.seen.insert(GROUP, seen(&first, 3));
        assert_eq!(new_replica(&view_of_first, GROUP, node(2)).unwrap().1, Base::joining());
        // A backup of etcd from before the group's first leader.
        view_of_first.seen.clear();
        view_of_first.meta = view_of_first.meta.with_epoch(Epoch(2));
        assert_eq!(new_replica(&view_of_first, GROUP, node(2)).unwrap().1, Base::joining());
        view_of_first.seen.insert(GROUP, seen(&first, 4));
        assert_eq!(new_replica(&view_of_first, GROUP, node(2)), None, "the plan is an old one");
        let replaced = view(plan([1, 2, 4], 4));
        assert_eq!(new_replica(&replaced, GROUP, node(2)).unwrap().1, Base::joining());
    }

    #[test]
    fn a_leader_that_is_to_go_hands_over_or_brings_up_a_witness_that_can_lead() {
        let members = |ids: [u64; 3]| configuration(&plan(ids, 9));
        let leader = ReplicaId(1);
        let step = |current: &Configuration, numbers| next_step(&state(current), &plan(numbers, 9), leader);
        assert_eq!(step(&members([1, 2, 3]), [1, 2, 4]), Step::Change(members([1, 2, 4])));
        assert_eq!(step(&members([1, 2, 3]), [3, 2, 4]), Step::HandOver(vec![ReplicaId(3)]));
        let beside = Configuration::new(
            [(1, Role::Witness), (2, Role::Backup), (4, Role::Witness)]
                .map(|(id, role)| (ReplicaId(id), role)),
        );
        assert_eq!(step(&members([1, 2, 3]), [4, 2, 5]), Step::Change(beside.clone()));
        assert_eq!(step(&beside, [4, 2, 5]), Step::HandOver(vec![ReplicaId(4)]));
    }

    #[test]
    fn a_leader_hands_over_to_a_witness_that_can_take_over_else_to_each_in_turn() {
        let witnesses = [3, 6].map(ReplicaId);
        let successor = |attempt, ready: u64| {
            Step::successor(&witnesses, attempt, |witness| witness.0 == ready).unwrap().0
        };
        assert_eq!((successor(0, 6), successor(1, 6)), (6, 6));
        assert_eq!((successor(0, 9), successor(1, 9), successor(2, 9)), (3, 6, 3));
        assert_eq!(Step::successor(&[], 0, |_| true), None);
    }

    #[test]
    fn a_group_keeps_its_members_where_it_has_those_of_its_plan_or_later_ones() {
        let current = configuration(&plan([1, 2, 5], 5));
        assert_eq!(next_step(&state(&current), &plan([1, 2, 5], 5), ReplicaId(1)), Step::Done);
        assert_eq!(next_step(&state(&current), &plan([1, 2, 4], 4), ReplicaId(1)), Step::OldPlan);
        let has_had = GroupState { last_replica: ReplicaId(7), ..state(&current) };
        assert_eq!(next_step(&has_had, &plan([1, 2, 6], 6), ReplicaId(1)), Step::OldPlan);
    }

    #[test]
    fn a_replica_that_the_plan_has_no_more_asks_the_members_and_leaves_the_plan_once_deleted() {
        let before = plan([1, 2, 3], 3);
        assert_eq!(members_to_ask(&before, ReplicaId(3)), None);
        let members = plan([1, 2, 4], 4).members().to_vec();
        let after = before.replaced_by(members, ReplicaId(1), ReplicaId(4)).unwrap();
        assert_eq!(members_to_ask(&after, ReplicaId(3)).unwrap(), [1, 2, 4].map(ReplicaId));
        assert_eq!(without_deleted(&after, node(3), Some(ReplicaId(3))), after);
        assert_eq!(without_deleted(&after, node(1), Some(ReplicaId(1))), after);
        assert_eq!(without_deleted(&after, node(3), None).leaving(), []);
        assert_eq!(without_deleted(&after, node(3), Some(ReplicaId(5))).leaving(), []);
    }
}
