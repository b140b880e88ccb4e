//! What a mount finds: the drives by what their superblocks say, all that their logs tell, and what that says of each zone.
//! Nothing is written here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use zoned::{Error, ErrorKind, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice};

use crate::OpenOptions;
use crate::admin::status::WornZone;
use crate::background::rebuild::Candidate;
use crate::format::shape::Shape;
use crate::format::superblock::{self, Superblock};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::{Layout, Slot, Stripe};
use crate::member::METADATA_ZONES;
use crate::mount::assemble::MAX_TRANSFER;
use crate::mount::decide::{Child, Decision, Evidence, decide};
use crate::mount::log_contents::{self, Claim, Needed, Partial, Tale, Told};
use crate::mount::unusable::{LeftOut, OfDrive, Stopped};
use crate::zone::stale_rows::Patches;
use crate::zone::{Relocated, WINDOW};

/// A present drive and what its metadata zones say.
pub(crate) struct Present {
    pub device: Arc<dyn ZonedDevice>,
    pub tale: Tale,
    pub zones: Vec<ZoneInfo>,
    pub report: Vec<ZoneInfo>,
    /// The zone of the next checkpoint, where its first blocks are written already.
    pub begun: Option<(ZoneId, u64)>,
}

/// A mount under way.
pub(crate) struct Mount {
    pub options: OpenOptions,
    pub name: Arc<str>,
    pub superblock: Superblock,
    pub layout: Layout,
    /// By slot; `None` for those that are missing or failed.
    pub present: Vec<Option<Present>>,
    /// The newest epoch that is whole on all present drives, and the one that begins now.
    pub epoch: u64,
    pub next: u64,
    doubt: u64,
    /// Drives that are missing and not recorded as failed.
    pub lost: Vec<Slot>,
    /// The new drive whose rebuild is to go on.
    pub candidate: Option<Candidate>,
    /// Drives that are there, and that the array does without from now on.
    pub left_out: Vec<(Slot, LeftOut)>,
}

impl Mount {
    /// Finds out what there is. `refused`: the drive that an earlier try of this mount failed on.
    pub(crate) async fn gather(
        claims: Vec<(Arc<dyn ZonedDevice>, Claim)>,
        options: OpenOptions,
        refused: Option<Slot>,
    ) -> Result<Mount, Stopped> {
        let name: Arc<str> = Arc::from("array");
        let refuse = |kind, why: String| Err(Error::new(kind, &name, "open").because(why)).of_none();
        let mut tales = Vec::new();
        let mut begun = Vec::new();
        let lowest = lowest(&claims).await?;
        for (device, claim) in claims {
            let shape = Shape::of(&claim.superblock);
            let needed = Needed { doubt: doubt_of(&claim.superblock, &shape.layout), lowest: lowest.clone() };
            let uuid = claim.superblock.uuid;
            let (mut tale, zones) =
                log_contents::read(&device, &shape, uuid, claim.slot, &needed).await.of(claim.slot)?;
            let blocks = tale.unreadable();
            if blocks > 0 {
                tracing::error!(?device, blocks, "what its log says cannot be read in full: left out");
                // A record that is not known may say what does not count: nothing of the drive is believed. But nothing
                // of it is overwritten before somebody asks for that: it may be the only one that holds something.
                tale.forget_notes();
                begun.push((device, claim, tale));
            } else if tale.complete().is_some() {
                tales.push((device, claim, tale, zones));
            } else {
                begun.push((device, claim, tale));
            }
        }
        let claims = tales;
        // That a drive failed or was replaced may stand in the middle of a log, and of one drive's only.
        // Two mounts that a power cut ended may have given the same number: the drive that went on since is right.
        let newest = claims
            .iter()
            .map(|(_, claim, tale, _)| (tale.newest.as_ref().unwrap_or(&claim.superblock), tale.complete()));
        let newest = newest.max_by_key(|(superblock, epoch)| (superblock.config, *epoch));
        let Some(newest) = newest.map(|(superblock, _)| superblock.clone()) else {
            let bad = begun.iter().filter(|(.., tale)| tale.unreadable() > 0);
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
        // What a drive says was read by what it says itself that the array is like.
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
        for (device, claim, tale, zones) in claims {
            let slot = claim.slot;
            let (own, known) = (claim.superblock.member(slot).copied(), superblock.member(slot).copied());
            let same = own.zip(known).is_some_and(|(own, known)| own.uuid == known.uuid);
            if !same || known.is_some_and(|known| known.failed) {
                tracing::warn!(?device, slot = slot.0, "not a good member: left out");
                continue;
            }
            fits(&device, &superblock, slot).of_none()?;
            let report = device.report(METADATA_ZONES..METADATA_ZONES + superblock.zones).await.of(slot)?;
            let place = present.get_mut(slot.index()).expect("a member of the array");
            if place.is_some() {
                let why = format!("two drives say that they are member {}: leave one out", slot.0);
                return refuse(ErrorKind::Invalid, why);
            }
            *place = Some(Present { device, tale, zones, report, begun: None });
        }
        // Where a mount was cut short an older epoch counts, and with it what the drive cannot read of that one.
        let mut epoch = whole_epoch(&present);
        let mut left_out = Vec::new();
        while let Some((slot, place, why)) = (0..).map(Slot).zip(&mut present).find_map(|(slot, place)| {
            let why = place.as_ref().zip(epoch).and_then(|(present, epoch)| match () {
                () if refused == Some(slot) => Some(LeftOut::Unwritable),
                () if present.tale.unreadable_from(epoch) > 0 => Some(LeftOut::Unreadable),
                () if present.free(epoch).is_none() => Some(LeftOut::Unwritable),
                () => None,
            })?;
            Some((slot, place, why))
        }) {
            tracing::error!(slot = slot.0, "it {}: left out", why.briefly());
            *place = None;
            left_out.push((slot, why));
            epoch = whole_epoch(&present);
        }
        let lost: Vec<Slot> = (0..)
            .map(Slot)
            .zip(present.iter().zip(&superblock.members))
            .filter(|(_, (place, member))| place.is_none() && !member.failed)
            .map(|(slot, _)| slot)
            .collect();
        // The drive that the slot is to have, and no other.
        let ours = |(_, claim, _): &(Arc<dyn ZonedDevice>, Claim, Tale)| {
            let uuid = |sb: &Superblock| sb.member(claim.slot).map(|member| member.uuid);
            let known = superblock.member(claim.slot);
            claim.superblock.uuid == superblock.uuid
                && Shape::of(&claim.superblock) == shape
                && uuid(&claim.superblock) == uuid(&superblock)
                && known.is_some_and(|known| known.rebuilding || !known.failed)
        };
        let bad = begun.iter().filter(|one| one.2.unreadable() > 0 && ours(one));
        left_out.extend(bad.map(|(_, claim, _)| (claim.slot, LeftOut::Unreadable)));
        let absent = present.iter().filter(|place| place.is_none()).count();
        if absent > 1 {
            let what = |slot: &Slot| {
                let why = left_out.iter().find(|(of, _)| of == slot);
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
            return Err(Error::new(ErrorKind::Damaged, &name, "open").because(why)).of_none();
        };
        let newest = present.iter().flatten().filter_map(|present| present.tale.epochs.last_key_value());
        let next = newest.map(|(epoch, _)| *epoch).max().unwrap_or(0) + 1;
        let mut candidate = None;
        for one in begun {
            let (device, claim, tale) = match one {
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
            candidate = Some(Candidate { slot: claim.slot, device, tale });
        }
        let mut mount = Mount {
            left_out,
            candidate,
            options,
            name,
            superblock,
            layout,
            present,
            epoch,
            next,
            doubt,
            lost,
        };
        mount.hear_again().await?;
        Ok(mount)
    }

    /// Reads the logs once more where partial parity counts after all that was not kept: hidden rows that lost what
    /// belongs there may be far below all that the drives have written.
    async fn hear_again(&mut self) -> Result<(), Stopped> {
        let (layout, block) = (self.layout, self.superblock.block_size as usize);
        let mut needed = Needed { doubt: self.doubt, lowest: Vec::new() };
        let mut again = false;
        for id in (0..self.superblock.zones).map(ZoneId) {
            let slots = || (0..layout.drives).map(Slot);
            let (patches, relocated) = self.relocations(id, self.entry(id).generation);
            let rows = slots().filter_map(|slot| match self.child(slot, id) {
                Child::At(row) => Some(patches.data_row(&layout, block, id, slot, row)),
                Child::Full => Some(patches.data_row(&layout, block, id, slot, layout.zone_capacity)),
                Child::Missing => None,
            });
            let suspects = patches.suspects(&layout, id, &relocated);
            let suspect = suspects.first().map_or(u64::MAX, |stripe| layout.row(*stripe));
            let lowest = rows.min().unwrap_or(0).min(suspect);
            let dropped = slots().filter_map(|slot| self.told(slot)?.dropped.get(&id)).max();
            again |= dropped.is_some_and(|stripe| layout.row(Stripe(stripe.0 + 2)) > lowest);
            needed.lowest.push(lowest);
        }
        if again {
            let (array, shape) = (self.superblock.uuid, Shape::of(&self.superblock));
            for (slot, present) in (0..).map(Slot).zip(&mut self.present) {
                let Some(present) = present else { continue };
                (present.tale, _) =
                    log_contents::read(&present.device, &shape, array, slot, &needed).await.of(slot)?;
                if present.tale.unreadable_from(self.epoch) > 0 {
                    let error = Error::new(ErrorKind::Media, &self.name, "open");
                    return Err(error.because(format!(
                        "what the log of drive {} says could be read a moment ago, and cannot now: open the array again",
                        slot.0
                    )))
                    .of_none();
                }
            }
        }
        Ok(())
    }

    pub(crate) fn told(&self, slot: Slot) -> Option<&Told> {
        self.present.get(slot.index())?.as_ref()?.tale.epochs.get(&self.epoch)
    }

    /// The state of a physical zone.
    pub(crate) fn child(&self, slot: Slot, id: ZoneId) -> Child {
        let Some(Some(present)) = self.present.get(slot.index()) else { return Child::Missing };
        let Some(info) = present.report.get(id.index()) else { return Child::Missing };
        match info.state {
            ZoneState::Offline | ZoneState::Conventional => Child::Missing,
            ZoneState::Full => Child::Full,
            _ => Child::At(info.pointer.0.min(self.layout.zone_capacity)),
        }
    }

    /// Drives that lack their part of a zone.
    pub(crate) fn absent(&self, id: ZoneId) -> usize {
        (0..self.layout.drives).filter(|slot| self.child(Slot(*slot), id) == Child::Missing).count()
    }

    /// Whether a physical zone of `id` can be read only, or not even that.
    pub(crate) fn worn(&self, id: ZoneId) -> bool {
        self.present
            .iter()
            .flatten()
            .filter_map(|present| present.report.get(id.index()))
            .any(|info| matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline))
    }

    /// Whether a drive counts its part of a zone among its active ones.
    pub(crate) fn is_active(&self, id: ZoneId) -> bool {
        let mut parts = self.present.iter().flatten().filter_map(|present| present.report.get(id.index()));
        parts.any(|info| info.state.is_active())
    }

    /// All physical zones that can be read only, or not even that.
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
        let known = (0..self.layout.drives).filter_map(|slot| self.told(Slot(slot))?.entries.get(&id));
        known.for_each(|known| entry.learn(*known));
        entry
    }

    /// What the logs say of relocated units of a zone: of data, and of parity.
    pub(crate) fn relocations(&self, id: ZoneId, generation: u64) -> (Patches, BTreeMap<Stripe, Relocated>) {
        let (mut patches, mut relocated) = (Patches::default(), BTreeMap::new());
        let block = self.superblock.block_size as usize;
        for slot in (0..self.layout.drives).map(Slot) {
            let Some(told) = self.told(slot) else { continue };
            for ((zone, stripe), (of, _, unit)) in &told.relocated {
                if *zone == id && *of == generation {
                    relocated.insert(*stripe, unit.clone());
                }
            }
            if let Some(hidden) = told.hidden.get(&id).filter(|hidden| hidden.generation == generation) {
                hidden.ranges.iter().for_each(|range| patches.hide(slot, range.clone()));
            }
            if let Some((_, data)) = told.data.get(&id).filter(|(of, _)| *of == generation) {
                patches.learn(&self.layout, block, slot, data);
            }
        }
        (patches, relocated)
    }

    /// The rows of each drive's part of a zone that are lost.
    pub(crate) fn lost_rows(&self, id: ZoneId, generation: u64) -> Vec<Vec<Range<u64>>> {
        let told = |slot| self.told(Slot(slot))?.lost.get(&id).filter(|(of, ..)| *of == generation);
        let slots = 0..self.layout.drives;
        slots.map(|slot| told(slot).map(|(.., ranges)| ranges.clone()).unwrap_or_default()).collect()
    }

    /// Whether a reset of a zone of this generation was begun.
    pub(crate) fn intent(&self, id: ZoneId, generation: u64) -> bool {
        let mut told = (0..self.layout.drives).filter_map(|slot| self.told(Slot(slot)));
        told.any(|told| told.intents.contains(&(id, generation)))
    }

    pub(crate) fn decide(&self, id: ZoneId) -> (ZoneEntry, Decision) {
        let entry = self.entry(id);
        let (patches, relocated) = self.relocations(id, entry.generation);
        let intent = self.intent(id, entry.generation);
        let children: Vec<Child> = (0..self.layout.drives).map(|slot| self.child(Slot(slot), id)).collect();
        let partials = self.partials(id, entry.generation);
        tracing::debug!(zone = id.0, ?entry, intent, ?children, "found");
        let evidence = Evidence {
            layout: self.layout,
            zone: id,
            block: self.superblock.block_size as usize,
            children: &children,
            patches: &patches,
            relocated: &relocated,
            entry: ZoneEntry { end: entry.end.filter(|_| !entry.is_lost()), ..entry },
            intent,
            partials: &partials,
            doubt: self.doubt,
        };
        (entry, decide(&evidence))
    }

    /// The partial parity that was logged of a zone, by stripe.
    pub(crate) fn partials(&self, id: ZoneId, generation: u64) -> BTreeMap<Stripe, Vec<Partial>> {
        let mut all = BTreeMap::new();
        for told in (0..self.layout.drives).filter_map(|slot| self.told(Slot(slot))) {
            let Some((_, stripes)) = told.partials.get(&id).filter(|(of, _)| *of == generation) else {
                continue;
            };
            all.extend(stripes.iter().map(|(stripe, partials)| (*stripe, partials.clone())));
        }
        all
    }
}

/// The newest epoch that is whole on all drives.
fn whole_epoch(present: &[Option<Present>]) -> Option<u64> {
    let epochs = || present.iter().flatten().map(|present| &present.tale.epochs);
    let whole = |epoch: &&u64| epochs().all(|all| all.get(*epoch).is_some_and(|told| told.complete));
    epochs().next()?.keys().rev().find(whole).copied()
}

/// Rows of each logical zone's physical zones that all drives have written which tell.
async fn lowest(claims: &[(Arc<dyn ZonedDevice>, Claim)]) -> Result<Vec<u64>, Stopped> {
    let mut lowest: Vec<u64> = Vec::new();
    for (device, claim) in claims {
        let end = device.geometry().zones.min(claim.superblock.zones.saturating_add(METADATA_ZONES));
        let report = device.report(METADATA_ZONES.min(end)..end).await.of(claim.slot)?;
        lowest.resize(lowest.len().max(report.len()), u64::MAX);
        for (lowest, info) in lowest.iter_mut().zip(report) {
            if !matches!(info.state, ZoneState::Full | ZoneState::Offline | ZoneState::Conventional) {
                *lowest = info.pointer.0.min(*lowest);
            }
        }
    }
    Ok(lowest)
}

/// Stripes below the highest block of a zone that may have been in flight.
fn doubt_of(superblock: &Superblock, layout: &Layout) -> u64 {
    let stripe = layout.unit * layout.data_units() * u64::from(superblock.block_size);
    (WINDOW + MAX_TRANSFER) / stripe + 3
}

/// Whether a drive is still what the superblock says, or can be.
pub(crate) fn fits(device: &Arc<dyn ZonedDevice>, superblock: &Superblock, slot: Slot) -> Result<()> {
    let g = device.geometry();
    let same = g.block_size == superblock.block_size
        && g.conventional == 0
        && g.zones >= superblock.zones.saturating_add(METADATA_ZONES)
        && g.zone_capacity >= superblock.zone_capacity
        // A unit and its record's header are one write.
        && g.max_transfer.0 > u64::from(superblock.unit)
        && superblock.metadata_zones == METADATA_ZONES
        && slot.index() < superblock.members.len();
    if same {
        return Ok(());
    }
    let why = format!(
        "the drive is not what the array was made of: {} zones of {} blocks of {} bytes, {} of them conventional, at most {} \
         blocks at a time; was it formatted anew?",
        g.zones, g.zone_capacity.0, g.block_size, g.conventional, g.max_transfer.0
    );
    Err(Error::new(ErrorKind::Damaged, &g.name, "open").because(why))
}
