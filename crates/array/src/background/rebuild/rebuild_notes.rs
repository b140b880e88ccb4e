//! Rebuild notes: records on the new drive that let a rebuild resume after a restart.
//!
//! The notes are records of the new drive's own metadata log: a superblock, which names its slot, and generation and
//! end of every copied zone. A zone is noted when its content is durable on **all** drives. That content stays valid
//! as long as generation and end stay the same. A resumed rebuild copies all other zones again.

use std::collections::BTreeMap;
use std::sync::Arc;

use zoned::{Action, Blocks, Durability, Result, ZoneId, ZoneState};

use crate::core::Core;
use crate::format::record::{self, Body, RecordId};
use crate::format::zone_entries::{self, ZoneEntry};
use crate::layout::Slot;
use crate::layout::placement::{metadata_zones, next_metadata_zone, part_zones};
use crate::layout::row_set::RowSet;
use crate::member::log_contents::LogContents;
use crate::member::member_drive::MemberDrive;

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
        self.write(&Body::BadRows { zone, generation: entry.generation, rows }).await
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

/// The bad rows that the rebuild notes record for the given zones.
pub(crate) fn bad_rows(log: &LogContents, there: &NotedZones) -> Vec<(ZoneId, RowSet)> {
    let newest = |id: &ZoneId, entry: &ZoneEntry| {
        let all = log.epochs.values().filter_map(|contents| contents.bad_rows.get(id));
        let ours = all.filter(|record| record.generation == entry.generation);
        ours.max_by_key(|record| record.sequence).map(|record| (*id, record.content.clone()))
    };
    there.iter().filter_map(|(id, entry)| newest(id, entry)).collect()
}

/// The zones with a rebuild note that a returning drive still holds unchanged.
pub(crate) async fn unchanged_noted_zones(
    core: &Core,
    slot: Slot,
    device: &MemberDrive,
    noted: &NotedZones,
) -> Result<NotedZones> {
    let report = device.report(part_zones(core.ctx.geometry.zones)).await?;
    let mut kept = NotedZones::new();
    for (info, id) in report.iter().zip((0..).map(ZoneId)) {
        let Some(entry) = noted.get(&id) else { continue };
        let zone = core.zones.zone(id);
        let same = zone.generation == entry.generation
            && entry.end == Some(zone.readable())
            && zone.state != ZoneState::Empty;
        let rows = core.ctx.layout.used(core.ctx.placement.role(id, slot), zone.readable());
        let there = match info.state {
            ZoneState::Offline | ZoneState::ReadOnly => false,
            ZoneState::Full => zone.state == ZoneState::Full,
            _ if zone.state == ZoneState::Full => info.pointer.0 >= rows,
            _ => info.pointer.0 == rows,
        };
        if !core.ctx.rules.checks_rebuild_notes() {
            let end = Some(zone.readable());
            kept.insert(id, ZoneEntry { generation: zone.generation, end });
        } else if same && there {
            kept.insert(id, *entry);
        }
    }
    Ok(kept)
}
