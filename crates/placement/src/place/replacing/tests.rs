use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::place::first::place;
use crate::values::node::Rack;

fn node(number: usize, offers: Offers, rack: usize) -> Candidate {
    Candidate { id: id(number), offers, rack: Rack::parse(&format!("r{rack}")).unwrap() }
}

fn id(number: usize) -> NodeId {
    NodeId(Uuid::from_u128(number as u128))
}

fn ids(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<NodeId> {
    numbers.into_iter().map(id).collect()
}

fn plans(nodes: &[Candidate], groups: u32, copies: usize) -> BTreeMap<GroupId, GroupPlan> {
    (0..).map(GroupId).zip(place(nodes, groups, copies).unwrap()).collect()
}

/// A plan of members `(replica, node, role)`, with replica 1 as the preferred first primary.
fn plan(members: &[(u64, usize, Role)]) -> BTreeMap<GroupId, GroupPlan> {
    let members = members.iter().map(|(replica, node, role)| Member {
        replica: ReplicaId(*replica),
        node: id(*node),
        role: *role,
    });
    BTreeMap::from([(GroupId(0), GroupPlan::new(members.collect(), ReplicaId(1), ReplicaId(9)).unwrap())])
}

use Role::{Backup, Witness};

const WITNESS: Offers = Offers { primary: false, backup: false, witness: true };

proptest! {
    #[test]
    fn only_replicas_on_dead_nodes_are_replaced_by_new_numbers_on_live_nodes_of_fitting_offers(
        offers in prop::collection::vec((any::<[bool; 3]>(), 0..3_usize, 0..3_u8), 0..7),
        copies in 1..=2_usize,
        groups in 1..8_u32,
    ) {
        let count = 2 * copies + 1;
        let mut nodes: Vec<Candidate> = (0..count).map(|number| node(number, Offers::ALL, number)).collect();
        let before = plans(&nodes, groups, copies);
        nodes.extend(offers.iter().enumerate().map(|(at, ([primary, backup, witness], rack, _))| {
            node(count + at, Offers { primary: *primary, backup: *backup, witness: *witness }, *rack)
        }));
        // Of the nodes with replicas those at the begin are dead, live or neither, as the new nodes' last number says.
        let state = |number: usize| offers.get(number % offers.len().max(1)).map_or(0, |offer| offer.2);
        let dead = ids((0..count).filter(|number| state(*number) == 0));
        let live = ids((0..nodes.len()).filter(|number| *number >= count || state(*number) == 1));
        let replacements = replace(&before, &nodes, &dead, &live);
        for (group, plan) in &before {
            let after = replacements.changed.get(group).unwrap_or(plan);
            let offers = |member: &Member| nodes.iter().find(|node| node.id == member.node).unwrap().offers;
            for member in plan.members().iter().filter(|member| !dead.contains(&member.node)) {
                prop_assert_eq!(after.member(member.replica), Some(member));
            }
            let new: Vec<&Member> =
                after.members().iter().filter(|member| plan.member(member.replica).is_none()).collect();
            for member in &new {
                prop_assert!(member.replica > plan.last_replica());
                prop_assert!(live.contains(&member.node) && !dead.contains(&member.node));
                match member.role {
                    Backup => prop_assert!(offers(member).backup),
                    Witness => prop_assert!(offers(member).takes_witness()),
                }
            }
            prop_assert_eq!(after.last_replica().0, plan.last_replica().0 + new.len() as u64);
            prop_assert_eq!(after.copies(), copies);
            let lacking = after.members().iter().filter(|member| dead.contains(&member.node)).count();
            let errors = replacements.lacking.iter().filter(|error| {
                matches!(error, PlaceError::NoReplacement { group: of, .. } if of == group)
            });
            prop_assert_eq!(errors.count(), lacking);
            // A replica that stays on a dead node has no node that could take it.
            for member in after.members().iter().filter(|member| dead.contains(&member.node)) {
                let takes = |offers: Offers| match member.role {
                    Backup => offers.backup,
                    Witness => offers.takes_witness(),
                };
                let free = nodes.iter().filter(|node| live.contains(&node.id) && after.member_on(node.id).is_none());
                prop_assert!(!free.into_iter().any(|node| takes(node.offers)));
            }
            // The preferred first primary is on a node that offers it, wherever a witness is on such a node.
            let witnesses = || after.members().iter().filter(|member| member.role == Witness && !dead.contains(&member.node));
            let preferred = after.member(after.preferred()).unwrap();
            if witnesses().any(|member| offers(member).primary) {
                prop_assert!(offers(preferred).primary && !dead.contains(&preferred.node));
            }
            // Where no witness is on a node that offers it, no new one could be.
            if !witnesses().any(|member| offers(member).primary) && new.iter().any(|member| member.role == Witness) {
                let free = nodes.iter().filter(|node| live.contains(&node.id) && plan.member_on(node.id).is_none());
                prop_assert!(!free.into_iter().any(|node| node.offers.primary));
            }
        }
        prop_assert_eq!(replace(&before, &nodes, &BTreeSet::new(), &live), Replacements::default());
    }
}

#[test]
fn the_best_node_is_in_another_rack_and_has_the_fewest_replicas() {
    let nodes: Vec<Candidate> =
        [0, 1, 2, 0, 2, 3, 3].into_iter().enumerate().map(|(at, rack)| node(at, Offers::ALL, rack)).collect();
    let group = plan(&[(1, 0, Witness), (2, 1, Backup), (3, 2, Witness)]);
    let mut all = group.clone();
    let elsewhere = [(1, 5, Witness), (2, 3, Backup), (3, 4, Witness)];
    all.insert(GroupId(1), plan(&elsewhere).remove(&GroupId(0)).unwrap());
    let changed = replace(&all, &nodes, &ids([1]), &ids([0, 2, 3, 4, 5, 6])).changed;
    let after = &changed[&GroupId(0)];
    assert_eq!(after.members().last(), Some(&Member { replica: ReplicaId(10), node: id(6), role: Backup }));
    assert_eq!((after.preferred(), after.last_replica(), changed.len()), (ReplicaId(1), ReplicaId(10), 1));
}

#[test]
fn a_witness_that_can_be_primary_takes_over_the_preference_else_a_new_one_gets_such_a_node() {
    let group = plan(&[(1, 0, Witness), (2, 1, Backup), (3, 2, Witness)]);
    let nodes = |third: Offers| {
        vec![
            node(0, Offers::ALL, 0),
            node(1, Offers::ALL, 0),
            node(2, third, 0),
            node(3, WITNESS, 1),
            node(4, Offers::ALL, 0),
        ]
    };
    let after =
        |third| replace(&group, &nodes(third), &ids([0]), &ids(1..5)).changed.remove(&GroupId(0)).unwrap();
    let stays = after(Offers::ALL);
    assert_eq!((stays.preferred(), stays.member(ReplicaId(10)).unwrap().node), (ReplicaId(3), id(3)));
    let new = after(WITNESS);
    assert_eq!((new.preferred(), new.member(ReplicaId(10)).unwrap().node), (ReplicaId(10), id(4)));
}

#[test]
fn a_node_that_alone_takes_backups_is_not_given_to_a_witness() {
    let group = plan(&[(1, 0, Witness), (2, 1, Backup), (3, 2, Witness)]);
    let mut nodes: Vec<Candidate> = (0..3).map(|number| node(number, Offers::ALL, 0)).collect();
    nodes.extend([node(3, Offers::ALL, 1), node(4, WITNESS, 0)]);
    let replacements = replace(&group, &nodes, &ids([1, 2]), &ids([0, 3, 4]));
    let after = &replacements.changed[&GroupId(0)];
    assert_eq!(replacements.lacking, []);
    assert_eq!(
        (after.member_on(id(3)).unwrap().role, after.member_on(id(4)).unwrap().role),
        (Backup, Witness)
    );
}

#[test]
fn where_one_node_is_free_for_two_replicas_the_backup_gets_it_and_the_error_names_the_witness() {
    let group = plan(&[(1, 0, Witness), (2, 1, Backup), (3, 2, Witness)]);
    let nodes: Vec<Candidate> = (0..4).map(|number| node(number, Offers::ALL, 0)).collect();
    let replacements = replace(&group, &nodes, &ids([1, 2]), &ids([0, 3]));
    assert_eq!(replacements.changed[&GroupId(0)].member_on(id(3)).unwrap().role, Backup);
    let message = replacements.lacking[0].to_string();
    assert!(message.contains("the place of replica 3 (witness) on node 00000000-"), "{message}");
}
