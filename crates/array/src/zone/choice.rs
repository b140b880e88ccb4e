//! The physical zone that a part takes on a drive, where parts of several logical zones share a physical zone. Pure.
//!
//! A physical zone with content and room for another part is *half filled*. The drive counts it as active until it is full. Zones that
//! are reset together should lie together, so that their physical zone is reset as a whole: a zone goes behind its neighbour by
//! number, and otherwise begins an empty physical zone as long as the drive may have one more active.

use zoned::ZoneId;

/// A half-filled physical zone, whose last part takes no more writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HalfFilled {
    /// The physical zone.
    pub zone: ZoneId,
    /// The logical zone with the last part, which may have been reset since.
    pub last: ZoneId,
    /// True if no part of the drive took its last write after the last part here.
    pub is_latest: bool,
    /// Rows that are to be filled with zeros before another part goes here.
    pub gap: u64,
    /// The numbers of neighbouring parts whose logical zones are no neighbours.
    pub breaks: usize,
}

/// The room that a drive has for a part, from the best kind to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Room {
    /// Behind the part of the logical zone before by number.
    BehindNeighbour,
    /// An empty physical zone.
    Empty,
    /// Behind the part that took its last write last.
    BehindLatest,
    /// Behind another part.
    BehindOther,
}

/// The physical zone that the part of logical zone `id` takes, and what room this is: where the logical zone before it ended, else the `empty` one, else where
/// the latest part ended, else the one with the fewest rows to fill with zeros and whose parts are most alike. `None` if the drive has
/// no room. An empty one comes before the latest part's, which the next zone of that part's stream may want: streams do not mix as long
/// as the drive may have a zone more active.
///
/// `empty`: an empty physical zone that may become active. `short`: the most rows to fill with zeros while there is an empty one.
pub(crate) fn choose(
    id: ZoneId,
    half_filled: &[HalfFilled],
    empty: Option<ZoneId>,
    short: u64,
) -> Option<(Room, ZoneId)> {
    let follows = |one: &&HalfFilled| one.last.0.checked_add(1) == Some(id.0);
    let is_near = |one: &&HalfFilled| one.gap <= short || empty.is_none();
    let neighbour = half_filled.iter().filter(is_near).find(follows);
    let latest = || half_filled.iter().filter(is_near).find(|one| one.is_latest);
    let least_mixed = || half_filled.iter().min_by_key(|one| (one.gap, one.breaks, one.zone));
    let neighbour = neighbour.map(|one| (Room::BehindNeighbour, one.zone));
    let latest = || latest().map(|one| (Room::BehindLatest, one.zone));
    let least_mixed = || least_mixed().map(|one| (Room::BehindOther, one.zone));
    neighbour.or(empty.map(|zone| (Room::Empty, zone))).or_else(latest).or_else(least_mixed)
}

/// The physical zone that a part takes where parts are served by arrival: any half-filled one, else the `empty` one.
pub(crate) fn choose_by_arrival(half_filled: &[HalfFilled], empty: Option<ZoneId>) -> Option<(Room, ZoneId)> {
    let first = half_filled.first().map(|one| (Room::BehindNeighbour, one.zone));
    first.or(empty.map(|zone| (Room::Empty, zone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_goes_behind_its_neighbour_then_to_an_empty_zone_then_behind_the_latest() {
        let half = |zone, last, is_latest, breaks| HalfFilled {
            zone: ZoneId(zone),
            last: ZoneId(last),
            is_latest,
            gap: 0,
            breaks,
        };
        let all = [half(3, 7, false, 2), half(4, 20, true, 1), half(5, 30, false, 0)];
        let chosen = |id, of: &[HalfFilled], empty: Option<u32>| {
            choose(ZoneId(id), of, empty.map(ZoneId), 2).map(|(_, zone)| zone.0)
        };
        let room =
            |id, empty: Option<u32>| choose(ZoneId(id), &all, empty.map(ZoneId), 2).map(|(room, _)| room);
        assert_eq!((room(8, Some(9)), room(9, Some(9))), (Some(Room::BehindNeighbour), Some(Room::Empty)));
        assert_eq!(room(9, None), Some(Room::BehindLatest));
        assert_eq!(choose(ZoneId(9), &all[2..], None, 2), Some((Room::BehindOther, ZoneId(5))));
        assert_eq!(chosen(8, &all, Some(9)), Some(3), "behind zone 7");
        assert_eq!(chosen(9, &all, None), Some(4), "where the latest part ended");
        let others = [all[0], all[2]];
        assert_eq!(chosen(9, &others, Some(9)), Some(9), "an empty zone");
        assert_eq!(chosen(9, &others, None), Some(5), "the least mixed one");
        assert_eq!((chosen(9, &[], Some(9)), chosen(9, &[], None)), (Some(9), None));
        assert_eq!(chosen(0, &[half(3, u32::MAX, false, 0)], Some(9)), Some(9), "no number wraps round");
        let behind_gaps = [HalfFilled { gap: 3, ..all[0] }, HalfFilled { gap: 2, ..all[1] }];
        assert_eq!(chosen(8, &behind_gaps, Some(9)), Some(9), "a gap of three rows is too long");
        assert_eq!(chosen(8, &behind_gaps[..1], Some(9)), Some(9), "an empty zone has no gap");
        assert_eq!(chosen(8, &behind_gaps, None), Some(3), "the neighbour, where there is no empty zone");
        assert_eq!(chosen(0, &[behind_gaps[0], all[2]], None), Some(5), "the shortest gap");
    }
}
