//! Evens out how many replicas each node has.

use std::collections::VecDeque;

use super::candidates::{Candidates, Shape};

/// The nodes of each group, by number; the first one holds the office.
pub(super) type NodeSets = Vec<Vec<usize>>;

/// One replica of a group that moves from a node to another one.
#[derive(Clone, Copy, Debug)]
struct Move {
    group: usize,
    from: usize,
    to: usize,
}

/// Number of replicas of each node.
pub(super) fn loads(candidates: &Candidates, sets: &NodeSets) -> Vec<usize> {
    let mut loads = vec![0; candidates.len()];
    for node in sets.iter().flatten() {
        if let Some(load) = loads.get_mut(*node) {
            *load += 1;
        }
    }
    loads
}

/// Moves replicas, holders of the office apart, until no chain of moves leads from a node to one with at least two replicas fewer.
///
/// A chain moves a replica from its first node to its second, another group's from the second to the third, and so on: only the first and the last node's numbers change. Each chain lowers the sum of the
/// squares of these numbers, so that there is an end.
pub(super) fn even_out(candidates: &Candidates, shape: Shape, sets: &mut NodeSets) {
    'again: loop {
        let loads = loads(candidates, sets);
        let mut nodes: Vec<usize> = (0..loads.len()).collect();
        let load = |node: usize| loads.get(node).copied().unwrap_or_default();
        nodes.sort_by_key(|node| (usize::MAX - load(*node), *node));
        for from in nodes {
            for chain in chains(candidates, shape, sets, from, |to| load(to) + 2 <= load(from)) {
                if apply(candidates, shape, sets, &chain) {
                    continue 'again;
                }
            }
        }
        return;
    }
}

/// A shortest chain of moves to each node that is an `end`, the shortest ones first.
fn chains(
    candidates: &Candidates,
    shape: Shape,
    sets: &NodeSets,
    start: usize,
    end: impl Fn(usize) -> bool,
) -> Vec<Vec<Move>> {
    if !(0..candidates.len()).any(&end) {
        return Vec::new();
    }
    let mut came_by: Vec<Option<Move>> = vec![None; candidates.len()];
    let mut queue = VecDeque::from([start]);
    let mut ends = Vec::new();
    while let Some(from) = queue.pop_front() {
        for (group, set) in sets.iter().enumerate() {
            if !set.iter().skip(1).any(|node| *node == from) {
                continue;
            }
            for (to, slot) in came_by.iter_mut().enumerate() {
                if to == start || slot.is_some() || candidates.kind(to).is_none() {
                    continue;
                }
                let step = Move { group, from, to };
                if moved(candidates, shape, set, step).is_some() {
                    *slot = Some(step);
                    queue.push_back(to);
                    if end(to) {
                        ends.push(to);
                    }
                }
            }
        }
    }
    let chain = |end: usize| {
        let mut chain = Vec::new();
        let mut at = end;
        while let Some(step) = came_by.get(at).copied().flatten() {
            chain.push(step);
            at = step.from;
        }
        chain
    };
    ends.into_iter().map(chain).collect()
}

/// Makes the moves of a chain, the last one first. Changes nothing and gives false where a move is not possible any more because of another one of the same group.
fn apply(candidates: &Candidates, shape: Shape, sets: &mut NodeSets, chain: &[Move]) -> bool {
    let mut changed = sets.clone();
    for step in chain {
        let Some(set) = changed.get_mut(step.group) else { return false };
        let Some(moved) = moved(candidates, shape, set, *step) else { return false };
        *set = moved;
    }
    *sets = changed;
    true
}

/// The set after the move, if that is one of the shape.
fn moved(candidates: &Candidates, shape: Shape, set: &[usize], step: Move) -> Option<Vec<usize>> {
    if set.contains(&step.to) {
        return None;
    }
    let mut set = set.to_vec();
    let place = set.iter_mut().skip(1).find(|node| **node == step.from)?;
    *place = step.to;
    shape.holds(candidates, &set).then_some(set)
}
