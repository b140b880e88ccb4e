//! Random walks of a group under Furrow's rules: no acknowledged update is ever in fewer than K + 1 places, and no leader's log lacks one. The same walks find the loss under a rule that is one step away.

use replica::BrokenRule;
use units::SplitMix64;

use crate::model::{Drop, Group, LogOrder, Replica, Rules, Step};

/// Steps of one walk.
const STEPS: u32 = 60;
const WALKS: u64 = 20_000;

/// Draws numbers below a bound.
struct Chance(SplitMix64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.draw() % bound as u64).expect("below the bound")
    }
}

/// A step of a group of `k` backups and `k` witnesses beside the first one, in which anybody may stand at any time.
fn draw(chance: &mut Chance, group: &Group, k: usize, number: u32) -> Option<Step> {
    let replicas = 2 * k + 1;
    let id: Replica = chance.below(replicas);
    let leaders = group.leaders();
    let place = chance.below(leaders.len().max(1));
    let leader = leaders.get(place).copied();
    let kind = chance.below(12);
    if kind == 0 {
        let voters = (0..replicas).filter(|voter| *voter != id && chance.below(4) > 0).collect();
        return Some(Step::Elect(id, voters));
    }
    match (kind, leader) {
        (1 | 2, Some(leader)) => Some(Step::Append(leader, number)),
        (3..=7, Some(leader)) if leader != id => Some(Step::Send(leader, id)),
        (8, Some(leader)) => Some(Step::Commit(leader)),
        (9, _) if group.role(id) == replica::Role::Witness => Some(Step::DropValues(id)),
        (10, Some(leader)) => Some(Step::Pull(leader, 1 + chance.below(k))),
        (11, Some(leader)) => Some(Step::Relieve(leader, id)),
        _ => None,
    }
}

/// The steps of a walk up to the one after which an acknowledged update was at risk.
fn losing_walk(k: usize, rules: Rules, seed: u64) -> Option<Vec<Step>> {
    let mut chance = Chance(SplitMix64::new(seed));
    let mut group = Group::new(k, rules);
    let mut steps = Vec::new();
    for number in 1..=STEPS {
        if let Some(step) = draw(&mut chance, &group, k, number) {
            group.apply(&step);
            steps.push(step);
        }
        if group.is_at_risk(k) {
            return Some(steps);
        }
    }
    None
}

#[test]
fn no_walk_loses_an_acknowledged_update() {
    for k in [1, 2] {
        let lost = (0..WALKS).find_map(|seed| losing_walk(k, Rules::FURROW, seed));
        assert_eq!(lost, None, "{k}");
    }
}

#[test]
fn walks_with_a_broken_rule_lose() {
    let broken = |rule| Rules { broken: Some(rule), ..Rules::FURROW };
    for k in [1, 2] {
        for rules in [
            Rules { drop: Drop::AtCommit, ..Rules::FURROW },
            Rules { drop: Drop::WithLeaderOfTheMoment, ..Rules::FURROW },
            Rules { order: LogOrder::Index, ..Rules::FURROW },
            broken(BrokenRule::LeaderOfTheMoment),
            broken(BrokenRule::DropAtCommit),
            broken(BrokenRule::Unrelieved),
        ] {
            let lost = (0..WALKS).find_map(|seed| losing_walk(k, rules, seed));
            assert!(lost.is_some(), "{k}, {rules:?}");
        }
    }
}
