//! Which lost part is restored next, and to which drive. Pure: the drives and the moves under way are inputs.
//!
//! Zones with the least redundancy come first, then those that are written to. Among these the drives decide: at most one part at a
//! time moves to a drive, and the part that the least busy drives are read for comes first, of these one whose drives have the most to
//! read yet. So all drives that work read and write, until the end.

use std::cmp::Reverse;

use zoned::ZoneId;

use crate::layout::{Role, Slot};

/// Lost parts of one rank among which the drives decide: the next ones by zone.
const LOOK_AHEAD: usize = 256;

/// The order in which zones get their redundancy back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    /// Lost parts of the zone: least redundancy first.
    pub lost: Reverse<usize>,
    pub is_idle: bool,
}

/// A lost part of a zone with content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LostPart {
    pub rank: Rank,
    pub zone: ZoneId,
    pub role: Role,
    /// The drives with a part of the zone, by role.
    pub slots: Vec<Slot>,
}

/// A drive that works.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drive {
    pub slot: Slot,
    /// Free physical zones.
    pub free: usize,
    /// Moves under way that read the drive.
    pub reads: usize,
    /// Lost parts whose moves are still to read the drive.
    pub left: usize,
    /// True if a part moves to the drive. The array promises its users all active zones of a drive but one, which the part takes.
    pub is_target: bool,
}

/// The next part to restore, with the drive that gets it; `None` if no part can be moved at the moment. `parts`: those of zones of which
/// no part moves, in order.
pub(super) fn choose(parts: &[LostPart], drives: &[Drive]) -> Option<(LostPart, Slot)> {
    let target = |part: &LostPart| {
        let may_take =
            |drive: &&Drive| !drive.is_target && drive.free > 0 && !part.slots.contains(&drive.slot);
        // A drive that is read less has more time to write.
        let rank = |drive: &&Drive| (drive.free, Reverse(drive.reads), Reverse(drive.slot));
        drives.iter().filter(may_take).max_by_key(rank).map(|drive| drive.slot)
    };
    let reads = |part: &LostPart| -> usize {
        drives.iter().filter(|drive| part.slots.contains(&drive.slot)).map(|drive| drive.reads).sum()
    };
    let mut movable = parts.iter().filter_map(|part| Some((part, target(part)?))).peekable();
    let rank = movable.peek().map(|(part, _)| part.rank)?;
    let next = movable.take_while(|(part, _)| part.rank == rank).take(LOOK_AHEAD);
    // Lost parts that the drives of a part are still to be read for: what the last moves read is not left to a few drives.
    let left = |part: &LostPart| -> usize {
        drives.iter().filter(|drive| part.slots.contains(&drive.slot)).map(|drive| drive.left).sum()
    };
    let order = |part: &LostPart| (reads(part), Reverse(left(part)), part.zone, part.role);
    let (part, slot) = next.min_by_key(|(part, _)| order(part))?;
    Some((part.clone(), slot))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_LITTLE: usize = 1;

    fn part(zone: u32, lost: usize, is_idle: bool, slots: &[u32]) -> LostPart {
        let slots = slots.iter().copied().map(Slot).collect();
        LostPart { rank: Rank { lost: Reverse(lost), is_idle }, zone: ZoneId(zone), role: Role(0), slots }
    }

    fn drive(slot: u32, free: usize, reads: usize, is_target: bool) -> Drive {
        Drive { slot: Slot(slot), free, reads, left: 0, is_target }
    }

    fn choice(mut parts: Vec<LostPart>, drives: &[Drive]) -> Option<(u32, u32)> {
        parts.sort_unstable();
        choose(&parts, drives).map(|(part, slot)| (part.zone.0, slot.0))
    }

    #[test]
    fn the_zone_with_the_least_redundancy_comes_first_and_then_one_that_is_written_to() {
        let drives: Vec<Drive> = (1..6).map(|slot| drive(slot, 9, 0, false)).collect();
        let parts =
            [part(1, 1, true, &[0, 1, 2]), part(2, 1, false, &[0, 1, 2]), part(3, 2, true, &[0, 6, 2])];
        assert_eq!(choice(parts.to_vec(), &drives), Some((3, 1)));
        assert_eq!(choice(parts[..2].to_vec(), &drives), Some((2, 3)));
        assert_eq!(choice(parts[..1].to_vec(), &drives), Some((1, 3)));
        assert_eq!(choice(Vec::new(), &drives), None);
    }

    #[test]
    fn one_part_at_a_time_moves_to_a_drive_and_none_to_a_drive_of_its_zone() {
        let drives =
            [drive(1, 9, 0, false), drive(2, 9, 0, true), drive(3, 0, 0, false), drive(4, 5, 0, false)];
        assert_eq!(choice(vec![part(7, 1, true, &[0, 1])], &drives), Some((7, 4)));
        assert_eq!(choice(vec![part(7, 1, true, &[0, 1, 4])], &drives), None, "2 is busy, 3 is full");
        // A part that can move does not wait for one that cannot.
        let parts = vec![part(7, 2, true, &[0, 1, 4]), part(8, 1, true, &[0, 1])];
        assert_eq!(choice(parts, &drives), Some((8, 4)));
    }

    #[test]
    fn parts_that_the_least_busy_drives_are_read_for_come_first() {
        let mut drives: Vec<Drive> = (1..6).map(|slot| drive(slot, 9, 3, false)).collect();
        (drives[3].reads, drives[4].reads) = (READ_LITTLE, READ_LITTLE);
        let parts =
            vec![part(1, 1, true, &[0, 1, 2]), part(2, 1, true, &[0, 1, 4]), part(3, 1, true, &[0, 4, 5])];
        assert_eq!(choice(parts.clone(), &drives), Some((3, 1)));
        // Of parts alike, the one whose drives have the most to read yet.
        drives.iter_mut().for_each(|drive| drive.reads = 3);
        drives[1].left = 7;
        assert_eq!(choice(parts, &drives), Some((1, 3)));
    }

    #[test]
    fn the_drive_with_the_most_free_zones_gets_the_part() {
        let drives =
            [drive(1, 3, 0, false), drive(2, 5, 4, false), drive(3, 5, 2, false), drive(4, 5, 2, false)];
        assert_eq!(choice(vec![part(1, 1, true, &[0])], &drives), Some((1, 3)));
    }
}
