//! Step 1 of a mount: reads the superblocks, metadata logs and zone reports of all drives, and merges their statements about
//! each zone. Nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;
use zoned::{Blocks, Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState};

use crate::OpenOptions;
use crate::background::idle_spares::IdleSpare;
use crate::format::shape::Shape;
use crate::format::superblock::{self, Placement, Superblock};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::placement::{METADATA_ZONES, Place, Rotation, part_zones};
use crate::layout::places::Places;
use crate::layout::row_set::RowSet;
use crate::layout::stored_maps::StoredMaps;
use crate::layout::{Layout, Role, Slot, Stripe};
use crate::member::drive_fits::check_drive_fits;
use crate::member::drive_ios::run_at_once;
use crate::member::log_contents::{self, EpochContents, LogContents, Partial};
use crate::member::log_reader::Claim;
use crate::member::member_drive::MemberDrive;
use crate::member::needed_parity::NeededParity;
use crate::mount::candidate::Candidate;
use crate::mount::decide::{Decision, Evidence, PartState, decide};
use crate::mount::errors::{FromDrive, MountError, Unusable};
use crate::zone::stale_rows::{RelocatedParities, StaleRows};
use crate::zone::worn_zones::WornZone;
use crate::zone::{MAX_BYTES_IN_FLIGHT, MAX_TRANSFER};

/// A present drive, the contents of its log, and its zone reports.
pub(crate) struct PresentMember {
    pub device: MemberDrive,
    pub log: LogContents,
    /// The metadata zones.
    pub zones: Vec<ZoneInfo>,
    /// The physical zones behind the metadata zones, in order.
    pub report: Vec<ZoneInfo>,
    /// The metadata zone of the drive's next checkpoint and its written blocks, if `record_failures` began
    /// the checkpoint.
    pub begun: Option<(ZoneId, u64)>,
}

/// A mount under way.
pub(crate) struct Mount {
    pub options: OpenOptions,
    pub name: Arc<str>,
    pub superblock: Superblock,
    pub layout: Layout,
    pub places: Places,
    /// The drives by slot; `None` if the drive is missing or failed.
    pub present: Vec<Option<PresentMember>>,
    /// The newest epoch that is complete on all present drives, and the epoch that this mount begins.
    pub epoch: u64,
    pub next: u64,
    doubt: u64,
    /// Missing drives that are not recorded as failed yet.
    pub newly_failed: Vec<Slot>,
    /// The new drive whose rebuild goes on.
    pub candidate: Option<Candidate>,
    /// Present drives that this mount leaves out.
    pub unusable: Vec<(Slot, Unusable)>,
    /// Zones whose map was passed over, because it names a physical zone of another zone's map.
    pub contested_maps: BTreeSet<ZoneId>,
    /// The first row of the last part in each physical zone that parts of several logical zones share; empty if none do.
    pub last_rows: BTreeMap<(Slot, ZoneId), u64>,
    /// The idle spares that are present, in the order in which they are taken.
    pub spares: Vec<IdleSpare>,
}

/// A drive that claims to be a member, and its log.
struct Claimant {
    device: MemberDrive,
    claim: Claim,
    log: LogContents,
    /// The metadata zones.
    zones: Vec<ZoneInfo>,
}

impl Mount {
    /// Reads all drives for a mount. `refused`: the drives that earlier tries of this mount failed on.
    pub(crate) async fn gather(
        claims: Vec<(MemberDrive, Claim)>,
        options: OpenOptions,
        refused: &[Slot],
    ) -> Result<Mount, MountError> {
        let (spares, claims): (Vec<_>, Vec<_>) =
            claims.into_iter().partition(|(_, claim)| claim.spare().is_some());
        let (complete, incomplete) = read_logs(claims).await?;
        let superblock = newest_superblock(&complete, &incomplete).of_array()?;
        let mut present = place_members(complete, &superblock).await?;
        let (epoch, mut unusable) = leave_out_unusable(&mut present, refused);
        let newly_failed: Vec<Slot> = (0..)
            .map(Slot)
            .zip(present.iter().zip(&superblock.members))
            .filter(|(_, (place, member))| place.is_none() && !member.failed)
            .map(|(slot, _)| slot)
            .collect();
        let bad = incomplete.iter().filter(|one| one.log.unreadable() > 0 && one.is_expected(&superblock));
        unusable.extend(bad.map(|one| (one.claim.slot, Unusable::Unreadable)));
        if lacking_slots(&present, &superblock).count() > superblock.parities as usize {
            return Err(too_few_drives_error(&superblock, &newly_failed, &unusable)).of_array();
        }
        let name = match superblock.label.as_str() {
            "" => Arc::from(format!("array:{}", superblock.uuid)),
            label => Arc::from(format!("array:{label}")),
        };
        let Some(epoch) = epoch else {
            let why = "no checkpoint is whole on all drives: their metadata is damaged. Leave the drive out that was \
                       changed last";
            return Err(Error::new(ErrorKind::Damaged, &name, "open").because(why)).of_array();
        };
        let newest = present.iter().flatten().filter_map(|present| present.log.epochs.last_key_value());
        let next = newest.map(|(epoch, _)| *epoch).max().unwrap_or(0) + 1;
        let Shape { layout, placement, drives, zones, .. } = Shape::of(&superblock);
        let maps = match placement {
            Placement::Fixed => None,
            Placement::Stored => Some(Arc::new(StoredMaps::new(drives, layout.width, zones))),
        };
        let places = match &maps {
            None => Places::Computed(Rotation { drives }),
            Some(maps) => Places::Stored(Arc::clone(maps)),
        };
        let mut mount = Mount {
            candidate: find_candidate(incomplete, &superblock),
            doubt: stripes_in_doubt(&superblock, &layout),
            unusable,
            spares: place_spares(spares, &superblock),
            options,
            name,
            superblock,
            layout,
            places,
            present,
            epoch,
            next,
            newly_failed,
            contested_maps: BTreeSet::new(),
            last_rows: BTreeMap::new(),
        };
        if let Some(maps) = maps {
            mount.load_maps(&maps);
        }
        mount.reread_logs().await?;
        Ok(mount)
    }

    /// Reads the logs again if partial parity or frames that the first reading dropped are needed. The first reading keeps only
    /// those near the drives' write pointers; a stale row that was not relocated may lie lower, and so may blocks that a drive's
    /// cache lost whose physical zone the power cut filled.
    async fn reread_logs(&mut self) -> Result<(), MountError> {
        let (layout, block) = (self.layout, self.superblock.block_size as usize);
        let mut needed = NeededParity { doubt: self.doubt, lowest: Vec::new(), all_frames: BTreeSet::new() };
        let mut again = false;
        for id in (0..self.superblock.zones).map(ZoneId) {
            let (stale, relocated) = self.relocated_content(id, self.entry(id).generation);
            let rows = layout.roles().filter_map(|role| match self.part(id, role) {
                PartState::Written(row) => Some(stale.first_row_without_data(&layout, block, role, row)),
                PartState::Full => Some(stale.first_row_without_data(&layout, block, role, layout.part_rows)),
                PartState::Missing => None,
            });
            let uncertain_parity = stale.uncertain_parity(&layout, &relocated);
            let suspect = uncertain_parity.first().map_or(u64::MAX, |(stripe, _)| layout.row(*stripe));
            let lowest = rows.min().unwrap_or(0).min(suspect);
            let dropped = self.places.slots().filter_map(|slot| self.contents(slot)?.dropped.get(&id)).max();
            again |= dropped.is_some_and(|stripe| layout.row(Stripe(stripe.0 + 2)) > lowest);
            needed.lowest.push(lowest);
            if self.may_lack_frames(id) {
                again |= needed.all_frames.insert(id);
            }
        }
        if again {
            let (array, shape) = (self.superblock.uuid, Shape::of(&self.superblock));
            for (slot, present) in (0..).map(Slot).zip(&mut self.present) {
                let Some(present) = present else { continue };
                (present.log, _) =
                    log_contents::read(&present.device, &shape, array, slot, &needed).await.of(slot)?;
                if present.log.unreadable_from(self.epoch) > 0 {
                    let error = Error::new(ErrorKind::Media, &self.name, "open");
                    return Err(error.because(format!(
                        "the log of drive {} could be read a moment ago, and cannot now: open the array again",
                        slot.0
                    )))
                    .of_array();
                }
            }
        }
        Ok(())
    }

    /// True if the first reading dropped frames of a zone of which a physical zone is full, and whose end is not recorded.
    fn may_lack_frames(&self, id: ZoneId) -> bool {
        let is_filled = || self.layout.roles().any(|role| self.part(id, role) == PartState::Full);
        let mut logs = self.places.slots().filter_map(|slot| self.contents(slot));
        logs.any(|contents| contents.frames.get(&id).is_some_and(|known| known.dropped > Blocks::ZERO))
            && self.entry(id).end.is_none()
            && is_filled()
    }

    pub(crate) fn contents(&self, slot: Slot) -> Option<&EpochContents> {
        self.present.get(slot.index())?.as_ref()?.log.epochs.get(&self.epoch)
    }

    /// The last slot without a drive that the array can lack: as many drives are missing as there are parities. `None` if the
    /// mount can do without another drive.
    pub(crate) fn last_lacking_slot(&self) -> Option<Slot> {
        lacking_slots(&self.present, &self.superblock).nth(self.layout.parities as usize - 1)
    }

    /// The drive in `slot`, if it is present.
    pub(crate) fn present(&self, slot: Slot) -> Option<&PresentMember> {
        self.present.get(slot.index())?.as_ref()
    }

    /// The drive with a part of a zone, and the report of the physical zone. `None` if the drive is missing.
    pub(crate) fn physical_zone(&self, id: ZoneId, role: Role) -> Option<(Slot, &PresentMember, &ZoneInfo)> {
        let Place { slot, zone, .. } = self.places.place(id, role)?;
        let present = self.present(slot)?;
        Some((slot, present, present.info(zone)?))
    }

    /// The present drives with a part of a zone and the reports of the physical zones, in the order of the drives.
    pub(crate) fn physical_zones(
        &self,
        id: ZoneId,
    ) -> impl Iterator<Item = (Slot, &PresentMember, &ZoneInfo)> {
        let roles = self.places.slots().filter_map(move |slot| self.places.role(id, slot));
        roles.filter_map(move |role| self.physical_zone(id, role))
    }

    /// The state of a part of a zone.
    pub(crate) fn part(&self, id: ZoneId, role: Role) -> PartState {
        let Some(place) = self.places.place(id, role) else {
            // A zone without a map has no content.
            return PartState::Written(0);
        };
        let Some((_, _, info)) = self.physical_zone(id, role) else { return PartState::Missing };
        match info.state {
            ZoneState::Offline | ZoneState::Conventional => PartState::Missing,
            ZoneState::Full => PartState::Full,
            // The end of the part is recorded. The write pointer says nothing about the part, and nothing more can be written to it.
            _ if !self.is_last_part(place) => PartState::Full,
            _ => PartState::Written(info.pointer.0.saturating_sub(place.row).min(self.layout.part_rows)),
        }
    }

    /// True if no part lies behind the one at `place` in its physical zone.
    pub(crate) fn is_last_part(&self, place: Place) -> bool {
        self.last_rows.get(&(place.slot, place.zone)).is_none_or(|last| place.row >= *last)
    }

    /// True if parts of several logical zones share a physical zone.
    pub(crate) fn shares_zones(&self) -> bool {
        self.superblock.shares > 1
    }

    /// The places of a zone's parts with no other part behind.
    pub(crate) fn last_parts(&self, id: ZoneId) -> impl Iterator<Item = (Place, &PresentMember, &ZoneInfo)> {
        let roles = self.places.slots().filter_map(move |slot| self.places.role(id, slot));
        roles.filter_map(move |role| {
            let place = self.places.place(id, role).filter(|place| self.is_last_part(*place))?;
            let (_, present, info) = self.physical_zone(id, role)?;
            Some((place, present, info))
        })
    }

    /// The states of a zone's parts, by role.
    pub(crate) fn parts(&self, id: ZoneId) -> Vec<PartState> {
        self.layout.roles().map(|role| self.part(id, role)).collect()
    }

    /// The number of drives that lack their part of a zone.
    pub(crate) fn missing_parts(&self, id: ZoneId) -> usize {
        self.layout.roles().filter(|role| self.part(id, *role) == PartState::Missing).count()
    }

    /// The states that zone reports give of the present parts of a zone.
    fn states(&self, id: ZoneId) -> impl Iterator<Item = ZoneState> {
        self.physical_zones(id).map(|(_, _, info)| info.state)
    }

    /// True if a part of the zone is read-only or offline.
    pub(crate) fn has_worn_part(&self, id: ZoneId) -> bool {
        self.states(id).any(|state| matches!(state, ZoneState::ReadOnly | ZoneState::Offline))
    }

    /// True if a drive counts its part of a zone as active. A physical zone counts for the last part in it.
    pub(crate) fn is_active(&self, id: ZoneId) -> bool {
        self.last_parts(id).any(|(_, _, info)| info.state.is_active())
    }

    /// All physical zones that are read-only or offline.
    pub(crate) fn worn_zones(&self) -> Vec<WornZone> {
        let zones = (0..self.superblock.zones).map(ZoneId);
        let zones = zones.flat_map(|id| {
            self.physical_zones(id).map(move |(slot, _, info)| WornZone { slot, zone: id, state: info.state })
        });
        zones.filter(|zone| matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline)).collect()
    }

    pub(crate) fn entry(&self, id: ZoneId) -> ZoneEntry {
        let mut entry = ZoneEntry::default();
        let known = self.places.slots().filter_map(|slot| self.contents(slot)?.entries.get(&id));
        known.for_each(|known| entry.merge(*known));
        entry
    }

    /// The stale rows, relocated data and relocated parity that all logs record of a zone.
    pub(crate) fn relocated_content(&self, id: ZoneId, generation: u64) -> (StaleRows, RelocatedParities) {
        let (mut stale, mut relocated) = (StaleRows::default(), RelocatedParities::new());
        let block = self.superblock.block_size as usize;
        for slot in self.places.slots() {
            let Some((contents, role)) = self.contents(slot).zip(self.places.role(id, slot)) else {
                continue;
            };
            let part = (id, self.places.placed_by(id, role));
            for ((of, stripe, parity), unit) in &contents.relocated {
                if *of == part && unit.generation == generation {
                    relocated.insert((*stripe, *parity), unit.content.clone());
                }
            }
            if let Some(record) = contents.stale.get(&part).filter(|record| record.generation == generation) {
                stale.add_all(role, &record.content.rows);
            }
            if let Some((_, data)) = contents.data.get(&part).filter(|(of, _)| *of == generation) {
                stale.add_logged(&self.layout, block, role, data);
            }
        }
        (stale, relocated)
    }

    /// The recorded bad rows of a zone's parts, by slot.
    pub(crate) fn bad_rows_of(&self, id: ZoneId, generation: u64) -> Vec<RowSet> {
        let rows = |slot| {
            let role = self.places.role(id, slot)?;
            let record = self.contents(slot)?.bad_rows.get(&(id, self.places.placed_by(id, role)))?;
            (record.generation == generation).then(|| record.content.clone())
        };
        self.places.slots().map(|slot| rows(slot).unwrap_or_default()).collect()
    }

    /// True if a reset of the zone was begun in `generation`.
    pub(crate) fn has_reset_intent(&self, id: ZoneId, generation: u64) -> bool {
        let mut logs = self.places.slots().filter_map(|slot| self.contents(slot));
        logs.any(|contents| contents.intents.contains(&(id, generation)))
    }

    pub(crate) fn decide(&self, id: ZoneId) -> (ZoneEntry, Decision) {
        let entry = self.entry(id);
        let (stale, relocated) = self.relocated_content(id, entry.generation);
        let intent = self.has_reset_intent(id, entry.generation);
        let parts = self.parts(id);
        let partials = self.partials(id, entry.generation);
        tracing::debug!(zone = id.0, ?entry, intent, ?parts, "found");
        let evidence = Evidence {
            layout: self.layout,
            block: self.superblock.block_size as usize,
            parts: &parts,
            stale: &stale,
            relocated: &relocated,
            entry: ZoneEntry { end: entry.end.filter(|_| !entry.is_failed_zone()), ..entry },
            intent,
            partials: &partials,
            doubt: self.doubt,
        };
        (entry, decide(&evidence))
    }

    /// The partial parity that the logs hold of a zone, by stripe.
    pub(crate) fn partials(&self, id: ZoneId, generation: u64) -> BTreeMap<Stripe, Vec<Partial>> {
        let mut all: BTreeMap<Stripe, Vec<Partial>> = BTreeMap::new();
        for contents in self.places.slots().filter_map(|slot| self.contents(slot)) {
            let Some((_, stripes)) = contents.partials.get(&id).filter(|(of, _)| *of == generation) else {
                continue;
            };
            for (stripe, partials) in stripes {
                all.entry(*stripe).or_default().extend_from_slice(partials);
            }
        }
        all
    }
}

impl PresentMember {
    /// The report of a physical zone behind the metadata zones.
    pub(crate) fn info(&self, physical: ZoneId) -> Option<&ZoneInfo> {
        self.report.get((physical.0.checked_sub(METADATA_ZONES)?) as usize)
    }

    /// Replaces the report of a physical zone behind the metadata zones.
    pub(crate) fn set_info(&mut self, new: ZoneInfo) {
        if let Some(known) = self.report.iter_mut().find(|known| known.zone == new.zone) {
            *known = new;
        }
    }
}

impl Claimant {
    /// True if the newest superblock expects the drive in its slot, as a member or as a new drive.
    fn is_expected(&self, superblock: &Superblock) -> bool {
        let (own, slot) = (&self.claim.superblock, self.claim.slot);
        let known = superblock.member(slot);
        own.uuid == superblock.uuid
            && Shape::of(own) == Shape::of(superblock)
            && own.member(slot).map(|member| member.uuid) == known.map(|member| member.uuid)
            && known.is_some_and(|known| known.rebuilding || !known.failed)
    }
}

fn mount_refusal(kind: ErrorKind, why: impl Into<String>) -> Error {
    Error::new(kind, &Arc::from("array"), "open").because(why)
}

/// Reads the logs of all drives. The first result has the drives with a complete checkpoint and a readable
/// log, the second result has the rest.
async fn read_logs(claims: Vec<(MemberDrive, Claim)>) -> Result<(Vec<Claimant>, Vec<Claimant>), MountError> {
    let lowest = lowest_written_rows(&claims).await?;
    let (mut complete, mut incomplete) = (Vec::new(), Vec::new());
    let read = |(device, claim): (MemberDrive, Claim)| {
        let shape = Shape::of(&claim.superblock);
        let needed = NeededParity {
            doubt: stripes_in_doubt(&claim.superblock, &shape.layout),
            lowest: lowest.clone(),
            all_frames: BTreeSet::new(),
        };
        async move {
            let log = log_contents::read(&device, &shape, claim.superblock.uuid, claim.slot, &needed).await;
            (device, claim, log)
        }
    };
    let Some(driver) = claims.first().map(|(device, _)| Arc::clone(device.driver())) else {
        return Ok((complete, incomplete));
    };
    for (device, claim, log) in
        run_at_once(&*driver, "metadata logs", claims.into_iter().map(read).collect()).await
    {
        let (mut log, zones) = log.of(claim.slot)?;
        let blocks = log.unreadable();
        if blocks > 0 {
            tracing::error!(?device, blocks, "the metadata log cannot be read in full: left out");
            // An unreadable record may invalidate readable ones, so that no record of the drive counts. The
            // drive is not overwritten without an order: it may hold the only copy of something.
            log.forget_rebuilt_zones();
        }
        let counts = blocks == 0 && log.complete().is_some();
        let list = if counts { &mut complete } else { &mut incomplete };
        list.push(Claimant { device, claim, log, zones });
    }
    Ok((complete, incomplete))
}

/// The newest superblock of the drives. All drives with a complete checkpoint have to be of the same array
/// and shape.
fn newest_superblock(complete: &[Claimant], incomplete: &[Claimant]) -> Result<Superblock> {
    // The record of a failure or replacement may be in the middle of one drive's log only. Two mounts that
    // power cuts ended may have used the same number: the superblock with the later epoch counts.
    let newest = complete
        .iter()
        .map(|one| (one.log.newest.as_ref().unwrap_or(&one.claim.superblock), one.log.complete()));
    let newest = newest.max_by_key(|(superblock, epoch)| (superblock.config, *epoch));
    let Some((newest, _)) = newest else {
        let bad = incomplete.iter().filter(|one| one.log.unreadable() > 0);
        let bad: Vec<String> = bad.map(|one| format!("{:?}", one.device)).collect();
        if !bad.is_empty() {
            let why = format!("the metadata of {} cannot be read in full", bad.join(", "));
            return Err(mount_refusal(ErrorKind::Media, why));
        }
        return Err(mount_refusal(
            ErrorKind::NotFound,
            "none of the drives is a member of an array: create one first",
        ));
    };
    if let Some(one) = complete.iter().find(|one| one.claim.superblock.uuid != newest.uuid) {
        let why = format!(
            "{:?} is of array {}, others are of {}: name those of one array only",
            one.device, one.claim.superblock.uuid, newest.uuid
        );
        return Err(mount_refusal(ErrorKind::Invalid, why));
    }
    if let Some(why) = superblock::unwritable(newest) {
        return Err(mount_refusal(ErrorKind::Unsupported, why));
    }
    // Each superblock was decoded with the geometry it names itself, so compare that geometry with the newest one's.
    let shape = Shape::of(newest);
    if let Some(one) = complete.iter().find(|one| Shape::of(&one.claim.superblock) != shape) {
        let why = format!(
            "{:?} says that the array has other zones, stripe units or drives than its newest superblock: leave it out",
            one.device
        );
        return Err(mount_refusal(ErrorKind::Damaged, why));
    }
    Ok(newest.clone())
}

/// The good members by slot, with reports of the members' zones.
async fn place_members(
    complete: Vec<Claimant>,
    superblock: &Superblock,
) -> Result<Vec<Option<PresentMember>>, MountError> {
    let mut present: Vec<Option<PresentMember>> = superblock.members.iter().map(|_| None).collect();
    for Claimant { device, claim, log, zones } in complete {
        let slot = claim.slot;
        let (own, known) = (claim.superblock.member(slot), superblock.member(slot));
        let same = own.zip(known).is_some_and(|(own, known)| own.uuid == known.uuid);
        if !same || known.is_some_and(|known| known.failed) {
            tracing::warn!(?device, slot = slot.0, "not a good member: left out");
            continue;
        }
        check_drive_fits(&device, superblock, slot).of_array()?;
        let report = device.report(part_zones(superblock.part_zones)).await.of(slot)?;
        let place = present.get_mut(slot.index()).expect("a member of the array");
        if place.is_some() {
            let why = format!("two drives say that they are member {}: leave one out", slot.0);
            return Err(mount_refusal(ErrorKind::Invalid, why)).of_array();
        }
        *place = Some(PresentMember { device, log, zones, report, begun: None });
    }
    Ok(present)
}

/// The idle spares of the array among marked drives, in the order of the superblock's list. First comes a spare that was taken
/// and whose rebuild has not begun.
fn place_spares(marked: Vec<(MemberDrive, Claim)>, superblock: &Superblock) -> Vec<IdleSpare> {
    let mut spares: Vec<IdleSpare> = Vec::new();
    let place = |uuid: &Uuid| superblock.spares.iter().position(|spare| spare == uuid);
    for (device, claim) in marked {
        let of_array = claim.spare().filter(|_| claim.superblock.uuid == superblock.uuid);
        let is_taken = |uuid: &Uuid| superblock.members.iter().any(|m| m.uuid == *uuid && m.rebuilding);
        match of_array {
            Some(uuid) if spares.iter().any(|spare| spare.uuid == uuid) => {
                tracing::warn!(?device, spare = %uuid, "two drives say that they are this spare: one is left out");
            }
            Some(uuid) if is_taken(&uuid) || place(&uuid).is_some() => {
                spares.push(IdleSpare { uuid, device })
            }
            _ => tracing::warn!(
                ?device,
                "the drive is marked as a spare that the array does not list: left out"
            ),
        }
    }
    spares.sort_by_key(|spare| place(&spare.uuid));
    spares
}

/// Leaves out members that the mount cannot use. Also returns the newest epoch that is complete on all members left.
fn leave_out_unusable(
    present: &mut [Option<PresentMember>],
    refused: &[Slot],
) -> (Option<u64>, Vec<(Slot, Unusable)>) {
    let mut unusable = Vec::new();
    loop {
        // After an interrupted mount an older epoch counts, and so do unreadable blocks of the older epoch.
        let epoch = newest_whole_epoch(present);
        let found = (0..).map(Slot).zip(present.iter_mut()).find_map(|(slot, place)| {
            let (present, epoch) = place.as_ref().zip(epoch)?;
            let why = match () {
                () if refused.contains(&slot) => Unusable::Unwritable,
                () if present.log.unreadable_from(epoch) > 0 => Unusable::Unreadable,
                () if present.first_free_zone(epoch).is_none() => Unusable::Unwritable,
                () => return None,
            };
            Some((slot, place, why))
        });
        let Some((slot, place, why)) = found else { return (epoch, unusable) };
        tracing::error!(slot = slot.0, "the drive {}: left out", why.short_reason());
        *place = None;
        unusable.push((slot, why));
    }
}

/// The slots without a drive of which the array lacks something: all but the vacated ones.
fn lacking_slots(present: &[Option<PresentMember>], superblock: &Superblock) -> impl Iterator<Item = Slot> {
    let all = (0..).map(Slot).zip(present.iter().zip(&superblock.members));
    all.filter(|(_, (place, info))| place.is_none() && !info.vacated).map(|(slot, _)| slot)
}

/// The error of an array that lacks more drives than it can do without.
fn too_few_drives_error(
    superblock: &Superblock,
    newly_failed: &[Slot],
    unusable: &[(Slot, Unusable)],
) -> Error {
    let missing = newly_failed.iter().map(|slot| {
        let why = unusable.iter().find(|(of, _)| of == slot);
        format!("{} {}", slot.0, why.map_or("is missing", |(_, why)| why.short_reason()))
    });
    let failed = (0_u32..).zip(&superblock.members).filter(|(_, member)| member.is_lacking());
    let list: Vec<String> = missing.chain(failed.map(|(slot, _)| format!("{slot} failed"))).collect();
    let most = if superblock.parities == 1 {
        "an array does without one drive"
    } else {
        "the array does without two drives"
    };
    let why = format!(
        "of {} members {}: {most} only. Add the missing ones",
        superblock.members.len(),
        list.join(", ")
    );
    mount_refusal(ErrorKind::Gone, why)
}

/// The new drive whose interrupted rebuild is to go on, among the drives without a complete checkpoint.
fn find_candidate(incomplete: Vec<Claimant>, superblock: &Superblock) -> Option<Candidate> {
    let mut candidate = None;
    for one in incomplete {
        let slot = one.claim.slot;
        if one.log.unreadable() > 0 && !superblock.member(slot).is_some_and(|member| member.rebuilding) {
            continue;
        }
        if !one.is_expected(superblock) || check_drive_fits(&one.device, superblock, slot).is_err() {
            tracing::warn!(device = ?one.device, "the drive never became a member: left out");
            continue;
        }
        tracing::info!(device = ?one.device, slot = slot.0, "the drive's rebuild is not done");
        candidate = Some(Candidate { slot, device: one.device, log: one.log });
    }
    candidate
}

/// The newest epoch that is complete on all present drives.
fn newest_whole_epoch(present: &[Option<PresentMember>]) -> Option<u64> {
    let epochs = || present.iter().flatten().map(|present| &present.log.epochs);
    let whole = |epoch: &&u64| epochs().all(|all| all.get(*epoch).is_some_and(|contents| contents.complete));
    epochs().next()?.keys().rev().find(whole).copied()
}

/// For each zone, the number of rows that every drive with a known pointer has written. With stored maps no drive says so before
/// the logs are read: only stripes in doubt are kept then, and the logs are read again if others are needed.
async fn lowest_written_rows(claims: &[(MemberDrive, Claim)]) -> Result<Vec<u64>, MountError> {
    let mut lowest: Vec<u64> = Vec::new();
    for (device, claim) in claims {
        if claim.superblock.placement == Placement::Stored {
            lowest.resize(lowest.len().max(claim.superblock.zones as usize), u64::MAX);
            continue;
        }
        let parts = part_zones(claim.superblock.zones);
        let end = device.geometry().zones.min(parts.end);
        let report = device.report(parts.start.min(end)..end).await.of(claim.slot)?;
        lowest.resize(lowest.len().max(report.len()), u64::MAX);
        for (lowest, info) in lowest.iter_mut().zip(report) {
            if !matches!(info.state, ZoneState::Full | ZoneState::Offline | ZoneState::Conventional) {
                *lowest = info.pointer.0.min(*lowest);
            }
        }
    }
    Ok(lowest)
}

/// The number of stripes below the highest block of a zone that may have been in flight.
fn stripes_in_doubt(superblock: &Superblock, layout: &Layout) -> u64 {
    let stripe = layout.unit * layout.data_units() * u64::from(superblock.block_size);
    (MAX_BYTES_IN_FLIGHT + MAX_TRANSFER) / stripe + 3
}
