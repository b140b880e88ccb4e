//! Rebuild notes: records on the new drive that let a rebuild resume after a restart.
//!
//! The notes are records of the new drive's own metadata log: a superblock, which names its slot, and generation and
//! end of every copied zone. A zone is noted when its content is durable on **all** drives. That content stays valid
//! as long as generation and end stay the same. A resumed rebuild copies all other zones again.

use std::collections::BTreeMap;
use std::sync::Arc;

use zoned::{Action, Blocks, BufMut, Durability, Result, ZoneId, ZoneState};

use crate::core::Core;
use crate::format::record::{self, Body, RecordId};
use crate::format::zone_entries::{self, ZoneEntry};
use crate::layout::placement::{metadata_zones, next_metadata_zone, part_zones};
use crate::layout::row_set::RowSet;
use crate::layout::running_parity::extend_to_whole_stripe;
use crate::layout::stored_maps::PlacedBy;
use crate::layout::{Role, Slot};
use crate::member::log_contents::LogContents;
use crate::member::member_drive::MemberDrive;
use crate::member::physical_zone::PhysicalZone;

/// Generation and end of the zones that a new drive holds.
pub(crate) type NotedZones = BTreeMap<ZoneId, ZoneEntry>;

/// The log of a new drive until the drive is a member.
pub(crate) struct RebuildNotes {
    device: MemberDrive,
    place: RecordId,
    zone: ZoneId,
    pointer: u64,
}

impl RebuildNotes {
    /// Begins the rebuild notes, which name the zones kept from an earlier run, in a metadata zone without
    /// older notes. Then resets the older notes.
    pub(crate) async fn begin(
        core: &Core,
        slot: Slot,
        device: &MemberDrive,
        known: &NotedZones,
        old: Option<&LogContents>,
    ) -> Result<RebuildNotes> {
        let used = |zone: ZoneId| {
            old.is_some_and(|log| log.epochs.values().any(|contents| contents.zones.contains(&zone)))
        };
        let zones = device.report(metadata_zones()).await?;
        let mut free: Vec<_> = zones.iter().filter(|info| !used(info.zone)).collect();
        free.sort_by_key(|info| info.state != ZoneState::Empty);
        let target = free.first().map_or(ZoneId(0), |info| info.zone);
        if zones.get(target.index()).is_none_or(|info| info.state != ZoneState::Empty) {
            device.zone(target, Action::Reset).await?;
            device.flush().await?;
        }
        let superblock = core.members.config.lock().clone();
        let place = RecordId {
            array: superblock.uuid,
            member: slot,
            epoch: core.members.epoch(),
            sequence: old.map_or(0, |log| log.sequence + 1),
            checkpoint: false,
        };
        let mut notes = RebuildNotes { device: device.clone(), place, zone: target, pointer: 0 };
        notes.write(&Body::Superblock(superblock)).await?;
        let mut entries = Vec::with_capacity(core.ctx.geometry.zones as usize);
        for id in (0..core.ctx.geometry.zones).map(ZoneId) {
            let entry = known.get(&id).copied().unwrap_or_default();
            entries.push(if notes.note_bad_rows(core, id, entry).await? {
                entry
            } else {
                ZoneEntry::default()
            });
        }
        device.flush().await?;
        for (first, entries) in zone_entries::split(&entries, core.ctx.geometry.block_size) {
            if entries.iter().any(|entry| entry.end.is_some()) {
                notes.write(&Body::RebuiltZones { first, entries }).await?;
            }
        }
        device.flush().await?;
        for info in zones.iter().filter(|info| info.zone != target && info.state != ZoneState::Empty) {
            device.zone(info.zone, Action::Reset).await?;
        }
        device.flush().await?;
        Ok(notes)
    }

    /// The metadata zone for the drive's log once the drive is a member.
    pub(crate) fn zone_of_member_log(&self) -> ZoneId {
        next_metadata_zone(self.zone)
    }

    /// The sequence number of the first record in the new drive's log once the drive is a member.
    pub(crate) fn sequence_of_member_log(&self) -> u64 {
        self.place.sequence
    }

    /// Notes copied zones, after their content was made durable on all drives. If the log has no room,
    /// nothing is noted: a resumed rebuild copies these zones again.
    pub(crate) async fn note(&mut self, core: &Arc<Core>, zones: &[(ZoneId, ZoneEntry)]) -> Result<()> {
        core.members.flush_members().await?;
        self.device.flush().await?;
        for (zone, entry) in zones {
            if self.note_bad_rows(core, *zone, *entry).await? {
                self.device.flush().await?;
                self.write(&Body::RebuiltZones { first: *zone, entries: vec![*entry] }).await?;
            }
        }
        self.device.flush().await
    }

    /// Records the bad rows of a zone, before the zone is noted. False if the log has no room.
    async fn note_bad_rows(&mut self, core: &Core, zone: ZoneId, entry: ZoneEntry) -> Result<bool> {
        let rows = core.members.member(self.place.member).bad_rows.of(zone);
        if rows.is_empty() || entry.end.is_none() {
            return Ok(true);
        }
        let placed_by = placed_by(core, zone, self.place.member);
        self.write(&Body::BadRows { zone, generation: entry.generation, placed_by, rows }).await
    }

    /// Writes a rebuild note. False if the log has no room.
    async fn write(&mut self, body: &Body) -> Result<bool> {
        let geometry = self.device.geometry();
        let bytes = record::encode(self.place, body, geometry.block_size);
        let blocks = bytes.len() as u64 / u64::from(geometry.block_size);
        if self.pointer + blocks > geometry.zone_capacity.0 {
            return Ok(false);
        }
        let at = geometry.start(self.zone).plus(Blocks(self.pointer));
        self.pointer += blocks;
        self.place.sequence += 1;
        self.device.write(at, bytes, Durability::Cached).await.map(|()| true)
    }

    /// Resets the rebuild notes, after the new drive became a member.
    pub(crate) async fn end(self) -> Result<()> {
        self.device.zone(self.zone, Action::Reset).await?;
        self.device.flush().await
    }
}

/// The zones that the notes of a drive contain.
pub(crate) fn known(log: &LogContents) -> NotedZones {
    let mut newest: BTreeMap<ZoneId, (u64, ZoneEntry)> = BTreeMap::new();
    for (zone, (sequence, entry)) in log.epochs.values().flat_map(|contents| &contents.rebuilt) {
        let place = newest.entry(*zone).or_insert((*sequence, *entry));
        if place.0 <= *sequence {
            *place = (*sequence, *entry);
        }
    }
    newest.into_iter().map(|(zone, (_, entry))| (zone, entry)).collect()
}

/// Restores the bad rows that the rebuild notes record for the kept zones of a new drive. A zone that was reset since it was found
/// unchanged has none.
pub(crate) fn keep_bad_rows(core: &Core, slot: Slot, log: &LogContents, kept: &NotedZones) {
    for (id, rows) in bad_rows(core, slot, log, kept) {
        let zone = core.zones.zone(id);
        if kept.get(&id).is_some_and(|entry| entry.generation == zone.generation) {
            core.members.member(slot).bad_rows.set(id, rows);
        }
    }
}

/// The bad rows that the rebuild notes record for the given zones.
fn bad_rows(core: &Core, slot: Slot, log: &LogContents, there: &NotedZones) -> Vec<(ZoneId, RowSet)> {
    let newest = |id: &ZoneId, entry: &ZoneEntry| {
        let all = log
            .epochs
            .values()
            .filter_map(|contents| contents.bad_rows.get(&(*id, placed_by(core, *id, slot))));
        let ours = all.filter(|record| record.generation == entry.generation);
        ours.max_by_key(|record| record.sequence).map(|record| (*id, record.content.clone()))
    };
    there.iter().filter_map(|(id, entry)| newest(id, entry)).collect()
}

/// The version of the map that brought the part of a zone to the drive in `slot`.
fn placed_by(core: &Core, id: ZoneId, slot: Slot) -> PlacedBy {
    let places = &core.ctx.places;
    places.role(id, slot).map(|role| places.placed_by(id, role)).unwrap_or_default()
}

/// True if a part of a full zone that ends at `end` has the parity of the zone's last stripe in its place, or holds none of it. The
/// zone may have been noted before it became full, without that parity.
async fn holds_last_parity(
    core: &Core,
    part: &PhysicalZone<'_>,
    (id, role): (ZoneId, Role),
    end: Blocks,
) -> bool {
    let layout = &core.ctx.layout;
    let stripe = layout.stripe_of(end);
    let first = layout.row(stripe);
    let count = layout.used_by_full_zone(role, end).saturating_sub(first);
    let Some(parity) = layout.parity_on(stripe, role).filter(|_| count > 0) else { return true };
    // A zone whose parity cannot be compared is copied again, and the copy reports the error.
    let computed = core.reconstruct.parity(id, (stripe, parity), end, 0..count).await;
    let Ok(mut computed) = computed else { return false };
    extend_to_whole_stripe(layout, (stripe, parity), end, core.ctx.bytes(1), &mut computed);
    let found = part.read(first, BufMut::zeroed(core.ctx.bytes(count))).await;
    found.is_ok_and(|found| *found == *computed)
}

/// The zones with a rebuild note that a returning drive still holds unchanged.
pub(crate) async fn unchanged_noted_zones(
    core: &Core,
    slot: Slot,
    device: &MemberDrive,
    noted: &NotedZones,
) -> Result<NotedZones> {
    let report = device.report(part_zones(core.members.part_zones())).await?;
    let mut kept = NotedZones::new();
    for (id, entry) in noted {
        let id = *id;
        let Some(role) = core.ctx.places.role(id, slot) else { continue };
        let Some(place) = core.ctx.places.place(id, role) else { continue };
        let Some(info) = report.iter().find(|info| info.zone == place.zone) else { continue };
        let (generation, end, state) = {
            let zone = core.zones.zone(id);
            (zone.generation, zone.readable(), zone.state)
        };
        if !core.ctx.rules.checks_rebuild_notes() {
            kept.insert(id, ZoneEntry { generation, end: Some(end) });
            continue;
        }
        let same = generation == entry.generation && entry.end == Some(end) && state != ZoneState::Empty;
        let rows = core.ctx.layout.used(role, end);
        let there = match info.state {
            ZoneState::Offline | ZoneState::ReadOnly => false,
            ZoneState::Full => state == ZoneState::Full,
            _ if state == ZoneState::Full => info.pointer.0 >= rows,
            _ => info.pointer.0 == rows,
        };
        let part = PhysicalZone::with_part(&**device, place);
        if same && there && (info.pointer.0 == rows || holds_last_parity(core, &part, (id, role), end).await)
        {
            kept.insert(id, *entry);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use units::{VirtualDriver, block_on};
    use zoned::emu::{Emu, EmuOptions};
    use zoned::{Action, Buf, Driver, Durability, ZonedDevice};

    use super::*;
    use crate::member::log_contents::{Dated, EpochContents};
    use crate::{Array, CreateOptions, OpenOptions, create};

    #[test]
    fn a_zone_that_was_reset_since_it_was_found_unchanged_gets_no_bad_rows() {
        let driver: Arc<dyn Driver> = VirtualDriver::new(1);
        let drive = |n: u32| {
            let options = EmuOptions {
                name: format!("emu:{n}"),
                zones: 6,
                zone_size: Blocks(64),
                zone_capacity: Blocks(64),
                max_open: Some(8),
                max_active: Some(8),
                ..EmuOptions::default()
            };
            Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
        };
        let drives: Vec<Arc<dyn ZonedDevice>> = (0..3).map(drive).collect();
        block_on(&*driver, async {
            let options = CreateOptions { stripe_unit: zoned::Bytes(8192), ..CreateOptions::default() };
            create(&drives, &options).await.expect("created");
            let array = Array::open(drives, OpenOptions::default()).await.expect("opened");
            let (device, core): (&dyn ZonedDevice, _) = (&*array, &array.core);
            let (reset, unchanged) = (ZoneId(0), ZoneId(1));
            let rows: RowSet = std::iter::once(0..1).collect();
            let (mut kept, mut contents) = (NotedZones::new(), EpochContents::default());
            for id in [reset, unchanged] {
                let at = device.geometry().start(id);
                device.write(at, Buf::copy_from(&vec![7; 4096]), Durability::Cached).await.expect("written");
                let generation = core.zones.zone(id).generation;
                kept.insert(id, ZoneEntry { generation, end: Some(Blocks(1)) });
                contents.bad_rows.insert(
                    (id, PlacedBy::default()),
                    Dated { generation, sequence: 1, content: rows.clone() },
                );
            }
            let mut log = LogContents::default();
            log.epochs.insert(1, contents);
            device.zone(reset, Action::Reset).await.expect("reset");
            keep_bad_rows(core, Slot(2), &log, &kept);
            let bad = &core.members.member(Slot(2)).bad_rows;
            assert!(bad.of(reset).is_empty(), "the next life has no bad rows");
            assert_eq!(bad.of(unchanged), rows);
        });
    }
}
