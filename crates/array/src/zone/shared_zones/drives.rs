//! The drives of a logical zone, where an array has more drives than a stripe has units: what room each drive has, on which drives room is
//! made, and which part leaves a drive that is full of content.
//!
//! A drive may be full of content while the other drives together have room, as zones are reset in any order. The part that leaves it
//! goes to a drive with fewer parts. So the room of all drives counts for a first write (`docs/adr/0028-reclaim.md`).

use std::collections::BTreeSet;

use zoned::ZoneId;

use super::{SharedZone, SharedZones, SharedZonesOfDrive, Taker, Victim};
use crate::layout::Slot;
use crate::zone::choice::Room;

/// The room of a drive for the next part of a logical zone, and how full the drive is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DriveRoom {
    /// The room that the part would take; `None` if there is none.
    pub room: Option<Room>,
    /// Empty physical zones.
    pub empty: usize,
    /// Parts with content.
    pub parts: usize,
    /// Parts that may be written.
    pub open: usize,
}

/// A part that leaves a drive for another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Surplus {
    /// The physical zone that the part leaves, and the part alone.
    pub part: Victim,
    /// The drive that the part goes to.
    pub to: Slot,
}

impl SharedZonesOfDrive {
    fn parts(&self) -> usize {
        self.used.values().map(|used| used.tenants.len()).sum()
    }

    fn ids(&self) -> BTreeSet<ZoneId> {
        self.used.values().flat_map(|used| &used.tenants).map(|tenant| tenant.id).collect()
    }
}

impl SharedZones {
    /// What each drive has for the part of `id`, by slot. `is_there`: as in [`SharedZones::take`].
    pub(crate) fn drive_rooms(&self, id: ZoneId, is_there: impl Fn(Slot, ZoneId) -> bool) -> Vec<DriveRoom> {
        let drives = self.drives.lock();
        let of = |(slot, drive): (Slot, &SharedZonesOfDrive)| DriveRoom {
            room: self.room(drive, id, Taker::NewPart, |id| is_there(slot, id)).map(|(room, _)| room),
            empty: drive.empty.len(),
            parts: drive.parts(),
            open: drive.used.values().filter(|used| used.is_open).count(),
        };
        (0..).map(Slot).zip(drives.iter()).map(of).collect()
    }

    /// A part that takes no more writes on the drive in `slot`, and a drive without a part of its zone, to which the part goes: of those
    /// with fewer parts, by two at least, the one with the fewest. `None` if there is none. Both drives are nearer to the mean then, so
    /// that parts leave drives finitely often. `may`: false for physical zones that cannot be freed. `works`: false for drives that
    /// failed or are missing.
    pub(crate) fn surplus(
        &self,
        slot: Slot,
        may: impl Fn(ZoneId) -> bool,
        works: impl Fn(Slot) -> bool,
    ) -> Option<Surplus> {
        let drives = self.drives.lock();
        let drive = drives.get(slot.index()).filter(|_| works(slot))?;
        let (parts, slots) = (drive.parts(), (0..).map(Slot));
        let others = slots.zip(drives.iter()).map(|(slot, drive)| (drive.parts(), slot, drive));
        let mut targets: Vec<_> = others.filter(|(of, slot, _)| of + 1 < parts && works(*slot)).collect();
        targets.sort_by_key(|(parts, slot, _)| (*parts, *slot));
        let takes_no_writes = |(zone, used): &(&ZoneId, &SharedZone)| {
            !used.is_open && drive.copied_to != Some(**zone) && may(**zone)
        };
        targets.into_iter().find_map(|(_, to, other)| {
            let there = other.ids();
            let all = drive.used.iter().filter(takes_no_writes);
            let mut ids = all.flat_map(|(zone, used)| used.tenants.iter().map(|tenant| (*zone, tenant.id)));
            let (zone, id) = ids.find(|(_, id)| !there.contains(id))?;
            Some(Surplus { part: Victim { zone, tenants: vec![id] }, to })
        })
    }
}

/// The drives without room, of those that `may` allows, on which room is made for a zone of `width` drives: as many as it lacks, those
/// with the fewest parts, which hold the most garbage. `None` if fewer drives than it lacks may make room.
pub(crate) fn drives_to_free(
    width: usize,
    rooms: &[DriveRoom],
    may: impl Fn(Slot) -> bool,
) -> Option<Vec<Slot>> {
    let drives = || (0..).map(Slot).zip(rooms);
    let lacking = width.saturating_sub(drives().filter(|(_, drive)| drive.room.is_some()).count());
    let mut short: Vec<(usize, Slot)> = drives()
        .filter(|(slot, drive)| drive.room.is_none() && may(*slot))
        .map(|(slot, drive)| (drive.parts, slot))
        .collect();
    short.sort_unstable();
    let slots: Vec<Slot> = short.into_iter().map(|(_, slot)| slot).take(lacking).collect();
    (slots.len() == lacking).then_some(slots)
}
