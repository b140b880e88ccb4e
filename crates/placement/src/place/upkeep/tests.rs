use replica::{Configuration, Index, Role, Term, Version};
use uuid::Uuid;

use super::*;
use crate::address::Address;
use crate::names::{Epoch, Revision};
use crate::place::place;
use crate::values::drain::Drain;
use crate::values::liveness::Liveness;
use crate::values::meta::Meta;
use crate::values::node::{Node, Offers, Rack};
use crate::values::seen::Seen;
use crate::values::slot_map::SlotMap;

const GROUP: GroupId = GroupId(0);

fn id(number: u128) -> NodeId {
    NodeId(Uuid::from_u128(number))
}

fn node(number: u128) -> Node {
    let address = |port: u128| Address::parse(&format!("127.0.0.1:{}", port + number)).unwrap();
    Node {
        peer: address(7000),
        client: address(6000),
        offers: Offers::ALL,
        rack: Rack::parse("r").unwrap(),
        starts: 1,
        speaks: Version::NEWEST,
    }
}

/// A cluster of four nodes that are alive, and one group on the first three of them, whose log has its first members.
fn cluster() -> ClusterView {
    let nodes: BTreeMap<NodeId, Node> = (1..=4).map(|number| (id(number), node(number))).collect();
    let candidates: Vec<Candidate> =
        nodes.iter().take(3).map(|(id, node)| Candidate::new(*id, node)).collect();
    let plan = place(&candidates, 1, 1).unwrap().remove(0);
    let cluster = replica::ClusterId(Uuid::from_u128(77));
    let mut view = ClusterView {
        revision: Revision(9),
        meta: Meta::new(cluster, 1, 1).unwrap(),
        alive: nodes.keys().map(|id| (*id, Liveness { starts: 1 })).collect(),
        nodes,
        draining: BTreeMap::new(),
        want: BTreeMap::from([(GROUP, Want { plan, changed: Revision(8) })]),
        seen: BTreeMap::new(),
        slots: SlotMap::even(1),
        placer: None,
    };
    follow(&mut view);
    view
}

/// The group's log has the members of the plan.
fn follow(view: &mut ClusterView) {
    let plan = view.want[&GROUP].plan.clone();
    let members = plan.members().iter().map(|member| (member.replica, member.role));
    let index = view.seen.get(&GROUP).map_or(1, |seen| seen.index.0 + 1);
    let seen = Seen {
        configuration: Configuration::new(members),
        index: Index(index),
        term: Term(1),
        leader: Some(ReplicaId(1)),
        version: Version::LAST_REPLICA,
        last_replica: plan.last_replica(),
        nodes: plan.members().iter().map(|member| (member.replica, member.node)).collect(),
        epoch: view.meta.epoch(),
    };
    view.seen.insert(GROUP, seen);
}

fn set_plan(view: &mut ClusterView, plan: GroupPlan) {
    view.want.insert(GROUP, Want { plan, changed: Revision(8) });
}

#[test]
fn a_cluster_without_dead_and_draining_nodes_needs_nothing() {
    assert_eq!(upkeep(&cluster(), &BTreeSet::new()), Upkeep::default());
}

#[test]
fn a_replica_on_a_dead_node_is_replaced_and_leaves() {
    let view = cluster();
    let needed = upkeep(&view, &BTreeSet::from([id(3)]));
    let plan = &needed.plans[&GROUP];
    let old = view.want[&GROUP].plan.member_on(id(3)).unwrap();
    let new = plan.member_on(id(4)).unwrap();
    assert_eq!((new.role, new.replica, plan.leaving()), (old.role, ReplicaId(4), &[*old][..]));
    assert!(needed.removed.is_empty() && needed.lacking.is_empty());
    let both = upkeep(&view, &BTreeSet::from([id(3), id(4)]));
    assert!(both.plans.is_empty());
    assert_eq!(both.lacking.len(), 1);
}

#[test]
fn a_draining_node_gets_no_replica_and_loses_those_that_it_has() {
    let mut view = cluster();
    view.draining.insert(id(4), Drain { is_last: false });
    assert_eq!(upkeep(&view, &BTreeSet::from([id(3)])).lacking.len(), 1);
    view.draining = BTreeMap::from([(id(2), Drain { is_last: false })]);
    let plan = &upkeep(&view, &BTreeSet::new()).plans[&GROUP];
    assert!(plan.member_on(id(2)).is_none() && plan.member_on(id(4)).is_some());
}

#[test]
fn a_node_that_is_gone_for_good_is_removed_once_its_group_has_left_it() {
    let mut view = cluster();
    view.draining.insert(id(3), Drain { is_last: true });
    let plan = upkeep(&view, &BTreeSet::new()).plans.remove(&GROUP).unwrap();
    set_plan(&mut view, plan.clone());
    view.alive.remove(&id(3));
    // The group's log has the replica still.
    assert_eq!(upkeep(&view, &BTreeSet::new()), Upkeep::default());
    follow(&mut view);
    let needed = upkeep(&view, &BTreeSet::new());
    assert_eq!((needed.removed, needed.plans.is_empty()), (vec![id(3)], true));
    view.alive.insert(id(3), Liveness { starts: 2 });
    assert_eq!(upkeep(&view, &BTreeSet::new()), Upkeep::default());
    view.alive.remove(&id(3));
    view.nodes.remove(&id(3));
    view.draining.clear();
    let forgotten = &upkeep(&view, &BTreeSet::new()).plans[&GROUP];
    assert_eq!((forgotten.members(), forgotten.leaving()), (plan.members(), &[][..]));
}

#[test]
fn a_node_that_was_drained_stays_in_the_cluster() {
    let mut view = cluster();
    view.draining.insert(id(4), Drain { is_last: false });
    view.alive.remove(&id(4));
    assert_eq!(upkeep(&view, &BTreeSet::new()), Upkeep::default());
    view.draining.insert(id(4), Drain { is_last: true });
    assert_eq!(upkeep(&view, &BTreeSet::new()).removed, [id(4)]);
    assert_eq!(view.want[&GROUP].plan.members().iter().filter(|of| of.role == Role::Backup).count(), 1);
}

#[test]
fn a_plan_of_an_old_backup_gives_way_to_what_the_log_says_once_its_leader_has_written() {
    let mut view = cluster();
    for number in [5, 6] {
        view.nodes.insert(id(number), node(number));
        view.alive.insert(id(number), Liveness { starts: 1 });
    }
    let old = view.want[&GROUP].plan.clone();
    // Replica 3 was replaced, and what took its place as well.
    for dead in [3, 4] {
        let plan = upkeep(&view, &BTreeSet::from([id(dead)])).plans.remove(&GROUP).unwrap();
        set_plan(&mut view, plan);
        follow(&mut view);
    }
    let before = view.want[&GROUP].plan.clone();
    let log = view.seen[&GROUP].clone();
    assert_eq!((before.last_replica(), before.leaving().len()), (ReplicaId(5), 2));
    // Etcd is restored, and the epoch raised: node 1 dies before the group's leader has written.
    set_plan(&mut view, old.clone());
    view.seen.insert(GROUP, Seen { epoch: Epoch(1), last_replica: ReplicaId(3), ..log.clone() });
    view.meta = view.meta.with_epoch(Epoch(2));
    assert_eq!(upkeep(&view, &BTreeSet::from([id(1)])), Upkeep::default());
    view.seen.insert(GROUP, Seen { epoch: Epoch(2), ..log.clone() });
    let mended = upkeep(&view, &BTreeSet::new()).plans.remove(&GROUP).unwrap();
    assert_eq!((mended.members(), mended.last_replica()), (before.members(), ReplicaId(5)));
    assert_eq!(mended.preferred(), old.preferred());
    let goes: Vec<ReplicaId> = mended.leaving().iter().map(|member| member.replica).collect();
    let left: Vec<ReplicaId> = old
        .members()
        .iter()
        .map(|member| member.replica)
        .filter(|replica| before.member(*replica).is_none())
        .collect();
    assert_eq!(goes, left);
    // With a node to replace the new replica has a number above all.
    let replaced = upkeep(&view, &BTreeSet::from([id(1)])).plans.remove(&GROUP).unwrap();
    assert_eq!(replaced.last_replica(), ReplicaId(6));
    // The node of a member is not known: the member is replaced, where there is a free node.
    let (unknown, _) = log.nodes.last_key_value().unwrap();
    let mut nodes = log.nodes.clone();
    nodes.remove(unknown);
    view.seen.insert(GROUP, Seen { epoch: Epoch(2), nodes: nodes.clone(), ..log.clone() });
    let replaced = upkeep(&view, &BTreeSet::new()).plans.remove(&GROUP).unwrap();
    let kept = |plan: &GroupPlan| nodes.keys().all(|replica| plan.member(*replica).is_some());
    assert!(kept(&replaced) && replaced.member(ReplicaId(6)).is_some(), "{replaced:?}");
    assert!(replaced.replicas().all(|member| view.nodes.contains_key(&member.node)), "{replaced:?}");
    view.alive.clear();
    let none = upkeep(&view, &BTreeSet::new());
    assert!(none.plans.is_empty() && none.lacking.len() == 1, "{none:?}");
    // Two members are on one node: the group goes on from its voters.
    let learner = (ReplicaId(7), Role::Witness);
    let configuration = log.configuration.clone().with_learners([learner]);
    let mut nodes = log.nodes.clone();
    nodes.insert(learner.0, *log.nodes.values().next().unwrap());
    let last_replica = learner.0;
    set_plan(&mut view, replaced);
    view.seen.insert(GROUP, Seen { epoch: Epoch(2), configuration, nodes, last_replica, ..log });
    let from_voters = upkeep(&view, &BTreeSet::new()).plans.remove(&GROUP).unwrap();
    assert_eq!((from_voters.members(), from_voters.last_replica()), (before.members(), ReplicaId(7)));
}
