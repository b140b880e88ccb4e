use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::values::node::{Offers, Rack};
use replica::NodeId;

fn node(number: usize, offers: Offers, rack: usize) -> Candidate {
    let id = NodeId(Uuid::from_u128(number as u128));
    Candidate { id, offers, rack: Rack::parse(&format!("r{rack}")).unwrap() }
}

fn alike(nodes: usize, racks: usize) -> Vec<Candidate> {
    (0..nodes).map(|number| node(number, Offers::ALL, number % racks)).collect()
}

const BACKUP: Offers = Offers { primary: false, backup: true, witness: false };
const WITNESS: Offers = Offers { primary: false, backup: false, witness: true };
const PRIMARY: Offers = Offers { primary: true, backup: false, witness: false };

/// Number of the plans in which each node has a part that counts.
fn count(
    nodes: &[Candidate],
    plans: &[GroupPlan],
    counts: impl Fn(&GroupPlan, &Member) -> bool,
) -> Vec<usize> {
    let has = |node: &Candidate, plan: &&GroupPlan| {
        plan.member_on(node.id).is_some_and(|member| counts(plan, member))
    };
    nodes.iter().map(|node| plans.iter().filter(|plan| has(node, plan)).count()).collect()
}

fn spread(counts: &[usize]) -> usize {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

/// The most replicas of the group in one rack.
fn most_in_a_rack(nodes: &[Candidate], ids: impl Iterator<Item = NodeId>) -> usize {
    let mut racks = BTreeMap::new();
    for id in ids {
        let rack = &nodes.iter().find(|node| node.id == id).unwrap().rack;
        *racks.entry(rack).or_insert(0) += 1;
    }
    racks.into_values().max().unwrap()
}

/// True if some of the nodes of the set can have the roles of a group.
fn fits(nodes: &[&Candidate], copies: usize) -> bool {
    nodes.iter().any(|primary| {
        let rest = nodes.iter().filter(|node| node.id != primary.id);
        let backups_only = rest.clone().filter(|node| !node.offers.takes_witness()).count();
        let witnesses_only = rest.clone().filter(|node| !node.offers.backup).count();
        let none = rest.clone().any(|node| node.offers == Offers::default());
        primary.offers.primary && !none && backups_only <= copies && witnesses_only <= copies
    })
}

/// The smallest number of replicas of a group in one rack, over all sets of nodes that can be a group; `None` if there is no such set.
fn tightest_rack(nodes: &[Candidate], copies: usize) -> Option<usize> {
    let sets = (0_u32..1 << nodes.len()).filter(|set| set.count_ones() as usize == 2 * copies + 1);
    let members = |set: u32| -> Vec<&Candidate> {
        nodes.iter().enumerate().filter(|(at, _)| set & (1 << at) != 0).map(|(_, node)| node).collect()
    };
    let fitting = sets.map(members).filter(|set| fits(set, copies));
    fitting.map(|set| most_in_a_rack(nodes, set.iter().map(|node| node.id))).min()
}

fn check_roles(nodes: &[Candidate], plan: &GroupPlan, copies: usize) {
    assert_eq!(plan.copies(), copies);
    for member in plan.members() {
        let offers = nodes.iter().find(|node| node.id == member.node).unwrap().offers;
        match member.role {
            Role::Backup => assert!(offers.backup),
            Role::Witness if member.replica == plan.preferred() => assert!(offers.primary),
            Role::Witness => assert!(offers.takes_witness()),
        }
    }
}

proptest! {
    #[test]
    fn offices_replicas_and_backups_are_even_over_nodes_that_offer_everything(
        copies in 1..=3_usize, more in 0..8_usize, groups in 1..60_u32,
    ) {
        let nodes = alike(2 * copies + 1 + more, 1);
        let plans = place(&nodes, groups, copies).unwrap();
        plans.iter().for_each(|plan| check_roles(&nodes, plan, copies));
        let offices = count(&nodes, &plans, |plan, member| member.replica == plan.preferred());
        prop_assert!(spread(&offices) <= 1, "offices {offices:?}");
        let replicas = count(&nodes, &plans, |_, _| true);
        prop_assert!(spread(&replicas) <= 1, "replicas {replicas:?}");
        let backups = count(&nodes, &plans, |_, member| member.role == Role::Backup);
        prop_assert!(spread(&backups) <= 2, "backups {backups:?}");
    }

    #[test]
    fn racks_of_one_size_do_not_make_offices_or_replicas_uneven(
        copies in 1..=2_usize, racks in 2..6_usize, size in 1..4_usize, groups in 1..40_u32,
    ) {
        let nodes = alike(racks * size, racks);
        prop_assume!(nodes.len() > 2 * copies);
        let plans = place(&nodes, groups, copies).unwrap();
        let limit = (2 * copies + 1).div_ceil(racks);
        for plan in &plans {
            check_roles(&nodes, plan, copies);
            prop_assert!(most_in_a_rack(&nodes, plan.members().iter().map(|member| member.node)) <= limit);
        }
        let offices = count(&nodes, &plans, |plan, member| member.replica == plan.preferred());
        prop_assert!(spread(&offices) <= 1, "offices {offices:?}");
        let replicas = count(&nodes, &plans, |_, _| true);
        prop_assert!(spread(&replicas) <= 1, "replicas {replicas:?}");
    }

    #[test]
    fn any_offers_and_racks_give_plans_of_fitting_nodes_with_the_fewest_replicas_in_a_rack_or_an_error_where_there_are_none(
        nodes in prop::collection::vec((any::<[bool; 3]>(), 0..4_usize), 0..10),
        copies in 1..=2_usize,
        groups in 1..12_u32,
    ) {
        let nodes: Vec<Candidate> = nodes.into_iter().enumerate().map(|(number, ([primary, backup, witness], rack))| {
            node(number, Offers { primary, backup, witness }, rack)
        }).collect();
        let tightest = tightest_rack(&nodes, copies);
        let placed = place(&nodes, groups, copies);
        prop_assert_eq!(placed.is_ok(), tightest.is_some(), "{:?}", placed);
        let Ok(plans) = placed else { return Ok(()) };
        prop_assert_eq!(plans.len(), groups as usize);
        for plan in &plans {
            check_roles(&nodes, plan, copies);
            let ids = plan.members().iter().map(|member| member.node);
            prop_assert_eq!(most_in_a_rack(&nodes, ids), tightest.unwrap());
        }
        let reversed: Vec<Candidate> = nodes.iter().rev().cloned().collect();
        prop_assert_eq!(&place(&reversed, groups, copies).unwrap(), &plans);
    }
}

#[test]
fn replicas_are_even_over_nodes_of_each_role_where_each_node_offers_one() {
    let mut nodes: Vec<Candidate> = (0..3).map(|number| node(number, PRIMARY, 0)).collect();
    nodes.extend((3..8).map(|number| node(number, BACKUP, 0)));
    nodes.extend((8..12).map(|number| node(number, WITNESS, 0)));
    let plans = place(&nodes, 17, 2).unwrap();
    let replicas = count(&nodes, &plans, |_, _| true);
    assert!(spread(&replicas[3..8]) <= 1, "{replicas:?}");
    assert!(spread(&replicas[..3]) <= 1, "{replicas:?}");
    assert!(spread(&replicas[8..]) <= 1, "{replicas:?}");
}

#[test]
fn the_error_says_how_many_nodes_are_lacking() {
    let message = |nodes: &[Candidate], copies| place(nodes, 4, copies).unwrap_err().to_string();
    assert_eq!(message(&alike(4, 1), 2), "5 nodes are needed for K = 2, 4 joined");
    assert_eq!(message(&[], 1), "3 nodes are needed for K = 1, 0 joined");
    let of = |offers: &[Offers]| -> Vec<Candidate> {
        offers.iter().enumerate().map(|(number, offers)| node(number, *offers, 0)).collect()
    };
    assert_eq!(
        message(&of(&[WITNESS, BACKUP, WITNESS]), 1),
        "1 nodes that offer primary are needed for K = 1, 0 joined"
    );
    assert_eq!(
        message(&of(&[PRIMARY, WITNESS, WITNESS]), 1),
        "1 nodes that offer backup are needed for K = 1, 0 joined"
    );
    assert_eq!(
        message(&of(&[PRIMARY, BACKUP, BACKUP]), 1),
        "2 nodes that offer primary or witness are needed for K = 1, 1 joined"
    );
    let both = Offers { witness: false, ..Offers::ALL };
    assert_eq!(
        message(&of(&[both, WITNESS, WITNESS]), 1),
        "the 3 nodes that joined cannot take the roles of a group with K = 1 without two roles on one node"
    );
    assert_eq!(message(&alike(3, 1), 0), "K must be 1 to 7, not 0");
    assert!(place(&alike(3, 1), 0, 1).is_err() && place(&alike(3, 1), 1025, 1).is_err());
}

#[test]
fn a_node_that_is_named_twice_counts_once() {
    let mut nodes = alike(4, 1);
    nodes.push(nodes[0].clone());
    assert!(place(&nodes, 1, 2).is_err());
}

#[test]
fn a_thousand_groups_on_thirty_nodes_are_even() {
    let nodes = alike(30, 5);
    let plans = place(&nodes, 1024, 2).unwrap();
    assert!(spread(&count(&nodes, &plans, |_, _| true)) <= 1);
    let groups: BTreeSet<_> = plans.iter().map(GroupPlan::preferred).collect();
    assert_eq!(groups.len(), 1);
}
