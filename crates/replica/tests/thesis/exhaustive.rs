//! Every order of steps of a small group: one backup and one witness beside the first one (K = 1), two updates, two elections.

use replica::{BrokenRule, Role};
use stateright::{Checker, Model, Property};

use crate::model::{Group, Rules, Step};

/// The bounds of an exploration.
struct SmallGroup {
    rules: Rules,
    updates: usize,
    /// The last term in which a replica may be elected. The first leader leads in term 1.
    last_term: u64,
}

const K: usize = 1;
const REPLICAS: usize = 2 * K + 1;

impl Model for SmallGroup {
    type State = Group;
    type Action = Step;

    fn init_states(&self) -> Vec<Group> {
        vec![Group::new(K, self.rules)]
    }

    fn actions(&self, group: &Group, steps: &mut Vec<Step>) {
        if group.term() < self.last_term {
            for candidate in 0..REPLICAS {
                let others: Vec<usize> = (0..REPLICAS).filter(|id| *id != candidate).collect();
                steps.extend(others.iter().map(|voter| Step::Elect(candidate, vec![*voter])));
                steps.push(Step::Elect(candidate, others));
            }
        }
        for leader in group.leaders() {
            let next = group.updates() + 1;
            if next <= self.updates {
                steps.push(Step::Append(leader, u32::try_from(next).expect("few updates")));
            }
            steps.push(Step::Commit(leader));
            for other in (0..REPLICAS).filter(|id| *id != leader) {
                steps.extend([Step::Send(leader, other), Step::Relieve(leader, other)]);
                if group.role(other) == Role::Backup {
                    steps.push(Step::Pull(leader, other));
                }
            }
        }
        let witnesses = (0..REPLICAS).filter(|id| group.role(*id) == Role::Witness);
        steps.extend(witnesses.map(Step::DropValues));
    }

    fn next_state(&self, group: &Group, step: Step) -> Option<Group> {
        let mut next = group.clone();
        next.apply(&step);
        (next != *group).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always("each acknowledged update has K + 1 copies", |_, group: &Group| {
            !group.is_at_risk(K)
        })]
    }
}

/// Number of states, and the steps to a loss if there is one.
fn explore(rules: Rules) -> (usize, Option<Vec<Step>>) {
    let checker = SmallGroup { rules, updates: 2, last_term: 3 }.checker().threads(2).spawn_bfs().join();
    let loss = checker.discoveries().into_values().next();
    (checker.unique_state_count(), loss.map(|path| path.into_actions()))
}

#[test]
fn no_order_of_steps_loses_an_acknowledged_update() {
    let (states, loss) = explore(Rules::FURROW);
    println!("{states} states");
    assert_eq!(loss, None);
    assert!(states > 10_000, "{states} states");
}

#[test]
fn a_broken_rule_is_found_with_the_shortest_trace() {
    for rule in [BrokenRule::LeaderOfTheMoment, BrokenRule::DropAtCommit, BrokenRule::Unrelieved] {
        let (states, loss) = explore(Rules { broken: Some(rule), ..Rules::FURROW });
        let steps = loss.unwrap_or_else(|| panic!("{rule:?} was not found in {states} states"));
        println!("{rule:?}: {} steps, {states} states: {steps:?}", steps.len());
    }
}
