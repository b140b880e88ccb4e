//! SCAN's cursors in a cluster, which also name the group that is walked.
//!
//! | bits | field | meaning |
//! |---|---|---|
//! | 52 to 62 | group | the group's place among all groups of the cluster, in the order of their numbers |
//! | 0 to 51 | cursor | the cursor of the group's engine |
//!
//! The cursors of the first group are those of a server without a cluster.

use std::collections::BTreeSet;

use super::topology::Topology;
use replica::GroupId;

/// Bits of an engine's cursor.
const CURSOR_BITS: u32 = 52;

/// Largest number of groups that cursors can name.
const GROUPS_MAX: u64 = 1 << 11;

/// The groups that a SCAN on one node walks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScanOrder {
    /// The groups of the cluster, and whether this process leads each.
    groups: Vec<(GroupId, bool)>,
}

impl ScanOrder {
    /// The order of a cluster's groups. `leads`: whether this process leads a group.
    pub fn new(topology: &Topology, leads: impl Fn(GroupId) -> bool) -> ScanOrder {
        let groups: BTreeSet<GroupId> = topology.ranges.iter().map(|range| range.group).collect();
        ScanOrder { groups: groups.into_iter().map(|group| (group, leads(group))).collect() }
    }

    /// The group that a cursor's SCAN walks next, and the cursor of its engine: the group that the cursor names, or the
    /// next one that this process leads. `None`: no group is left.
    ///
    /// # Errors
    /// The error reply, where the cluster has too many groups.
    pub fn find(&self, cursor: u64) -> Result<Option<(GroupId, u64)>, String> {
        if self.groups.len() as u64 > GROUPS_MAX {
            return Err(format!("ERR SCAN walks at most {GROUPS_MAX} groups of a cluster"));
        }
        let place = cursor >> CURSOR_BITS;
        let led = self.first_led(place);
        Ok(led.map(|(at, group)| (group, if at == place { cursor & ((1 << CURSOR_BITS) - 1) } else { 0 })))
    }

    /// The cursor that goes on behind a SCAN of `group` whose engine gave the cursor `next`; 0 once all groups are walked.
    pub fn next_cursor(&self, group: GroupId, next: u64) -> u64 {
        let place = self.groups.partition_point(|(other, _)| *other < group) as u64;
        if next != 0 {
            return place << CURSOR_BITS | next;
        }
        self.first_led(place + 1).map_or(0, |(place, _)| place << CURSOR_BITS)
    }

    fn first_led(&self, from: u64) -> Option<(u64, GroupId)> {
        let led = |(place, (group, leads)): (u64, &(GroupId, bool))| leads.then_some((place, *group));
        (0..).zip(&self.groups).filter(|(place, _)| *place >= from).find_map(led)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(groups: &[(u64, bool)]) -> ScanOrder {
        ScanOrder { groups: groups.iter().map(|(group, leads)| (GroupId(*group), *leads)).collect() }
    }

    #[test]
    fn a_scan_walks_the_led_groups_one_after_the_other() {
        let order = order(&[(3, false), (5, true), (6, false), (9, true)]);
        assert_eq!(order.find(0).unwrap(), Some((GroupId(5), 0)));
        let inside = order.next_cursor(GroupId(5), 77);
        assert_eq!(inside, 1 << 52 | 77);
        assert_eq!(order.find(inside).unwrap(), Some((GroupId(5), 77)));
        let behind = order.next_cursor(GroupId(5), 0);
        assert_eq!(behind, 3 << 52);
        assert_eq!(order.find(behind).unwrap(), Some((GroupId(9), 0)));
        assert_eq!(order.next_cursor(GroupId(9), 0), 0);
    }

    #[test]
    fn the_cursors_of_the_first_group_are_those_of_its_engine() {
        let order = order(&[(1, true)]);
        assert_eq!(order.next_cursor(GroupId(1), 2_066_255_798_390_194), 2_066_255_798_390_194);
        assert_eq!(order.find(2_066_255_798_390_194).unwrap(), Some((GroupId(1), 2_066_255_798_390_194)));
    }

    #[test]
    fn a_group_that_is_led_no_more_is_passed_over() {
        let order = order(&[(1, false), (2, true), (3, false)]);
        assert_eq!(order.find(5).unwrap(), Some((GroupId(2), 0)));
        assert_eq!(order.find(2 << 52 | 5).unwrap(), None);
        assert_eq!(order.find(u64::MAX).unwrap(), None);
    }

    #[test]
    fn more_groups_than_a_cursor_can_name_are_refused() {
        let groups: Vec<_> = (0..=GROUPS_MAX).map(|group| (group, true)).collect();
        assert!(order(&groups).find(0).is_err());
        assert!(order(groups.get(1..).unwrap()).find(0).is_ok());
    }
}
