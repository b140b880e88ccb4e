//! The first plans of all groups.

use replica::{ReplicaId, Role};

use super::candidates::{Candidate, Candidates, Kind, Shape};
use super::even::{NodeSets, even_out, loads};
use crate::error::PlaceError;
use crate::names::MAX_GROUPS;
use crate::values::meta::MAX_COPIES;
use crate::values::plan::{GroupPlan, Member};

/// Places `groups` groups, each of K = `copies` backups and K + 1 witnesses, on nodes. The plans are a function of the arguments alone, whatever the order of `nodes`.
///
/// The rules of the placement, each as far as those before allow:
/// 1. The replicas of a group are on nodes of their own that offer their roles: `backup` for a backup, `primary` or `witness` for a witness, `primary` for the preferred first primary.
/// 2. The loss of any one rack takes as few replicas of a group as possible.
/// 3. The numbers of offices of two nodes that can have one differ by 1 at most.
/// 4. The numbers of replicas of all nodes are even: no chain of moves makes them more so.
/// 5. The numbers of backups are even: each group's backups go to those of its nodes that have the fewest.
///
/// # Errors
/// [`PlaceError`] says how many nodes, or nodes with an offer, are lacking; [`PlaceError::Limit`] for K outside 1 to 7, more than 1,024 groups or none.
pub fn place(nodes: &[Candidate], groups: u32, copies: usize) -> Result<Vec<GroupPlan>, PlaceError> {
    if !(1..=MAX_COPIES).contains(&copies) {
        return Err(PlaceError::Limit { what: "K", least: 1, most: MAX_COPIES as u64, found: copies as u64 });
    }
    if !(1..=MAX_GROUPS).contains(&groups) {
        let (most, found) = (MAX_GROUPS.into(), groups.into());
        return Err(PlaceError::Limit { what: "the number of groups", least: 1, most, found });
    }
    let candidates = Candidates::new(nodes);
    let (shape, holders) = Shape::tightest(&candidates, copies)?;
    let mut sets = NodeSets::new();
    for holder in holders.iter().cycle().take(groups as usize) {
        sets.push(vec![*holder]);
    }
    fill(&candidates, shape, &mut sets);
    even_out(&candidates, shape, &mut sets);
    let mut backups = vec![0; candidates.len()];
    Ok(sets.iter().map(|set| plan(&candidates, copies, set, &mut backups)).collect())
}

/// Adds nodes to each set until the groups are whole: the ones with the fewest replicas first.
fn fill(candidates: &Candidates, shape: Shape, sets: &mut NodeSets) {
    let mut loads = loads(candidates, sets);
    for set in sets {
        while set.len() < 2 * shape.copies + 1 {
            let mut free: Vec<usize> = (0..candidates.len())
                .filter(|node| !set.contains(node) && candidates.kind(*node).is_some())
                .collect();
            free.sort_by_key(|node| (loads.get(*node).copied(), *node));
            let next = free.into_iter().find(|node| {
                let with = [set.as_slice(), &[*node]].concat();
                shape.can_be_filled(candidates, &with)
            });
            let next = next.expect("a set that can be filled has a node to be filled with");
            set.push(next);
            if let Some(load) = loads.get_mut(next) {
                *load += 1;
            }
        }
    }
}

/// The plan of a group on these nodes, the first of which holds the office. `backups`: the number of backups that each node has so far.
fn plan(candidates: &Candidates, copies: usize, set: &[usize], backups: &mut [usize]) -> GroupPlan {
    let rest = set.get(1..).unwrap_or_default();
    let of_kind = |kind| rest.iter().copied().filter(move |node| candidates.kind(*node) == Some(kind));
    let mut chosen: Vec<usize> = of_kind(Kind::BackupOnly).collect();
    let mut either: Vec<usize> = of_kind(Kind::Either).collect();
    either.sort_by_key(|node| (backups.get(*node).copied(), *node));
    chosen.extend(either.into_iter().take(copies - chosen.len()));
    for node in &chosen {
        if let Some(count) = backups.get_mut(*node) {
            *count += 1;
        }
    }
    let others = rest.iter().filter(|node| !chosen.contains(node));
    let witnesses = set.iter().take(1).chain(others).map(|node| (*node, Role::Witness));
    let in_order: Vec<(usize, Role)> =
        witnesses.chain(chosen.iter().map(|node| (*node, Role::Backup))).collect();
    let members = in_order.iter().zip(1..).map(|((node, role), number)| Member {
        replica: ReplicaId(number),
        node: candidates.id(*node),
        role: *role,
    });
    let last = ReplicaId(in_order.len() as u64);
    GroupPlan::new(members.collect(), ReplicaId(1), last)
        .expect("a set of the shape keeps the rules of a plan")
}

#[cfg(test)]
mod tests;
