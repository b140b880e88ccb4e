//! Stored maps: where the parts of each logical zone lie, in memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use zoned::ZoneId;

use crate::layout::placement::Place;
use crate::layout::{Role, Slot};

/// The version of the map that brought a part to its place; 0 for the place of the zone's first write.
///
/// Records about the content of one part (stale rows, relocated content, bad rows) name this version, and count only for the part
/// that the version brought to the drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct PlacedBy(pub u16);

/// The version of the map of a zone's first write.
pub(crate) const FIRST_VERSION: u16 = 1;

/// The map of a logical zone in one life, from its first write to its reset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ZoneMap {
    /// The logical zone.
    pub zone: ZoneId,
    /// The generation of the zone in this life.
    pub generation: u64,
    /// Counts the maps of this life, from [`FIRST_VERSION`]: each move of a part writes the next version.
    pub version: u16,
    /// The places of the zone's parts, by role.
    pub places: Vec<Place>,
    /// The parts that were moved to their places.
    pub moved: BTreeMap<Role, PlacedBy>,
}

impl ZoneMap {
    /// The map of a zone's first write.
    pub(crate) fn first(zone: ZoneId, generation: u64, places: Vec<Place>) -> ZoneMap {
        ZoneMap { zone, generation, version: FIRST_VERSION, places, moved: BTreeMap::new() }
    }
}

/// The maps of all logical zones. Readers take no lock.
#[derive(Debug)]
pub(crate) struct StoredMaps {
    drives: u32,
    width: u32,
    /// One number for each part: 0, or from the highest bit on the slot plus one (8 bits), the physical zone (24), and the first
    /// row (32).
    places: Box<[AtomicU64]>,
    /// By part like `places`: the version of the map that moved the part to its place, or 0.
    moved: Box<[AtomicU16]>,
    /// The version of each zone's map.
    versions: Box<[AtomicU16]>,
}

impl StoredMaps {
    /// The maps of `zones` zones of `width` parts, all of them without a place.
    pub(crate) fn new(drives: u32, width: u32, zones: u32) -> StoredMaps {
        let parts = zones as usize * width as usize;
        let places = (0..parts).map(|_| AtomicU64::new(0)).collect();
        let versions = (0..zones).map(|_| AtomicU16::new(FIRST_VERSION)).collect();
        let moved = (0..parts).map(|_| AtomicU16::new(0)).collect();
        StoredMaps { drives, width, places, moved, versions }
    }

    /// The number of the array's drives.
    pub(crate) fn drives(&self) -> u32 {
        self.drives
    }

    /// The place of the part `role` of zone `id`; `None` if the zone has no map.
    pub(crate) fn place(&self, id: ZoneId, role: Role) -> Option<Place> {
        unpacked(self.part(id, role)?.load(Ordering::Acquire))
    }

    /// The version of the map that brought the part `role` of zone `id` to its place.
    pub(crate) fn placed_by(&self, id: ZoneId, role: Role) -> PlacedBy {
        let moved = self.index(id, role).and_then(|at| self.moved.get(at));
        PlacedBy(moved.map_or(0, |moved| moved.load(Ordering::Acquire)))
    }

    /// The part of zone `id` on the drive in `slot`; `None` if the drive has none.
    pub(crate) fn role(&self, id: ZoneId, slot: Slot) -> Option<Role> {
        let has = |role: &Role| self.place(id, *role).is_some_and(|place| place.slot == slot);
        (0..self.width).map(Role).find(has)
    }

    /// Bytes of the maps in memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places) + size_of_val(&*self.moved) + size_of_val(&*self.versions)
    }

    /// True if zone `id` has a map.
    pub(crate) fn has(&self, id: ZoneId) -> bool {
        self.place(id, Role(0)).is_some()
    }

    /// The drives with a part of zone `id`, by role; empty if the zone has no map.
    pub(crate) fn slots(&self, id: ZoneId) -> Vec<Slot> {
        self.places(id).iter().map(|place| place.slot).collect()
    }

    /// The places of all parts of zone `id`, by role; empty if the zone has no map.
    pub(crate) fn places(&self, id: ZoneId) -> Vec<Place> {
        (0..self.width).filter_map(|role| self.place(id, Role(role))).collect()
    }

    /// The version of the map of zone `id`.
    pub(crate) fn version(&self, id: ZoneId) -> u16 {
        self.versions.get(id.index()).map_or(FIRST_VERSION, |version| version.load(Ordering::Acquire))
    }

    /// The map of zone `id` in this generation; `None` if the zone has no map.
    pub(crate) fn map(&self, id: ZoneId, generation: u64) -> Option<ZoneMap> {
        let places = self.places(id);
        let moved = (0..self.width).map(Role).map(|role| (role, self.placed_by(id, role)));
        let moved = moved.filter(|(_, placed_by)| *placed_by != PlacedBy::default()).collect();
        let version = self.version(id);
        (!places.is_empty()).then_some(ZoneMap { zone: id, generation, version, places, moved })
    }

    /// Replaces the map of zone `id` by that of a first write; no places take the map away. The caller lets no operation of the zone
    /// run meanwhile.
    pub(crate) fn set(&self, id: ZoneId, places: &[Place]) {
        self.load(&ZoneMap::first(id, 0, places.to_vec()));
    }

    /// Replaces the map of a zone. The caller lets no operation of the zone run meanwhile.
    pub(crate) fn load(&self, map: &ZoneMap) {
        for role in (0..self.width).map(Role) {
            let placed_by = map.moved.get(&role).copied().unwrap_or_default();
            if let Some(moved) = self.index(map.zone, role).and_then(|at| self.moved.get(at)) {
                moved.store(placed_by.0, Ordering::Release);
            }
            let number = map.places.get(role.index()).map_or(0, packed);
            if let Some(part) = self.part(map.zone, role) {
                part.store(number, Ordering::Release);
            }
        }
        if let Some(version) = self.versions.get(map.zone.index()) {
            version.store(map.version, Ordering::Release);
        }
    }

    fn part(&self, id: ZoneId, role: Role) -> Option<&AtomicU64> {
        self.places.get(self.index(id, role)?)
    }

    /// The place of a part in the tables.
    fn index(&self, id: ZoneId, role: Role) -> Option<usize> {
        (role.0 < self.width).then(|| id.index() * self.width as usize + role.index())
    }
}

/// Bits of the number of a place that hold the first row, and those that hold the physical zone.
const ROW_BITS: u32 = 32;
const ZONE_BITS: u32 = 24;
/// The most physical zones of a drive with stored maps, metadata zones included.
pub(crate) const MAX_PHYSICAL_ZONES: u32 = 1 << ZONE_BITS;

fn packed(place: &Place) -> u64 {
    assert!(place.zone.0 < MAX_PHYSICAL_ZONES && place.row >> ROW_BITS == 0, "{place:?}");
    (u64::from(place.slot.0) + 1) << (ZONE_BITS + ROW_BITS) | u64::from(place.zone.0) << ROW_BITS | place.row
}

fn unpacked(number: u64) -> Option<Place> {
    let slot = u32::try_from(number >> (ZONE_BITS + ROW_BITS)).ok()?.checked_sub(1)?;
    let zone = (number >> ROW_BITS & u64::from(MAX_PHYSICAL_ZONES - 1)) as u32;
    Some(Place { slot: Slot(slot), zone: ZoneId(zone), row: number & u64::from(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_the_places_of_its_newest_map() {
        let maps = StoredMaps::new(4, 3, 2);
        let place = |slot, zone, row| Place { slot: Slot(slot), zone: ZoneId(zone), row };
        assert_eq!((maps.has(ZoneId(1)), maps.places(ZoneId(1))), (false, Vec::new()));
        let places =
            vec![place(3, 7, 0), place(0, MAX_PHYSICAL_ZONES - 1, u64::from(u32::MAX)), place(2, 0, 5)];
        maps.set(ZoneId(1), &places);
        assert_eq!((maps.has(ZoneId(1)), maps.places(ZoneId(1))), (true, places.clone()));
        assert_eq!(maps.places(ZoneId(0)), Vec::new());
        assert_eq!(
            [0, 1, 2, 3].map(|slot| maps.role(ZoneId(1), Slot(slot))),
            [Some(Role(1)), None, Some(Role(2)), Some(Role(0))]
        );
        assert_eq!((maps.place(ZoneId(1), Role(3)), maps.place(ZoneId(2), Role(0))), (None, None));
        let mut map = maps.map(ZoneId(1), 9).expect("a map");
        assert_eq!((map.version, map.moved.len()), (FIRST_VERSION, 0));
        map.version = u16::MAX;
        map.moved.insert(Role(1), PlacedBy(u16::MAX));
        maps.load(&map);
        assert_eq!((maps.map(ZoneId(1), 9), maps.places(ZoneId(1))), (Some(map), places));
        maps.set(ZoneId(1), &[]);
        assert_eq!(maps.placed_by(ZoneId(1), Role(1)), PlacedBy::default());
        assert_eq!((maps.map(ZoneId(1), 9), maps.map(ZoneId(2), 9)), (None, None));
        assert_eq!((maps.places(ZoneId(1)), maps.role(ZoneId(1), Slot(3))), (Vec::new(), None));
    }
}
