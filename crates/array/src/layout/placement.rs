//! The seam between logical and physical zones: which drive and physical zone hold a part of a logical zone, and which zones of a
//! drive hold metadata. No other module computes a drive or a physical zone of a part.
//!
//! Each drive has a part of every logical zone, in the physical zone of the same number behind the metadata zones. Physical zones
//! are a drive's sequential zones, counted from the first one (`member::member_drive`):
//!
//! ```text
//!   physical zone   0   1   2   3   4   ...
//!                   metadata    parts of logical zones 0, 1, ...
//! ```
//!
//! The roles of the next logical zone begin one drive further down, so that all drives share the load of first units. Four drives:
//!
//! ```text
//!            drive 0   drive 1   drive 2   drive 3
//!   zone 0   role 0    role 1    role 2    role 3
//!   zone 1   role 1    role 2    role 3    role 0
//! ```

use std::ops::Range;

use zoned::ZoneId;

use crate::layout::{Role, Slot};

/// The number of metadata zones of a drive: two may hold records that count, and one is free for the next checkpoint.
pub(crate) const METADATA_ZONES: u32 = 3;

/// The drives of an array, and where they hold the parts of its logical zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The number of the array's drives.
    pub drives: u32,
}

impl Placement {
    /// The drives of the array.
    pub fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + use<> {
        (0..self.drives).map(Slot)
    }

    /// The drive with the part `role` of logical zone `id`.
    pub fn slot(&self, id: ZoneId, role: Role) -> Slot {
        Slot((role.0 + self.drives - id.0 % self.drives) % self.drives)
    }

    /// The part of logical zone `id` on the drive in `slot`.
    pub fn role(&self, id: ZoneId, slot: Slot) -> Role {
        Role((slot.0 + id.0 % self.drives) % self.drives)
    }
}

/// The metadata zones of a drive.
pub(crate) fn metadata_zones() -> Range<u32> {
    0..METADATA_ZONES
}

/// True if a physical zone is for metadata.
pub(crate) fn is_metadata_zone(physical: ZoneId) -> bool {
    metadata_zones().contains(&physical.0)
}

/// The metadata zone that a log moves to when it leaves `zone`.
pub(crate) fn next_metadata_zone(zone: ZoneId) -> ZoneId {
    ZoneId((zone.0 + 1) % METADATA_ZONES)
}

/// The physical zone of a drive's part of logical zone `id`: the same on every drive.
pub(crate) fn part_zone(id: ZoneId) -> ZoneId {
    ZoneId(id.0 + METADATA_ZONES)
}

/// The physical zones of a drive's parts of logical zones 0 to `zones`, in order.
pub(crate) fn part_zones(zones: u32) -> Range<u32> {
    METADATA_ZONES..zones.saturating_add(METADATA_ZONES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_drive_has_one_part_of_a_zone_and_the_next_zone_begins_one_drive_further_down() {
        let placement = Placement { drives: 4 };
        for id in (0..9).map(ZoneId) {
            let mut slots: Vec<Slot> = (0..4).map(|role| placement.slot(id, Role(role))).collect();
            assert!(slots.iter().zip(0..).all(|(slot, role)| placement.role(id, *slot) == Role(role)));
            let next: Vec<Slot> = (0..4).map(|role| placement.slot(ZoneId(id.0 + 1), Role(role))).collect();
            slots.rotate_right(1);
            assert_eq!(slots, next);
        }
        assert_eq!(placement.slot(ZoneId(1), Role(0)), Slot(3));
    }

    #[test]
    fn parts_and_metadata_share_no_physical_zone() {
        let parts: Vec<u32> = (0..5).map(|id| part_zone(ZoneId(id)).0).collect();
        assert_eq!(parts, part_zones(5).collect::<Vec<_>>());
        assert!(parts.iter().all(|zone| !is_metadata_zone(ZoneId(*zone))));
        assert!(metadata_zones().all(|zone| is_metadata_zone(ZoneId(zone))));
    }

    #[test]
    fn a_log_rotates_over_all_metadata_zones() {
        let mut zone = ZoneId(1);
        let visited: Vec<u32> = metadata_zones()
            .map(|_| {
                zone = next_metadata_zone(zone);
                zone.0
            })
            .collect();
        assert_eq!(visited, [2, 0, 1]);
    }
}
