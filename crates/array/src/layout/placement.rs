//! The place of a part, the computed placement, and which zones of a drive hold metadata. `layout::places` gives every other module the place of a part.
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

/// Where a drive holds a part of a logical zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Place {
    /// The drive.
    pub slot: Slot,
    /// The physical zone of the drive.
    pub zone: ZoneId,
    /// The part's first row in the physical zone: 0, or a multiple of a part's rows where logical zones share physical zones.
    pub row: u64,
}

impl Place {
    /// The place of a part that has a physical zone for itself.
    pub(crate) fn whole(slot: Slot, zone: ZoneId) -> Place {
        Place { slot, zone, row: 0 }
    }
}

/// The computed placement: every drive has a part of every logical zone, and the roles rotate from zone to zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// The number of the array's drives.
    pub drives: u32,
}

impl Rotation {
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
        let rotation = Rotation { drives: 4 };
        for id in (0..9).map(ZoneId) {
            let mut slots: Vec<Slot> = (0..4).map(|role| rotation.slot(id, Role(role))).collect();
            assert!(slots.iter().zip(0..).all(|(slot, role)| rotation.role(id, *slot) == Role(role)));
            let next: Vec<Slot> = (0..4).map(|role| rotation.slot(ZoneId(id.0 + 1), Role(role))).collect();
            slots.rotate_right(1);
            assert_eq!(slots, next);
        }
        assert_eq!(rotation.slot(ZoneId(1), Role(0)), Slot(3));
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
