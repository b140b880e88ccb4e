//! The drive and the physical zone of each part of each logical zone.

use std::sync::Arc;

use zoned::ZoneId;

use crate::layout::placement::{Place, Rotation, part_zone};
use crate::layout::stored_maps::{PlacedBy, StoredMaps};
use crate::layout::{Role, Slot};

/// Where the drives of an array hold the parts of its logical zones.
#[derive(Clone, Debug)]
pub(crate) enum Places {
    /// The places follow from the numbers of zone and part.
    Computed(Rotation),
    /// Each zone has a map of its own, from its first write to its reset.
    Stored(Arc<StoredMaps>),
}

impl Places {
    /// The number of the array's drives.
    pub(crate) fn drives(&self) -> u32 {
        match self {
            Places::Computed(rotation) => rotation.drives,
            Places::Stored(maps) => maps.drives(),
        }
    }

    /// The drives of the array.
    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = Slot> + use<> {
        (0..self.drives()).map(Slot)
    }

    /// The place of the part `role` of logical zone `id`; `None` if the zone has no map.
    pub(crate) fn place(&self, id: ZoneId, role: Role) -> Option<Place> {
        match self {
            Places::Computed(rotation) => Some(Place::whole(rotation.slot(id, role), part_zone(id))),
            Places::Stored(maps) => maps.place(id, role),
        }
    }

    /// The version of the map that brought the part `role` of logical zone `id` to its place; 0 if no move did.
    pub(crate) fn placed_by(&self, id: ZoneId, role: Role) -> PlacedBy {
        self.stored().map_or(PlacedBy::default(), |maps| maps.placed_by(id, role))
    }

    /// The drive with the part `role` of logical zone `id`.
    pub(crate) fn slot(&self, id: ZoneId, role: Role) -> Option<Slot> {
        Some(self.place(id, role)?.slot)
    }

    /// The part of logical zone `id` on the drive in `slot`.
    pub(crate) fn role(&self, id: ZoneId, slot: Slot) -> Option<Role> {
        match self {
            Places::Computed(rotation) => Some(rotation.role(id, slot)),
            Places::Stored(maps) => maps.role(id, slot),
        }
    }

    /// The stored maps; `None` if the places are computed.
    pub(crate) fn stored(&self) -> Option<&StoredMaps> {
        match self {
            Places::Computed(_) => None,
            Places::Stored(maps) => Some(maps),
        }
    }
}
