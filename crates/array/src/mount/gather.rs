//! Step 1 of a mount: reads the superblocks, metadata logs and zone reports of all drives, and answers what they say
//! of each zone. Nothing is written.

use std::collections::BTreeMap;
use std::sync::Arc;

use zoned::{Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice};

use crate::OpenOptions;
use crate::format::shape::Shape;
use crate::format::superblock::{self, Superblock};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::physical_zones::part_zones;
use crate::layout::row_set::RowSet;
use crate::layout::{Layout, Slot, Stripe};
use crate::member::fits::fits;
use crate::member::log_contents::{self, EpochContents, LogContents, Needed, Partial};
use crate::member::log_reader::Claim;
use crate::mount::candidate::Candidate;
use crate::mount::decide::{Decision, Evidence, PartState, decide};
use crate::mount::errors::{FromDrive, MountError, Unusable};
use crate::zone::stale_rows::RelocatedParity;
use crate::zone::stale_rows::StaleRows;
use crate::zone::worn::WornZone;
use crate::zone::{MAX_TRANSFER, WINDOW};

/// A present drive, the contents of its log, and its zone reports.
pub(crate) struct Present {
    pub device: Arc<dyn ZonedDevice>,
    pub log: LogContents,
    pub zones: Vec<ZoneInfo>,
    pub report: Vec<ZoneInfo>,
    /// The zone of the next checkpoint and its written blocks, if `record_failures` began the checkpoint.
    pub begun: Option<(ZoneId, u64)>,
}

/// A mount under way.
pub(crate) struct Mount {
    pub options: OpenOptions,
    pub name: Arc<str>,
    pub superblock: Superblock,
    pub layout: Layout,
    /// By slot; `None` if the drive is missing or failed.
    pub present: Vec<Option<Present>>,
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
}

impl Mount {
    /// Reads all drives. `refused`: the drive that an earlier try of this mount failed on.
    pub(crate) async fn gather(
        claims: Vec<(Arc<dyn ZonedDevice>, Claim)>,
        options: OpenOptions,
        refused: Option<Slot>,
    ) -> Result<Mount, MountError> {
        let name: Arc<str> = Arc::from("array");
        let refuse = |kind, why: String| Err(Error::new(kind, &name, "open").because(why)).of_array();
        let mut readable = Vec::new();
        let mut begun = Vec::new();
        let lowest = lowest(&claims).await?;
        for (device, claim) in claims {
            let shape = Shape::of(&claim.superblock);
            let needed = Needed { doubt: doubt_of(&claim.superblock, &shape.layout), lowest: lowest.clone() };
            let uuid = claim.superblock.uuid;
            let (mut log, zones) =
                log_contents::read(&device, &shape, uuid, claim.slot, &needed).await.of(claim.slot)?;
            let blocks = log.unreadable();
            if blocks > 0 {
                tracing::error!(?device, blocks, "what its log says cannot be read in full: left out");
                // An unreadable record may invalidate readable ones, so no record of the drive counts. The drive is
                // not overwritten without an order: it may hold the only copy of something.
                log.forget_rebuilt_zones();
                begun.push((device, claim, log));
            } else if log.complete().is_some() {
                readable.push((device, claim, log, zones));
            } else {
                begun.push((device, claim, log));
            }
        }
        let claims = readable;
        // A failure or replacement may be recorded in the middle of one drive's log only. Two mounts that power cuts
        // ended may have used the same number: the drive with the later epoch is right.
        let newest = claims
            .iter()
            .map(|(_, claim, log, _)| (log.newest.as_ref().unwrap_or(&claim.superblock), log.complete()));
        let newest = newest.max_by_key(|(superblock, epoch)| (superblock.config, *epoch));
        let Some(newest) = newest.map(|(superblock, _)| superblock.clone()) else {
            let bad = begun.iter().filter(|(.., log)| log.unreadable() > 0);
            let bad: Vec<String> = bad.map(|(device, ..)| format!("{device:?}")).collect();
            if !bad.is_empty() {
                let why = format!("the metadata of {} cannot be read in full", bad.join(", "));
                return refuse(ErrorKind::Media, why);
            }
            let why = "none of the drives is a member of an array: create one first";
            return refuse(ErrorKind::NotFound, why.into());
        };
        let uuid = newest.uuid;
        if let Some((device, claim, ..)) = claims.iter().find(|(_, claim, ..)| claim.superblock.uuid != uuid)
        {
            let other = claim.superblock.uuid;
            let why =
                format!("{device:?} is of array {other}, others are of {uuid}: name those of one array only");
            return refuse(ErrorKind::Invalid, why);
        }
        if let Some(why) = superblock::unwritable(&newest) {
            return refuse(ErrorKind::Unsupported, why);
        }
        let shape = Shape::of(&newest);
        // Each superblock was decoded with the geometry it names itself, so compare that geometry with the newest
        // one's.
        if let Some((device, ..)) = claims.iter().find(|(_, claim, ..)| Shape::of(&claim.superblock) != shape)
        {
            let why = format!(
                "{device:?} says that the array has other zones, stripe units or drives than its newest superblock: leave it out"
            );
            return refuse(ErrorKind::Damaged, why);
        }
        let layout = shape.layout;
        let doubt = doubt_of(&newest, &layout);
        let mut present: Vec<Option<Present>> = newest.members.iter().map(|_| None).collect();
        let superblock = newest;
        for (device, claim, log, zones) in claims {
            let slot = claim.slot;
            let (own, known) = (claim.superblock.member(slot).copied(), superblock.member(slot).copied());
            let same = own.zip(known).is_some_and(|(own, known)| own.uuid == known.uuid);
            if !same || known.is_some_and(|known| known.failed) {
                tracing::warn!(?device, slot = slot.0, "not a good member: left out");
                continue;
            }
            fits(&device, &superblock, slot).of_array()?;
            let report = device.report(part_zones(superblock.zones)).await.of(slot)?;
            let place = present.get_mut(slot.index()).expect("a member of the array");
            if place.is_some() {
                let why = format!("two drives say that they are member {}: leave one out", slot.0);
                return refuse(ErrorKind::Invalid, why);
            }
            *place = Some(Present { device, log, zones, report, begun: None });
        }
        // After an interrupted mount an older epoch counts, and unreadable blocks of that epoch count too.
        let mut epoch = whole_epoch(&present);
        let mut unusable = Vec::new();
        while let Some((slot, place, why)) = (0..).map(Slot).zip(&mut present).find_map(|(slot, place)| {
            let why = place.as_ref().zip(epoch).and_then(|(present, epoch)| match () {
                () if refused == Some(slot) => Some(Unusable::Unwritable),
                () if present.log.unreadable_from(epoch) > 0 => Some(Unusable::Unreadable),
                () if present.free(epoch).is_none() => Some(Unusable::Unwritable),
                () => None,
            })?;
            Some((slot, place, why))
        }) {
            tracing::error!(slot = slot.0, "it {}: left out", why.briefly());
            *place = None;
            unusable.push((slot, why));
            epoch = whole_epoch(&present);
        }
        let lost: Vec<Slot> = (0..)
            .map(Slot)
            .zip(present.iter().zip(&superblock.members))
            .filter(|(_, (place, member))| place.is_none() && !member.failed)
            .map(|(slot, _)| slot)
            .collect();
        // True if the drive is the one that the newest superblock expects in its slot.
        let ours = |(_, claim, _): &(Arc<dyn ZonedDevice>, Claim, LogContents)| {
            let uuid = |sb: &Superblock| sb.member(claim.slot).map(|member| member.uuid);
            let known = superblock.member(claim.slot);
            claim.superblock.uuid == superblock.uuid
                && Shape::of(&claim.superblock) == shape
                && uuid(&claim.superblock) == uuid(&superblock)
                && known.is_some_and(|known| known.rebuilding || !known.failed)
        };
        let bad = begun.iter().filter(|one| one.2.unreadable() > 0 && ours(one));
        unusable.extend(bad.map(|(_, claim, _)| (claim.slot, Unusable::Unreadable)));
        let absent = present.iter().filter(|place| place.is_none()).count();
        if absent > 1 {
            let what = |slot: &Slot| {
                let why = unusable.iter().find(|(of, _)| of == slot);
                format!("{} {}", slot.0, why.map_or("is missing", |(_, why)| why.briefly()))
            };
            let missing: Vec<String> = lost.iter().map(what).collect();
            let failed = (0..).zip(&superblock.members).filter(|(_, m)| m.failed);
            let failed = failed.map(|(slot, _): (u32, _)| format!("{slot} failed"));
            let list: Vec<String> = missing.into_iter().chain(failed).collect();
            let why = format!(
                "of {} members {}: an array does without one drive only. Add the missing ones",
                present.len(),
                list.join(", ")
            );
            return refuse(ErrorKind::Gone, why);
        }
        let name = match superblock.label.as_str() {
            "" => Arc::from(format!("array:{uuid}")),
            label => Arc::from(format!("array:{label}")),
        };
        let Some(epoch) = epoch else {
            let why = "no checkpoint is whole on all drives: their metadata is damaged. Leave the drive out that was \
                       changed last";
            return Err(Error::new(ErrorKind::Damaged, &name, "open").because(why)).of_array();
        };
        let newest = present.iter().flatten().filter_map(|present| present.log.epochs.last_key_value());
        let next = newest.map(|(epoch, _)| *epoch).max().unwrap_or(0) + 1;
        let mut candidate = None;
        for one in begun {
            let (device, claim, log) = match one {
                one if one.2.unreadable() > 0
                    && !superblock.member(one.1.slot).is_some_and(|m| m.rebuilding) =>
                {
                    continue;
                }
                one if !ours(&one) || fits(&one.0, &superblock, one.1.slot).is_err() => {
                    tracing::warn!(device = ?one.0, "it never became a member: left out");
                    continue;
                }
                one => one,
            };
            tracing::info!(?device, slot = claim.slot.0, "its rebuild is not done");
            candidate = Some(Candidate { slot: claim.slot, device, log });
        }
        let mut mount = Mount {
            unusable,
            candidate,
            options,
            name,
            superblock,
            layout,
            present,
            epoch,
            next,
            doubt,
            newly_failed: lost,
        };
        mount.reread_logs().await?;
        Ok(mount)
    }

    /// Reads the logs again if partial parity is needed that was dropped: stale rows without content may be far below
    /// the pointers of the drives.
    async fn reread_logs(&mut self) -> Result<(), MountError> {
        let (layout, block) = (self.layout, self.superblock.block_size as usize);
        let mut needed = Needed { doubt: self.doubt, lowest: Vec::new() };
        let mut again = false;
        for id in (0..self.superblock.zones).map(ZoneId) {
            let slots = || (0..layout.drives).map(Slot);
            let (stale, relocated) = self.relocated_content(id, self.entry(id).generation);
            let rows = slots().filter_map(|slot| match self.part(slot, id) {
                PartState::Written(row) => Some(stale.data_end(&layout, block, id, slot, row)),
                PartState::Full => Some(stale.data_end(&layout, block, id, slot, layout.zone_capacity)),
                PartState::Missing => None,
            });
            let stale_parity = stale.stale_parity(&layout, id, &relocated);
            let suspect = stale_parity.first().map_or(u64::MAX, |stripe| layout.row(*stripe));
            let lowest = rows.min().unwrap_or(0).min(suspect);
            let dropped = slots().filter_map(|slot| self.contents(slot)?.dropped.get(&id)).max();
            again |= dropped.is_some_and(|stripe| layout.row(Stripe(stripe.0 + 2)) > lowest);
            needed.lowest.push(lowest);
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
                        "what the log of drive {} says could be read a moment ago, and cannot now: open the array again",
                        slot.0
                    )))
                    .of_array();
                }
            }
        }
        Ok(())
    }

    pub(crate) fn contents(&self, slot: Slot) -> Option<&EpochContents> {
        self.present.get(slot.index())?.as_ref()?.log.epochs.get(&self.epoch)
    }

    /// The first slot without a drive.
    pub(crate) fn lacking_slot(&self) -> Option<Slot> {
        (0..).map(Slot).zip(&self.present).find(|(_, place)| place.is_none()).map(|(slot, _)| slot)
    }

    /// The state of a drive's part of a zone.
    pub(crate) fn part(&self, slot: Slot, id: ZoneId) -> PartState {
        let Some(Some(present)) = self.present.get(slot.index()) else { return PartState::Missing };
        let Some(info) = present.report.get(id.index()) else { return PartState::Missing };
        match info.state {
            ZoneState::Offline | ZoneState::Conventional => PartState::Missing,
            ZoneState::Full => PartState::Full,
            _ => PartState::Written(info.pointer.0.min(self.layout.zone_capacity)),
        }
    }

    /// The number of drives that lack their part of a zone.
    pub(crate) fn absent(&self, id: ZoneId) -> usize {
        (0..self.layout.drives).filter(|slot| self.part(Slot(*slot), id) == PartState::Missing).count()
    }

    /// True if a part of the zone is read-only or offline.
    pub(crate) fn worn(&self, id: ZoneId) -> bool {
        self.present
            .iter()
            .flatten()
            .filter_map(|present| present.report.get(id.index()))
            .any(|info| matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline))
    }

    /// True if a drive counts its part of a zone as active.
    pub(crate) fn is_active(&self, id: ZoneId) -> bool {
        let mut parts = self.present.iter().flatten().filter_map(|present| present.report.get(id.index()));
        parts.any(|info| info.state.is_active())
    }

    /// All physical zones that are read-only or offline.
    pub(crate) fn worn_zones(&self) -> Vec<WornZone> {
        let drives = (0..).map(Slot).zip(&self.present);
        let drives = drives.filter_map(|(slot, present)| Some((slot, present.as_ref()?)));
        let zones = drives.flat_map(|(slot, present)| {
            (0..).map(ZoneId).zip(&present.report).map(move |(zone, info)| (slot, zone, info.state))
        });
        zones
            .filter(|(.., state)| matches!(state, ZoneState::ReadOnly | ZoneState::Offline))
            .map(|(slot, zone, state)| WornZone { slot, zone, state })
            .collect()
    }

    pub(crate) fn entry(&self, id: ZoneId) -> ZoneEntry {
        let mut entry = ZoneEntry::default();
        let known = (0..self.layout.drives).filter_map(|slot| self.contents(Slot(slot))?.entries.get(&id));
        known.for_each(|known| entry.learn(*known));
        entry
    }

    /// The stale rows, relocated data and relocated parity of a zone, from all logs.
    pub(crate) fn relocated_content(
        &self,
        id: ZoneId,
        generation: u64,
    ) -> (StaleRows, BTreeMap<Stripe, RelocatedParity>) {
        let (mut stale, mut relocated) = (StaleRows::default(), BTreeMap::new());
        let block = self.superblock.block_size as usize;
        for slot in (0..self.layout.drives).map(Slot) {
            let Some(contents) = self.contents(slot) else { continue };
            for ((zone, stripe), (of, _, unit)) in &contents.relocated {
                if *zone == id && *of == generation {
                    relocated.insert(*stripe, unit.clone());
                }
            }
            if let Some(record) = contents.stale.get(&id).filter(|record| record.generation == generation) {
                stale.add_all(slot, &record.rows);
            }
            if let Some((_, data)) = contents.data.get(&id).filter(|(of, _)| *of == generation) {
                stale.learn(&self.layout, block, slot, data);
            }
        }
        (stale, relocated)
    }

    /// The bad rows of each drive's part of a zone.
    pub(crate) fn bad_rows_of(&self, id: ZoneId, generation: u64) -> Vec<RowSet> {
        let rows = |slot| {
            let (of, _, rows) = self.contents(Slot(slot))?.bad_rows.get(&id)?;
            (*of == generation).then(|| rows.clone())
        };
        (0..self.layout.drives).map(|slot| rows(slot).unwrap_or_default()).collect()
    }

    /// True if a reset of the zone in this generation was begun.
    pub(crate) fn intent(&self, id: ZoneId, generation: u64) -> bool {
        let mut logs = (0..self.layout.drives).filter_map(|slot| self.contents(Slot(slot)));
        logs.any(|contents| contents.intents.contains(&(id, generation)))
    }

    pub(crate) fn decide(&self, id: ZoneId) -> (ZoneEntry, Decision) {
        let entry = self.entry(id);
        let (stale, relocated) = self.relocated_content(id, entry.generation);
        let intent = self.intent(id, entry.generation);
        let parts: Vec<PartState> = (0..self.layout.drives).map(|slot| self.part(Slot(slot), id)).collect();
        let partials = self.partials(id, entry.generation);
        tracing::debug!(zone = id.0, ?entry, intent, ?parts, "found");
        let evidence = Evidence {
            layout: self.layout,
            zone: id,
            block: self.superblock.block_size as usize,
            parts: &parts,
            stale: &stale,
            relocated: &relocated,
            entry: ZoneEntry { end: entry.end.filter(|_| !entry.is_lost()), ..entry },
            intent,
            partials: &partials,
            doubt: self.doubt,
        };
        (entry, decide(&evidence))
    }

    /// The partial parity of a zone, by stripe.
    pub(crate) fn partials(&self, id: ZoneId, generation: u64) -> BTreeMap<Stripe, Vec<Partial>> {
        let mut all = BTreeMap::new();
        for contents in (0..self.layout.drives).filter_map(|slot| self.contents(Slot(slot))) {
            let Some((_, stripes)) = contents.partials.get(&id).filter(|(of, _)| *of == generation) else {
                continue;
            };
            all.extend(stripes.iter().map(|(stripe, partials)| (*stripe, partials.clone())));
        }
        all
    }
}

/// The newest epoch that is complete on all present drives.
fn whole_epoch(present: &[Option<Present>]) -> Option<u64> {
    let epochs = || present.iter().flatten().map(|present| &present.log.epochs);
    let whole = |epoch: &&u64| epochs().all(|all| all.get(*epoch).is_some_and(|contents| contents.complete));
    epochs().next()?.keys().rev().find(whole).copied()
}

/// For each zone, the number of rows that every drive with a known pointer has written.
async fn lowest(claims: &[(Arc<dyn ZonedDevice>, Claim)]) -> Result<Vec<u64>, MountError> {
    let mut lowest: Vec<u64> = Vec::new();
    for (device, claim) in claims {
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
fn doubt_of(superblock: &Superblock, layout: &Layout) -> u64 {
    let stripe = layout.unit * layout.data_units() * u64::from(superblock.block_size);
    (WINDOW + MAX_TRANSFER) / stripe + 3
}
