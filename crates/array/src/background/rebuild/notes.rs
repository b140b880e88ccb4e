//! What a rebuild writes down on the new drive, so that it goes on there after a restart.
//!
//! The notes are records of the drive's own metadata log: a superblock, which says whose slot it is to have, and for
//! every zone that is there its generation and its end. A zone is noted when its content is durable on **all**
//! drives: that content stays as long as generation and end are the same, whatever power cuts there are. After a
//! restart a zone whose generation or end differ is copied again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use uuid::Uuid;
use zoned::{Action, Blocks, Durability, Result, ZoneId, ZoneState, ZonedDevice};

use crate::Sabotage;
use crate::core::Core;
use crate::format::record::{self, Body, Place};
use crate::format::zone_entries::{ZoneEntry, per_block};
use crate::layout::Slot;
use crate::member::METADATA_ZONES;
use crate::mount::log_contents::Tale;

/// What a new drive is known to hold, by zone.
pub(crate) type Known = BTreeMap<ZoneId, ZoneEntry>;

/// The notes of a rebuild: the new drive's log until it is a member.
pub(crate) struct Notes {
    device: Arc<dyn ZonedDevice>,
    place: Place,
    zone: ZoneId,
    pointer: u64,
}

impl Notes {
    /// Begins the notes of a drive in a metadata zone without older ones, with what is known to be there; then the
    /// older ones go.
    pub(crate) async fn begin(
        core: &Core,
        slot: Slot,
        device: &Arc<dyn ZonedDevice>,
        known: &Known,
        old: Option<&Tale>,
    ) -> Result<Notes> {
        let used = |zone: ZoneId| {
            old.is_some_and(|tale| tale.epochs.values().any(|told| told.zones.contains(&zone)))
        };
        let zones = device.report(0..METADATA_ZONES).await?;
        let mut free: Vec<_> = zones.iter().filter(|info| !used(info.zone)).collect();
        free.sort_by_key(|info| info.state != ZoneState::Empty);
        let target = free.first().map_or(ZoneId(0), |info| info.zone);
        if zones.get(target.index()).is_none_or(|info| info.state != ZoneState::Empty) {
            device.zone(target, Action::Reset).await?;
            device.flush().await?;
        }
        let superblock = core.config.lock().clone();
        let place = Place {
            array: superblock.uuid,
            member: slot,
            epoch: core.epoch(),
            sequence: old.map_or(0, |tale| tale.sequence + 1),
            checkpoint: false,
        };
        let mut notes = Notes { device: Arc::clone(device), place, zone: target, pointer: 0 };
        notes.write(&Body::Superblock(superblock)).await?;
        let mut entries = Vec::with_capacity(core.geometry.zones as usize);
        for id in (0..core.geometry.zones).map(ZoneId) {
            let entry = known.get(&id).copied().unwrap_or_default();
            entries.push(if notes.lost(core, id, entry).await? { entry } else { ZoneEntry::default() });
        }
        device.flush().await?;
        let count = per_block(core.geometry.block_size).max(1);
        for (first, part) in (0_u32..).step_by(count).zip(entries.chunks(count)) {
            if part.iter().any(|entry| entry.end.is_some()) {
                notes.write(&Body::Rebuilt { first: ZoneId(first), entries: part.to_vec() }).await?;
            }
        }
        device.flush().await?;
        for info in zones.iter().filter(|info| info.zone != target && info.state != ZoneState::Empty) {
            device.zone(info.zone, Action::Reset).await?;
        }
        device.flush().await?;
        Ok(notes)
    }

    /// The metadata zone that the drive's log begins in once it is a member.
    pub(crate) fn log_zone(&self) -> ZoneId {
        ZoneId((self.zone.0 + 1) % METADATA_ZONES)
    }

    /// The sequence that its records begin with.
    pub(crate) fn sequence(&self) -> u64 {
        self.place.sequence
    }

    /// Notes that zones are there. What they hold is made durable on all drives first. Without room nothing is noted:
    /// then these are copied again after a restart.
    pub(crate) async fn note(&mut self, core: &Arc<Core>, zones: &[(ZoneId, ZoneEntry)]) -> Result<()> {
        core.flush_members().await?;
        self.device.flush().await?;
        for (zone, entry) in zones {
            if self.lost(core, *zone, *entry).await? {
                self.device.flush().await?;
                self.write(&Body::Rebuilt { first: *zone, entries: vec![*entry] }).await?;
            }
        }
        self.device.flush().await
    }

    /// Notes what was lost of a zone: durable before it is said that the zone is there. False where there is no room for it.
    async fn lost(&mut self, core: &Core, zone: ZoneId, entry: ZoneEntry) -> Result<bool> {
        let ranges = core.member(self.place.member).lost.of(zone);
        if ranges.is_empty() || entry.end.is_none() {
            return Ok(true);
        }
        self.write(&Body::Lost { zone, generation: entry.generation, ranges }).await
    }

    /// False where there is no room.
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

    /// The drive is a member: they are not needed any more.
    pub(crate) async fn end(self) -> Result<()> {
        self.device.zone(self.zone, Action::Reset).await?;
        self.device.flush().await
    }
}

/// What the notes on a drive say, if it is the one that fills a slot: `uuid`.
pub(crate) fn known(tale: &Tale) -> Known {
    let mut newest: BTreeMap<ZoneId, (u64, ZoneEntry)> = BTreeMap::new();
    for (zone, (sequence, entry)) in tale.epochs.values().flat_map(|told| &told.rebuilt) {
        let place = newest.entry(*zone).or_insert((*sequence, *entry));
        if place.0 <= *sequence {
            *place = (*sequence, *entry);
        }
    }
    newest.into_iter().map(|(zone, (_, entry))| (zone, entry)).collect()
}

/// What the notes say was lost of the zones that are there.
pub(crate) fn lost(tale: &Tale, there: &Known) -> Vec<(ZoneId, Vec<Range<u64>>)> {
    let newest = |id: &ZoneId, entry: &ZoneEntry| {
        let all = tale.epochs.values().filter_map(|told| told.lost.get(id));
        let ours = all.filter(|(generation, ..)| *generation == entry.generation);
        ours.max_by_key(|(_, sequence, _)| *sequence).map(|(.., ranges)| (*id, ranges.clone()))
    };
    there.iter().filter_map(|(id, entry)| newest(id, entry)).collect()
}

impl Core {
    /// The epoch of this mount.
    pub(crate) fn epoch(&self) -> u64 {
        self.good().map(|good| good.log.lock().epoch).next().unwrap_or(0)
    }

    /// Which zones a drive that comes back holds still: those that were not changed since they were noted.
    pub(crate) async fn still_there(
        &self,
        slot: Slot,
        device: &Arc<dyn ZonedDevice>,
        noted: &Known,
    ) -> Result<Known> {
        let report = device.report(METADATA_ZONES..METADATA_ZONES + self.geometry.zones).await?;
        let mut kept = Known::new();
        for (info, id) in report.iter().zip((0..).map(ZoneId)) {
            let Some(entry) = noted.get(&id) else { continue };
            let zone = self.zone(id);
            let same = zone.generation == entry.generation
                && entry.end == Some(zone.readable())
                && zone.state != ZoneState::Empty;
            let rows = self.layout.used(id, slot, zone.readable());
            let there = match info.state {
                ZoneState::Offline | ZoneState::ReadOnly => false,
                ZoneState::Full => zone.state == ZoneState::Full,
                _ if zone.state == ZoneState::Full => info.pointer.0 >= rows,
                _ => info.pointer.0 == rows,
            };
            if self.sabotage == Some(Sabotage::Notes) {
                let end = Some(zone.readable());
                kept.insert(id, ZoneEntry { generation: zone.generation, end });
            } else if same && there {
                kept.insert(id, *entry);
            }
        }
        Ok(kept)
    }
}

/// A new identity.
pub(crate) fn new_uuid(core: &Core) -> Uuid {
    crate::admin::create::uuid(&*core.driver)
}
