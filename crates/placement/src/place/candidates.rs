//! The nodes that can take replicas, and what a set of them must fulfil to be a group's.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::PlaceError;
use crate::values::node::{Node, Offers, Rack};
use replica::NodeId;

/// A node as the placement sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The node.
    pub id: NodeId,
    /// The roles that it takes.
    pub offers: Offers,
    /// The node's rack.
    pub rack: Rack,
}

impl Candidate {
    /// The placement's view of a node.
    pub fn new(id: NodeId, node: &Node) -> Candidate {
        Candidate { id, offers: node.offers, rack: node.rack.clone() }
    }
}

/// The roles that a node can have in a group beside the holder of the office.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    BackupOnly,
    WitnessOnly,
    Either,
}

/// The candidates by number, in ascending order of their ids, with racks as numbers.
pub(super) struct Candidates {
    list: Vec<Candidate>,
    racks: Vec<usize>,
}

impl Candidates {
    /// Of two candidates with one id only the first one counts.
    pub(super) fn new(nodes: &[Candidate]) -> Candidates {
        let mut list = nodes.to_vec();
        list.sort_by_key(|node| node.id);
        list.dedup_by_key(|node| node.id);
        let names: BTreeSet<&Rack> = list.iter().map(|node| &node.rack).collect();
        let numbers: BTreeMap<&Rack, usize> = names.into_iter().zip(0..).collect();
        let racks = list.iter().map(|node| numbers.get(&node.rack).copied().unwrap_or_default()).collect();
        Candidates { list, racks }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn id(&self, node: usize) -> NodeId {
        self.get(node).id
    }

    pub(super) fn offers(&self, node: usize) -> Offers {
        self.get(node).offers
    }

    pub(super) fn rack(&self, node: usize) -> usize {
        *self.racks.get(node).expect("a rack for each node")
    }

    /// `None`: a node that offers nothing.
    pub(super) fn kind(&self, node: usize) -> Option<Kind> {
        let offers = self.offers(node);
        match (offers.backup, offers.takes_witness()) {
            (true, true) => Some(Kind::Either),
            (true, false) => Some(Kind::BackupOnly),
            (false, true) => Some(Kind::WitnessOnly),
            (false, false) => None,
        }
    }

    fn get(&self, node: usize) -> &Candidate {
        self.list.get(node).expect("numbers of nodes come from this list")
    }
}

/// The conditions that the nodes of one group fulfil: K nodes for backups and K for witnesses beside the holder of the office, and at most `rack_limit` nodes in a rack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) copies: usize,
    pub(super) rack_limit: usize,
}

impl Shape {
    /// The shape with the smallest limit for a rack with which some node can hold the office, and all nodes that can hold it then.
    pub(super) fn tightest(
        candidates: &Candidates,
        copies: usize,
    ) -> Result<(Shape, Vec<usize>), PlaceError> {
        check_counts(candidates, copies)?;
        for rack_limit in 1..=2 * copies + 1 {
            let shape = Shape { copies, rack_limit };
            let holds =
                |node: &usize| candidates.offers(*node).primary && shape.can_be_filled(candidates, &[*node]);
            let holders: Vec<usize> = (0..candidates.len()).filter(holds).collect();
            if !holders.is_empty() {
                return Ok((shape, holders));
            }
        }
        Err(PlaceError::RolesOnOneNode { copies, joined: candidates.len() })
    }

    /// True if `nodes`, the first of which holds the office, can be nodes of one group: further ones apart, which it may lack.
    pub(super) fn holds(&self, candidates: &Candidates, nodes: &[usize]) -> bool {
        let rest = nodes.get(1..).unwrap_or_default();
        let count = |kind| rest.iter().filter(|node| candidates.kind(**node) == Some(kind)).count();
        let in_rack = |rack| nodes.iter().filter(|node| candidates.rack(**node) == rack).count();
        count(Kind::BackupOnly) <= self.copies
            && count(Kind::WitnessOnly) <= self.copies
            && nodes.iter().all(|node| in_rack(candidates.rack(*node)) <= self.rack_limit)
    }

    /// True if further candidates can be added to `nodes`, the first of which holds the office, until the group is whole.
    ///
    /// The further nodes are a flow from the kinds, each with its limit, through the racks, each with its limit. Its greatest value is that of the smallest cut: for each set of kinds on the near
    /// side the limits of the other kinds, and for each rack its limit or its nodes of these kinds.
    pub(super) fn can_be_filled(&self, candidates: &Candidates, nodes: &[usize]) -> bool {
        if !self.holds(candidates, nodes) {
            return false;
        }
        let lacking = (2 * self.copies + 1).saturating_sub(nodes.len());
        let rest = nodes.get(1..).unwrap_or_default();
        let limit =
            |kind| self.copies - rest.iter().filter(|node| candidates.kind(**node) == Some(kind)).count();
        let mut free: BTreeMap<usize, [usize; 3]> = BTreeMap::new();
        for node in (0..candidates.len()).filter(|node| !nodes.contains(node)) {
            let counts = free.entry(candidates.rack(node)).or_default();
            if let Some(count) = candidates.kind(node).and_then(|kind| counts.get_mut(kind as usize)) {
                *count += 1;
            }
        }
        let through_racks = |backups: bool, witnesses: bool| -> usize {
            let of_rack = |(rack, [backup, witness, either]): (&usize, &[usize; 3])| {
                let taken = nodes.iter().filter(|node| candidates.rack(**node) == *rack).count();
                let nodes = either + if backups { *backup } else { 0 } + if witnesses { *witness } else { 0 };
                nodes.min(self.rack_limit - taken)
            };
            free.iter().map(of_rack).sum()
        };
        [(true, true), (true, false), (false, true), (false, false)].into_iter().all(
            |(backups, witnesses)| {
                let kinds = if backups { 0 } else { limit(Kind::BackupOnly) }
                    + if witnesses { 0 } else { limit(Kind::WitnessOnly) };
                kinds + through_racks(backups, witnesses) >= lacking
            },
        )
    }
}

/// Checks that there are enough nodes for each role by itself, for an error that says which are lacking.
fn check_counts(candidates: &Candidates, copies: usize) -> Result<(), PlaceError> {
    let joined = candidates.len();
    if joined < 2 * copies + 1 {
        return Err(PlaceError::FewNodes { needed: 2 * copies + 1, copies, joined });
    }
    let count = |fits: fn(Offers) -> bool| (0..joined).filter(|node| fits(candidates.offers(*node))).count();
    for (needed, offers, joined) in [
        (1, "primary", count(|offers| offers.primary)),
        (copies, "backup", count(|offers| offers.backup)),
        (copies + 1, "primary or witness", count(Offers::takes_witness)),
    ] {
        if joined < needed {
            return Err(PlaceError::FewOffers { needed, offers, copies, joined });
        }
    }
    Ok(())
}
