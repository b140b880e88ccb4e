//! The nodes and slots of a cluster.

use replica::GroupId;

/// The place of a node in [`Topology::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(pub usize);

/// A node of the cluster: a process that serves clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterNode {
    /// The node's name for clients: 40 hexadecimal digits.
    pub name: String,
    /// The host that clients are to connect to.
    pub host: String,
    /// The port of the Redis protocol there.
    pub port: u16,
    /// False once the node has not been heard of for a while.
    pub is_alive: bool,
}

/// Slots that are next to each other, and the group that has their keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRange {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// The group.
    pub group: GroupId,
    /// The node whose replica leads the group, as far as this process knows.
    pub leader: Option<NodeIndex>,
    /// The nodes with backups of the group, which have every value.
    pub backups: Vec<NodeIndex>,
}

/// A cluster as one of its processes knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// A number that rises with each change of the slots' groups, or of a group's leader.
    pub epoch: u64,
    /// This process's node.
    pub me: NodeIndex,
    /// All nodes.
    pub nodes: Vec<ClusterNode>,
    /// The slots, in order. Slots that no range has are not served.
    pub ranges: Vec<SlotRange>,
}

impl Topology {
    /// The node at a place of [`nodes`](Topology::nodes).
    pub fn node(&self, index: NodeIndex) -> Option<&ClusterNode> {
        self.nodes.get(index.0)
    }

    /// The range that has a slot.
    pub fn range_of(&self, slot: u16) -> Option<&SlotRange> {
        let place = self.ranges.partition_point(|range| range.last < slot);
        self.ranges.get(place).filter(|range| range.first <= slot)
    }
}

#[cfg(test)]
mod tests {
    use kv::SLOTS;

    use super::*;

    #[test]
    fn a_slot_is_found_in_its_range_and_nowhere_in_a_gap() {
        let range = |first, last, group| SlotRange {
            first,
            last,
            group: GroupId(group),
            leader: None,
            backups: Vec::new(),
        };
        let topology = Topology {
            epoch: 1,
            me: NodeIndex(0),
            nodes: Vec::new(),
            ranges: vec![range(0, 99, 1), range(100, 199, 2), range(300, SLOTS - 1, 3)],
        };
        let group = |slot| topology.range_of(slot).map(|range| range.group.0);
        assert_eq!([0, 99, 100, 199].map(group), [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!([200, 299, 300, SLOTS - 1].map(group), [None, None, Some(3), Some(3)]);
    }
}
