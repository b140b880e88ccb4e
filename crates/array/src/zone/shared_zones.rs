//! Physical zones that parts of several logical zones share: which have room, and for whom.
//!
//! A physical zone has slots of a part's rows each, which are taken in order. A part goes to the next slot once the one below takes no
//! more writes: its logical zone is full, or was reset. Rows that the part below did not need are filled with zeros then. Rows of a
//! part whose logical zone was reset are of no use until the physical zone is reset, which is when no part in the physical zone has
//! content any more.
//!
//! ```text
//!   physical zone   | part of zone 4 | part of zone 9, reset | part of zone 5, open |        |
//!   row             0                n                       2n    ^ write pointer  3n
//! ```
//!
//! A drive counts a physical zone as active from its first row until it is full or finished, whether a part is being written or not.
//! If the drive can have no more active zones, a logical zone takes a *half-filled* physical zone ([`super::choice`]). As the array
//! allows fewer active logical zones than a drive has active zones, the drive has a half-filled zone then.

pub(crate) mod drives;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use zoned::ZoneId;

use crate::layout::Slot;
use crate::layout::placement::{Place, part_zone};
use crate::rules::Rules;
use crate::zone::choice::{HalfFilled, Room, choose, choose_by_arrival};
use crate::zone::resets_under_way::ResetsUnderWay;
use crate::zone::room_requests::RoomRequests;

/// Bytes that a set takes for each of its zones, about.
const ENTRY_BYTES: usize = 16;

/// A part that left no more than this share of its rows empty is followed by another one before an empty physical zone is begun.
const SHORT_GAP_SHARE: u64 = 16;

/// A part in a physical zone that others share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tenant {
    /// The logical zone.
    pub id: ZoneId,
    /// The part's first row.
    pub row: u64,
}

/// A physical zone with content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SharedZone {
    /// The parts with content, by first row.
    tenants: Vec<Tenant>,
    /// The logical zone of the last part, which may have been reset since.
    last: ZoneId,
    /// The first row of the slot that the next part takes.
    next: u64,
    /// Rows below the next slot that are to be filled with zeros before a part goes there, at most.
    gap: u64,
    /// True while the last part may be written.
    is_open: bool,
    /// True if the drive does not count the physical zone as active: it is full, or worn.
    is_full: bool,
    /// The number of neighbouring parts whose logical zones are no neighbours.
    breaks: usize,
    /// How many parts had begun on the drive when the last one left the physical zone.
    left_at: u64,
}

impl SharedZone {
    /// A physical zone with the parts `tenants`, at least one, in the order of their rows. The last part may be written if `is_open`; the
    /// next part begins at row `next`, behind `gap` rows without content.
    pub(crate) fn new(
        tenants: Vec<Tenant>,
        (next, gap): (u64, u64),
        is_open: bool,
        is_full: bool,
    ) -> SharedZone {
        let breaks = tenants.windows(2).filter(|pair| !follow_each_other(pair)).count();
        let last = tenants.last().map(|tenant| tenant.id).unwrap_or_default();
        SharedZone { tenants, last, next, gap, is_open, is_full, breaks, left_at: 0 }
    }
}

fn follow_each_other(pair: &[Tenant]) -> bool {
    matches!(pair, [one, next] if one.id.0.checked_add(1) == Some(next.id.0))
}

/// The physical zones of one drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedZonesOfDrive {
    /// Physical zones with content, or whose reset is under way.
    pub used: BTreeMap<ZoneId, SharedZone>,
    /// Empty physical zones.
    pub empty: BTreeSet<ZoneId>,
    /// Worn physical zones without content.
    pub worn: BTreeSet<ZoneId>,
    /// The most active zones of the drive, metadata zones not counted: one more than the array allows. `None` for no limit.
    pub max_active: Option<u32>,
    /// The number of parts that have begun on the drive.
    begun: u64,
    /// The physical zone whose last part took its last write last.
    latest: Option<ZoneId>,
    /// The physical zone that a rebuild writes at the moment.
    copied_to: Option<ZoneId>,
}

/// Who takes a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taker {
    /// The first write of a logical zone, or a part that comes from another drive. Both leave [`KEPT_FOR_MOVES`].
    NewPart,
    /// A part that moves on its drive.
    Move,
}

/// The number of empty physical zones of a drive that only parts that move on the drive take. Without one, no physical zone with garbage
/// could be reclaimed.
const KEPT_FOR_MOVES: usize = 1;

/// A physical zone that a reclaim frees, and the logical zones whose parts have to move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Victim {
    pub zone: ZoneId,
    pub tenants: Vec<ZoneId>,
}

/// What becomes of a physical zone that a part has left, or that takes no more writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// The physical zone has no content that counts: it is to be reset.
    Garbage,
    /// The physical zone has room for another part, or another part is being written.
    InUse,
    /// No part fits behind the last one: the physical zone is to be finished, so that the drive counts it as active no more.
    Spent,
}

/// The physical zones of all drives, by slot.
#[derive(Debug)]
pub(crate) struct SharedZones {
    /// Rows of a physical zone, and of a part.
    zone_rows: u64,
    part_rows: u64,
    drives: Mutex<Vec<SharedZonesOfDrive>>,
    /// How many physical zones have become full by their last part's last write.
    filled: AtomicU64,
    /// How many of these a flush of all drives has covered. A power cut may reopen the others.
    flushed: AtomicU64,
    pub requests: RoomRequests,
    pub resets: ResetsUnderWay,
    rules: Rules,
}

impl SharedZones {
    pub(crate) fn new(
        zone_rows: u64,
        part_rows: u64,
        drives: Vec<SharedZonesOfDrive>,
        rules: Rules,
    ) -> SharedZones {
        let (requests, resets) = (RoomRequests::default(), ResetsUnderWay::default());
        let (filled, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
        SharedZones {
            zone_rows,
            part_rows,
            drives: Mutex::new(drives),
            filled,
            flushed,
            requests,
            resets,
            rules,
        }
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let drives = self.drives.lock();
        let of = |drive: &SharedZonesOfDrive| {
            let parts: usize = drive.used.values().map(|used| used.tenants.len()).sum();
            let used = drive.used.len() * (size_of::<(ZoneId, SharedZone)>() + ENTRY_BYTES);
            used + parts * size_of::<Tenant>() + (drive.empty.len() + drive.worn.len()) * ENTRY_BYTES
        };
        drives.iter().map(of).sum()
    }

    /// True if a physical zone has a slot that begins at row `next`.
    fn has_slot(&self, next: u64) -> bool {
        next + self.part_rows <= self.zone_rows
    }

    /// Takes a slot of each of the drives `slots` for the parts of logical zone `id`, in this order, in physical zones without another
    /// part of the zone. `is_there`: false if the drive lacks its part of a logical zone, because a rebuild has not copied the part yet;
    /// nothing goes behind such a part.
    ///
    /// Error: a drive without room; nothing is taken then.
    pub(crate) fn take(
        &self,
        id: ZoneId,
        slots: &[Slot],
        taker: Taker,
        is_there: impl Fn(Slot, ZoneId) -> bool,
    ) -> Result<Vec<Place>, Slot> {
        let mut drives = self.drives.lock();
        let choice = |slot: &Slot| {
            let (_, zone) = self.room(drives.get(slot.index())?, id, taker, |id| is_there(*slot, id))?;
            Some((*slot, zone))
        };
        let chosen: Vec<(Slot, ZoneId)> =
            slots.iter().map(|slot| choice(slot).ok_or(*slot)).collect::<Result<_, Slot>>()?;
        let mut places = Vec::with_capacity(chosen.len());
        for (slot, zone) in chosen {
            let row = drives.get_mut(slot.index()).map_or(0, |drive| drive.begin(id, zone, self.part_rows));
            places.push(Place { slot, zone, row });
        }
        drop(drives);
        self.requests.changed.notify();
        Ok(places)
    }

    /// The room of a drive for a part of `id`, and the physical zone that the part would take; `None` if there is none.
    fn room(
        &self,
        drive: &SharedZonesOfDrive,
        id: ZoneId,
        taker: Taker,
        is_there: impl Fn(ZoneId) -> bool,
    ) -> Option<(Room, ZoneId)> {
        let takes = |used: &SharedZone| {
            let takes = |tenant: &Tenant| tenant.id != id && is_there(tenant.id);
            self.has_slot(used.next) && used.tenants.iter().all(takes)
        };
        let half_filled: Vec<HalfFilled> = drive.half_filled(takes).collect();
        let short = self.part_rows / SHORT_GAP_SHARE;
        let empty = drive.empty_zone(id, taker);
        match self.rules.keeps_streams_apart() {
            true => choose(id, &half_filled, empty, short),
            false => choose_by_arrival(&half_filled, empty),
        }
    }

    /// True if the part at `place`, which was taken, fits a drive whose physical zone has its write pointer at row `pointer`. Otherwise
    /// the physical zone takes no part any more.
    pub(crate) fn fits(&self, place: Place, pointer: u64) -> bool {
        let fits = pointer <= place.row;
        if !fits {
            self.change(place, |used| used.is_full = true);
        }
        fits
    }

    /// Gives up a place that was taken and not written.
    pub(crate) fn cancel(&self, id: ZoneId, place: Place) -> Left {
        let mut drives = self.drives.lock();
        let Some(drive) = drives.get_mut(place.slot.index()) else { return Left::InUse };
        let Some(used) = drive.used.get_mut(&place.zone) else { return Left::InUse };
        let Some(at) = used.tenants.iter().position(|tenant| tenant.id == id) else { return Left::InUse };
        let Tenant { row, .. } = used.tenants.remove(at);
        used.is_open = false;
        if row == 0 {
            drive.used.remove(&place.zone);
            drive.empty.insert(place.zone);
            return Left::InUse;
        }
        used.next = row;
        match () {
            () if used.tenants.is_empty() => Left::Garbage,
            () if used.is_full => Left::Spent,
            () => Left::InUse,
        }
    }

    /// The logical zones with a part in the physical zone of `place`.
    pub(crate) fn tenants(&self, place: Place) -> Vec<ZoneId> {
        self.tenants_below(place, u64::MAX)
    }

    /// The logical zones whose parts lie below `place` in its physical zone.
    pub(crate) fn all_below(&self, place: Place) -> Vec<ZoneId> {
        self.tenants_below(place, place.row)
    }

    fn tenants_below(&self, place: Place, row: u64) -> Vec<ZoneId> {
        let drives = self.drives.lock();
        let used = drives.get(place.slot.index()).and_then(|drive| drive.used.get(&place.zone));
        let tenants = used.map_or(&[][..], |used| &used.tenants);
        tenants.iter().filter(|tenant| tenant.row < row).map(|tenant| tenant.id).collect()
    }

    /// True if no part has ever lain behind the one of `id` in its physical zone.
    pub(crate) fn is_last(&self, id: ZoneId, place: Place) -> bool {
        let drives = self.drives.lock();
        let used = drives.get(place.slot.index()).and_then(|drive| drive.used.get(&place.zone));
        used.is_some_and(|used| used.last == id)
    }

    /// True if the part of `id` is the highest one with content in a physical zone that takes no other part.
    pub(crate) fn ends_full_zone(&self, id: ZoneId, place: Place) -> bool {
        let drives = self.drives.lock();
        let used = drives.get(place.slot.index()).and_then(|drive| drive.used.get(&place.zone));
        used.is_some_and(|used| used.is_full && used.tenants.last().is_some_and(|last| last.id == id))
    }

    /// True if the physical zone of `place` has content of no logical zone but `id`.
    pub(crate) fn is_alone(&self, id: ZoneId, place: Place) -> bool {
        let drives = self.drives.lock();
        let used = drives.get(place.slot.index()).and_then(|drive| drive.used.get(&place.zone));
        used.is_none_or(|used| used.tenants.iter().all(|tenant| tenant.id == id))
    }

    /// True if `place` is the last slot of its physical zone.
    pub(crate) fn is_last_slot(&self, place: Place) -> bool {
        !self.has_slot(place.row + self.part_rows)
    }

    /// The part of `id` at `place` takes no more writes: it has `rows` rows. Nothing of the logical zone is in flight.
    pub(crate) fn end(&self, id: ZoneId, place: Place, rows: u64) {
        let (is_last_slot, gap) = (self.is_last_slot(place), self.part_rows.saturating_sub(rows));
        let ended = self.change(place, |used| {
            let is_last = used.last == id && used.is_open;
            if is_last {
                (used.gap, used.is_open) = (gap, false);
                used.is_full |= is_last_slot;
            }
            is_last
        });
        if ended == Some(true) {
            self.set_latest(place);
            self.filled.fetch_add(u64::from(is_last_slot), Ordering::AcqRel);
        }
    }

    /// The number of physical zones that have become full, if no flush has covered the last of them.
    pub(crate) fn filled_unflushed(&self) -> Option<u64> {
        let filled = self.filled.load(Ordering::Acquire);
        (filled > self.flushed.load(Ordering::Acquire)).then_some(filled)
    }

    /// A flush of all drives has covered the first `filled` physical zones that became full.
    pub(crate) fn flushed_filled(&self, filled: u64) {
        self.flushed.fetch_max(filled, Ordering::AcqRel);
    }

    /// The logical zone `id` gives up its part at `place`, with its reset, which is durable. Nothing of it is in flight.
    pub(crate) fn leave(&self, id: ZoneId, place: Place) -> Left {
        let is_last_slot = self.is_last_slot(place);
        let begun = self.drives.lock().get(place.slot.index()).map_or(0, |drive| drive.begun);
        let left = self.change(place, |used| {
            let had_part = used.tenants.iter().any(|tenant| tenant.id == id);
            used.tenants.retain(|tenant| tenant.id != id);
            let was_open = used.last == id && used.is_open;
            if was_open {
                (used.gap, used.is_open) = (self.part_rows, false);
            }
            if had_part {
                used.left_at = begun;
            }
            let left = match () {
                // A place that was left before is reset by who left it.
                () if !had_part && !was_open => Left::InUse,
                () if used.tenants.is_empty() && !used.is_open => Left::Garbage,
                () if was_open && is_last_slot && !used.is_full => {
                    used.is_full = true;
                    Left::Spent
                }
                () => Left::InUse,
            };
            (left, was_open)
        });
        if left.is_some_and(|(_, was_open)| was_open) {
            self.set_latest(place);
        }
        self.requests.changed.notify();
        left.map_or(Left::InUse, |(left, _)| left)
    }

    /// A physical zone is empty, durably so. One that a rebuild writes at the moment is not.
    pub(crate) fn give_back(&self, place: Place) {
        let mut drives = self.drives.lock();
        if let Some(drive) = drives.get_mut(place.slot.index()) {
            drive.used.remove(&place.zone);
            drive.empty.insert(place.zone);
        }
        drop(drives);
        self.requests.changed.notify();
    }

    /// A physical zone takes no part any more: it is full, or worn.
    pub(crate) fn fill(&self, place: Place) {
        self.change(place, |used| used.is_full = true);
    }

    /// A physical zone without content wore out.
    pub(crate) fn wear(&self, place: Place) {
        let mut drives = self.drives.lock();
        if let Some(drive) = drives.get_mut(place.slot.index()) {
            drive.used.remove(&place.zone);
            drive.empty.remove(&place.zone);
            drive.worn.insert(place.zone);
        }
    }

    /// The numbers of parts with content, of physical zones with content, and of empty ones, of each drive.
    pub(crate) fn counts(&self) -> Vec<(usize, usize, usize)> {
        let drives = self.drives.lock();
        let of = |drive: &SharedZonesOfDrive| {
            let parts = drive.used.values().map(|used| used.tenants.len()).sum();
            (parts, drive.used.len(), drive.empty.len())
        };
        drives.iter().map(of).collect()
    }

    /// The number of empty physical zones of a drive.
    pub(crate) fn empty_zones(&self, slot: Slot) -> usize {
        self.drives.lock().get(slot.index()).map_or(0, |drive| drive.empty.len())
    }

    /// The physical zone of a drive that a reclaim frees next: the one with the fewest parts with content of those that hold garbage and
    /// take no writes; among equals the one with the least room left. `None` if no physical zone holds garbage. `age`: the parts that
    /// have begun on the drive since the last one left the physical zone, at least; a stream of zones soon resets the others there.
    /// `may`: false for physical zones that cannot be freed.
    pub(crate) fn victim(&self, slot: Slot, age: u64, may: impl Fn(ZoneId) -> bool) -> Option<Victim> {
        let drives = self.drives.lock();
        let drive = drives.get(slot.index())?;
        let begun = |used: &SharedZone| match used.is_full {
            true => self.zone_rows / self.part_rows,
            false => used.next / self.part_rows,
        };
        let holds_garbage = |used: &SharedZone| (used.tenants.len() as u64) < begun(used);
        let may_free = |(zone, used): &(&ZoneId, &SharedZone)| {
            drive.begun.saturating_sub(used.left_at) >= age
                && !used.is_open
                && drive.copied_to != Some(**zone)
                && holds_garbage(used)
                && may(**zone)
        };
        let all = drive.used.iter().filter(may_free).filter(|(_, used)| !used.tenants.is_empty());
        let (zone, used) = all.min_by_key(|(zone, used)| {
            (used.tenants.len(), self.zone_rows.saturating_sub(used.next), **zone)
        })?;
        Some(Victim { zone: *zone, tenants: used.tenants.iter().map(|tenant| tenant.id).collect() })
    }

    /// A rebuild begins to fill a new drive, without worn zones, which takes the place of the drive in `slot`.
    pub(crate) fn replace_drive(&self, slot: Slot) {
        let mut drives = self.drives.lock();
        if let Some(drive) = drives.get_mut(slot.index()) {
            drive.empty.append(&mut drive.worn);
        }
    }

    /// A rebuild begins to write a physical zone of the new drive, which no other logical zone takes meanwhile.
    pub(crate) fn begin_copy(&self, place: Place) {
        if let Some(drive) = self.drives.lock().get_mut(place.slot.index()) {
            drive.copied_to = Some(place.zone);
        }
    }

    /// No write of the rebuild is in flight. True if the physical zone has no content that counts: the rebuild resets it.
    pub(crate) fn is_copy_needless(&self, place: Place) -> bool {
        let drives = self.drives.lock();
        let drive = drives.get(place.slot.index());
        drive.is_some_and(|drive| drive.used.get(&place.zone).is_none_or(|used| used.tenants.is_empty()))
    }

    /// The rebuild writes the physical zone no more.
    pub(crate) fn end_copy(&self, slot: Slot) {
        if let Some(drive) = self.drives.lock().get_mut(slot.index()) {
            drive.copied_to = None;
        }
    }

    fn set_latest(&self, place: Place) {
        if let Some(drive) = self.drives.lock().get_mut(place.slot.index()) {
            drive.latest = Some(place.zone);
        }
    }

    fn change<T>(&self, place: Place, change: impl FnOnce(&mut SharedZone) -> T) -> Option<T> {
        let mut drives = self.drives.lock();
        drives.get_mut(place.slot.index())?.used.get_mut(&place.zone).map(change)
    }
}

impl SharedZonesOfDrive {
    /// A drive with these empty physical zones, and these that wore out.
    pub(crate) fn new(empty: BTreeSet<ZoneId>, worn: BTreeSet<ZoneId>) -> SharedZonesOfDrive {
        SharedZonesOfDrive { empty, worn, ..SharedZonesOfDrive::default() }
    }

    /// The physical zones that take another part, of those that `takes` allows.
    fn half_filled(&self, takes: impl Fn(&SharedZone) -> bool) -> impl Iterator<Item = HalfFilled> {
        let all = self.used.iter().filter(move |(zone, used)| {
            let is_written = used.is_open || self.copied_to == Some(**zone);
            !is_written && !used.is_full && !used.tenants.is_empty() && takes(used)
        });
        all.map(|(zone, used)| HalfFilled {
            zone: *zone,
            last: used.last,
            is_latest: self.latest == Some(*zone),
            gap: used.gap,
            breaks: used.breaks,
        })
    }

    /// The empty physical zone that a part of `id` may take: the one that the fixed placement would use if it is empty.
    fn empty_zone(&self, id: ZoneId, taker: Taker) -> Option<ZoneId> {
        if taker == Taker::NewPart && self.empty.len() <= KEPT_FOR_MOVES {
            return None;
        }
        let active = self.used.values().filter(|used| !used.is_full).count();
        if self.max_active.is_some_and(|max| active >= max as usize) {
            return None;
        }
        let free = |zone: &&ZoneId| self.copied_to != Some(**zone);
        self.empty.get(&part_zone(id)).filter(free).or_else(|| self.empty.iter().find(free)).copied()
    }

    /// Begins a part of `id` in the next slot of a physical zone; returns the slot's first row.
    fn begin(&mut self, id: ZoneId, zone: ZoneId, part_rows: u64) -> u64 {
        self.empty.remove(&zone);
        self.begun += 1;
        let used = self.used.entry(zone).or_insert_with(|| SharedZone::new(Vec::new(), (0, 0), false, false));
        let row = used.next;
        if row > 0 && used.last.0.checked_add(1) != Some(id.0) {
            used.breaks += 1;
        }
        (used.last, used.is_open, used.next) = (id, true, row + part_rows);
        used.tenants.push(Tenant { id, row });
        row
    }
}

#[cfg(test)]
mod tests;
