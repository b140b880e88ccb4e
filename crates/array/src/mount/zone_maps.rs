//! The zones' maps at a mount, merged from the logs of all drives.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use zoned::{Action, ZoneId, ZoneInfo, ZoneState};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::placement::{Place, part_zones};
use crate::layout::stored_maps::{StoredMaps, ZoneMap};
use crate::member::drive_ios::DriveIos;
use crate::member::physical_zone::PhysicalZone;
use crate::mount::errors::{MountError, first_failure};
use crate::mount::gather::{Mount, PresentMember};
use crate::zone::free_zones::FreeZones;
use crate::zone::shared_zones::{SharedZone, SharedZones, SharedZonesOfDrive, Tenant};

/// Physical zones of a drive that a mount resets at a time.
const RESETS_AT_A_TIME: usize = 16;

impl Mount {
    /// Loads the maps of all zones. The newest version of a zone's newest generation counts: what each version names was durable before
    /// the version was written, so that one copy is enough. A zone without a map is empty. Of two maps that name
    /// one place the one that more logs hold counts, and the other is passed over.
    pub(crate) fn load_maps(&mut self, maps: &StoredMaps) {
        let ids = (0..self.superblock.zones).map(ZoneId);
        let mut newest: Vec<(usize, ZoneMap)> = ids.filter_map(|id| self.newest_map(id)).collect();
        newest.sort_by_key(|(copies, _)| Reverse(*copies));
        let mut taken: BTreeSet<Place> = BTreeSet::new();
        for (_, map) in newest {
            if !self.has_possible_slots(&map) || map.places.iter().any(|place| taken.contains(place)) {
                tracing::error!(
                    ?map,
                    "the map names rows of another zone, or none that a part has: passed over"
                );
                self.contested_maps.insert(map.zone);
                continue;
            }
            taken.extend(&map.places);
            if self.shares_zones() {
                for place in &map.places {
                    let last = self.last_rows.entry((place.slot, place.zone)).or_default();
                    *last = place.row.max(*last);
                }
            }
            maps.load(&map);
        }
    }

    /// The newest map of a zone and the number of logs with it. `None` if the zone was reset since.
    fn newest_map(&self, id: ZoneId) -> Option<(usize, ZoneMap)> {
        let maps = || self.places.slots().filter_map(|slot| self.contents(slot)?.maps.get(&id));
        let copies = |map: &ZoneMap| maps().filter(|other| other.content == *map).count();
        let newest = maps().max_by_key(|map| (map.generation, map.content.version, copies(&map.content)))?;
        let counts = newest.generation >= self.entry(id).generation;
        counts.then(|| (copies(&newest.content), newest.content.clone()))
    }

    /// True if the map of a zone is damaged: it was passed over, or no map counts although blocks of the zone are known to be durable.
    pub(crate) fn lost_its_map(&self, id: ZoneId, entry: &ZoneEntry) -> bool {
        let has_content = !entry.is_failed_zone() && entry.end.is_some_and(|end| end.0 > 0);
        let has_no_map = || self.places.stored().is_some_and(|maps| !maps.has(id));
        self.contested_maps.contains(&id) || has_content && has_no_map()
    }

    /// The physical zones that the maps name.
    fn mapped_places(&self, maps: &StoredMaps) -> BTreeSet<Place> {
        let places = (0..self.superblock.zones).flat_map(|id| maps.places(ZoneId(id)));
        places.map(|place| Place::whole(place.slot, place.zone)).collect()
    }

    /// The physical zones that zones share, with the parts in them, once the mount has taken the maps of empty zones away; `None` if
    /// each part has a physical zone for itself. `state`: the state of a logical zone.
    pub(crate) fn shared_physical_zones(
        &self,
        state: impl Fn(ZoneId) -> Option<ZoneState>,
    ) -> Option<SharedZones> {
        let maps = self.places.stored().filter(|_| self.shares_zones())?;
        let (zone_rows, part_rows) = (self.superblock.zone_capacity.0, self.layout.part_rows);
        let mut parts: BTreeMap<(Slot, ZoneId), Vec<Tenant>> = BTreeMap::new();
        for id in (0..self.superblock.zones).map(ZoneId) {
            for place in maps.places(id) {
                let tenants = parts.entry((place.slot, place.zone)).or_default();
                tenants.push(Tenant { id, row: place.row });
            }
        }
        let free = self.free_physical_zones(|_| false);
        let mut drives = free.into_shared();
        drives.resize(self.superblock.members.len(), SharedZonesOfDrive::default());
        let max_active = self.superblock.limits.and_then(|limits| limits.max_active);
        for drive in &mut drives {
            drive.max_active = max_active.map(|limit| limit.saturating_add(1));
        }
        for ((slot, zone), mut tenants) in parts {
            tenants.sort_by_key(|tenant| tenant.row);
            let Some((last, drive)) = tenants.last().copied().zip(drives.get_mut(slot.index())) else {
                continue;
            };
            let info = self.present(slot).and_then(|present| present.info(zone));
            let is_open = state(last.id) != Some(ZoneState::Full);
            let next = self.next_slot(last.row, info);
            let gap = info.map_or(part_rows, |info| next.saturating_sub(info.pointer.0));
            let is_spent = !is_open && next + part_rows > zone_rows;
            // The parts of failed zones are finished at the end of the mount, and so are full physical zones.
            let is_full = is_spent
                || state(last.id) == Some(ZoneState::Offline)
                || info.is_some_and(|info| info.state == ZoneState::Full || is_worn(info));
            drive.used.insert(zone, SharedZone::new(tenants, (next, gap), is_open, is_full));
        }
        Some(SharedZones::new(zone_rows, part_rows, drives, self.options.rules()))
    }

    /// The first row of the next slot of a physical zone whose last part begins at row `last`: behind the rows of parts that were reset
    /// too. `info`: the report of the physical zone, if its drive is present.
    pub(crate) fn next_slot(&self, last: u64, info: Option<&ZoneInfo>) -> u64 {
        let part_rows = self.layout.part_rows;
        let written = info.map_or(0, |info| info.pointer.0.div_ceil(part_rows) * part_rows);
        written.max(last + part_rows)
    }

    /// True if a map names slots of the array's physical zones.
    fn has_possible_slots(&self, map: &ZoneMap) -> bool {
        let (zone_rows, part_rows) = (self.superblock.zone_capacity.0, self.layout.part_rows);
        let is_slot =
            |place: &Place| place.row.is_multiple_of(part_rows) && place.row + part_rows <= zone_rows;
        map.places.iter().all(is_slot)
    }

    /// Takes the maps of zones that the mount found empty away. Returns the free physical zones of each drive: all that no map
    /// names, without those that wore out. The mount resets those that are not empty at its end.
    pub(crate) fn free_physical_zones(&self, is_empty: impl Fn(ZoneId) -> bool) -> FreeZones {
        let Some(maps) = self.places.stored() else { return FreeZones::new(Vec::new(), Vec::new()) };
        let ids = (0..self.superblock.zones).map(ZoneId);
        ids.filter(|id| is_empty(*id)).for_each(|id| maps.set(id, &[]));
        let taken = self.mapped_places(maps);
        let free = |slot: Slot| {
            let zones = part_zones(self.superblock.part_zones).map(ZoneId);
            let zones = zones.filter(|zone| !taken.contains(&Place::whole(slot, *zone)));
            let is_worn = |zone: &ZoneId| self.present(slot).and_then(|p| p.info(*zone)).is_some_and(is_worn);
            zones.partition::<BTreeSet<ZoneId>, _>(|zone| !is_worn(zone))
        };
        let (free, worn) = self.places.slots().map(free).unzip();
        FreeZones::new(free, worn)
    }

    /// The worn physical zones that no map names, with their drives.
    pub(crate) fn worn_zones_without_part(&self) -> Vec<(Slot, ZoneInfo)> {
        let Some(maps) = self.places.stored() else { return Vec::new() };
        let taken = self.mapped_places(maps);
        let of = |(slot, present): (Slot, &PresentMember)| {
            let worn = present.report.iter().filter(|info| is_worn(info)).map(move |info| (slot, *info));
            worn.collect::<Vec<_>>()
        };
        let all = self.members().flat_map(of);
        all.filter(|(slot, info)| !taken.contains(&Place::whole(*slot, info.zone))).collect()
    }

    /// Resets the physical zones that no map names. Called once the new epoch is complete, so that no older map counts any more.
    pub(crate) async fn reset_unmapped_zones(&self) -> Result<(), MountError> {
        let Some(maps) = self.places.stored() else { return Ok(()) };
        let taken = self.mapped_places(maps);
        let unmapped = |slot: Slot, info: &&ZoneInfo| {
            info.state != ZoneState::Empty
                && !is_worn(info)
                && !taken.contains(&Place::whole(slot, info.zone))
        };
        let mut resets = DriveIos::default();
        for (slot, present) in self.members() {
            for info in present.report.iter().filter(|info| unmapped(slot, info)) {
                resets.push(slot, Some(PhysicalZone::at(&*present.device, info.zone).act(Action::Reset)));
                if resets.len() == RESETS_AT_A_TIME {
                    first_failure(std::mem::take(&mut resets).join().await)?;
                }
            }
        }
        first_failure(resets.join().await)
    }
}

fn is_worn(info: &ZoneInfo) -> bool {
    matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline)
}
