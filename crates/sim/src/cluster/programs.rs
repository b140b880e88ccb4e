//! The programs of the nodes in a run: older and newer ones, and the version to which the groups are raised.

use std::collections::BTreeSet;

use replica::Version;

use crate::Rng;

/// The words of a replica whose program is too old for its group.
const TOO_OLD: &str = "start the newer program again";

/// The versions that the nodes' programs speak. At each start a node gets one of two programs: the older one speaks [`Version::FIRST`] alone.
pub(super) struct Programs {
    shape: Shape,
    /// Number of the run's first nodes.
    pub first_nodes: usize,
    /// The version that the groups are asked for.
    pub wanted: Version,
    /// The nodes whose older program was refused: they have the newer one for good.
    refused: BTreeSet<usize>,
    is_healed: bool,
}

/// The programs of a run until all has healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// All nodes have the newer program.
    Newer,
    /// Each start gives a node either.
    Mixed,
    /// This node has the older program, the others either.
    OldNode(usize),
}

impl Programs {
    /// The programs of a run with so many first nodes.
    pub(super) fn of(rng: &mut Rng, first_nodes: usize) -> Programs {
        let shape = match rng.below(4) {
            0 => Shape::Mixed,
            1 => Shape::OldNode(rng.index(first_nodes)),
            _ => Shape::Newer,
        };
        let is_raised_at_once = shape == Shape::Newer && rng.chance(50);
        let wanted = if is_raised_at_once { Version::NEWEST } else { Version::FIRST };
        Programs { shape, first_nodes, wanted, refused: BTreeSet::new(), is_healed: false }
    }

    /// The newest version of the program with which a node starts.
    pub(super) fn draw(&self, node: usize, rng: &mut Rng) -> Version {
        let is_older = match self.shape {
            _ if self.is_healed && self.wanted > Version::FIRST => false,
            Shape::Newer => false,
            Shape::OldNode(old) if old == node => !self.is_healed,
            Shape::Mixed | Shape::OldNode(_) => rng.below(3) == 0,
        };
        if is_older && !self.refused.contains(&node) { Version::FIRST } else { Version::NEWEST }
    }

    /// True if the error is that of a program that is too old, and a group may have been raised above it: a group asks each member first. `has_stayed`: the node's replicas were members from the beginning on, so that one with the older program alone was asked.
    pub(super) fn may_be_refused(&mut self, node: usize, has_stayed: bool, why: &str) -> bool {
        let is_only_older = has_stayed && !self.is_healed && self.shape == Shape::OldNode(node);
        let may = why.contains(TOO_OLD) && self.wanted > Version::FIRST && !is_only_older;
        if may {
            self.refused.insert(node);
        }
        may
    }

    /// From now on nodes start with the newer program, if the groups were asked to be raised.
    pub(super) fn heal(&mut self) {
        self.is_healed = true;
    }
}
