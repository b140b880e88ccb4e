//! A mount in six steps, from the drives' superblocks to an assembled array:
//!
//! 1. [`Mount::gather`] reads superblocks, metadata logs and zone reports. Nothing is written.
//! 2. [`Mount::record_failures`] writes to all present drives which drives failed or are missing.
//! 3. [`Mount::finish_zone_rewrites`] completes rewrites of physical zones that a power cut interrupted.
//! 4. [`Mount::recover_zones`] decides the state of every logical zone and resyncs parity with data.
//! 5. [`Mount::begin_epoch`] puts the array together and writes a checkpoint of the new epoch to every drive.
//! 6. [`Mount::end_old_epoch`] resets the metadata zones of the old epoch and finishes physical zones;
//!    `Actions::complete_resets` completes resets of logical zones that had begun.
//!
//! `Array::open` then rewrites zones with much relocated content (`zone_rewrite`).
//!
//! Crash safety: the records of the old epoch count until the new epoch is complete on all drives. Everything that the
//! steps write states what the drives hold, so that a mount after a crash repeats the steps without harm.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use zoned::{Action, Blocks, Durability, Error, ErrorKind, Geometry, Resources, Result, ZoneId, ZoneState};

use crate::background::idle_spares::IdleSpares;
use crate::context::Context;
use crate::core::Core;
use crate::events::Bus;
use crate::format::record::Body;
use crate::format::superblock::{self, FEATURE_APPENDS, FEATURE_BAD_ROWS, Limits};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::placement::METADATA_ZONES;
use crate::layout::row_set::RowSet;
use crate::layout::running_parity::RunningParity;
use crate::member::drive_ios::DriveIos;
use crate::member::log_contents::ZoneCopy;
use crate::member::physical_zone::PhysicalZone;
use crate::member::{Log, Member};
use crate::membership::{CheckpointWrites, LogClient, Membership};
use crate::metrics::Metrics;
use crate::mount::candidate::Candidate;
use crate::mount::decide::{Decision, PartState, Verdict};
use crate::mount::errors::{FromDrive, MountError, first_failure};
use crate::mount::gather::{Mount, PresentMember};
use crate::mount::resync::{Resync, Resynced};
use crate::mount::zone_rewrite;
use crate::options::AppendMode;
use crate::zone::frames::Frames;
use crate::zone::zone_table::ZoneTable;
use crate::zone::{HIGH_GENERATION, MAX_TRANSFER, Zone};

/// The longest append of an array, in bytes; a stripe if a stripe is longer.
const MAX_APPEND: u64 = 1 << 20;

/// The logical zones of an array, as a mount recovered them.
struct Recovered {
    zones: Vec<Zone>,
    /// Bad rows of each zone's parts, by role.
    bad_rows: Vec<(ZoneId, Vec<RowSet>)>,
    /// Full zones whose physical zones the mount has to finish.
    full: BTreeSet<ZoneId>,
    /// Zones of which more drives lack their part than there are parities.
    failed: Vec<ZoneId>,
    /// Zones whose reset began, and is to be completed.
    resets: Vec<ZoneId>,
}

impl Mount {
    /// Carries out steps 2 to 6 of a mount. Also returns the new drive whose rebuild is to go on.
    pub(crate) async fn start(mut self) -> Result<(Arc<Core>, Option<Candidate>), MountError> {
        self.record_failures().await?;
        let candidate = self.candidate.take();
        self.finish_zone_rewrites().await?;
        let recovered = self.recover_zones().await?;
        let (full, failed) = (recovered.full.clone(), recovered.failed.clone());
        let resets = recovered.resets.clone();
        let targets = self.checkpoint_zones().await?;
        let core = self.begin_epoch(recovered, &targets).await?;
        self.end_old_epoch(&targets, &full, &failed).await?;
        core.actions.complete_resets(&resets).await.of_array()?;
        Ok((core, candidate))
    }

    /// Step 3 of a mount: completes interrupted rewrites of physical zones from their copies.
    async fn finish_zone_rewrites(&mut self) -> Result<(), MountError> {
        let (epoch, block, places) = (self.epoch, self.superblock.block_size, self.places.clone());
        for (slot, present) in (0..).map(Slot).zip(&mut self.present) {
            let Some(present) = present else { continue };
            let Some(contents) = present.log.epochs.get_mut(&epoch) else { continue };
            let mut rewritten = Vec::new();
            for (id, copy) in contents.zone_copies.clone() {
                let ZoneCopy { rows, zone, mask } = copy.content;
                let role = places.role(id, slot);
                let Some(role) = role else { continue };
                let Some(to) = places.place(id, role).map(|place| place.zone) else { continue };
                zone_rewrite::copy_back(&present.device, block, to, rows, zone, mask).await.of(slot)?;
                contents.note_rewritten((id, places.placed_by(id, role)), copy);
                // The metadata zone with the copy stays as it is until the new epoch is complete.
                contents.zones.insert(zone);
                if let Some(info) = PhysicalZone::at(&*present.device, to).info().await.of(slot)? {
                    rewritten.push(info);
                }
            }
            rewritten.into_iter().for_each(|info| present.set_info(info));
        }
        Ok(())
    }

    /// Step 4 of a mount: decides the state of every zone, and resyncs parity with data. The result is
    /// durable when this returns.
    async fn recover_zones(&self) -> Result<Recovered, MountError> {
        // A rebuild's notes name generations of zones: generations must not begin anew while a rebuild is
        // interrupted.
        let restart = !self.superblock.members.iter().any(|member| member.rebuilding);
        let mut recovered = Recovered {
            zones: Vec::with_capacity(self.superblock.zones as usize),
            bad_rows: Vec::new(),
            full: BTreeSet::new(),
            failed: Vec::new(),
            resets: Vec::new(),
        };
        for id in (0..self.superblock.zones).map(ZoneId) {
            let mut zone = self.recover_zone(id, &mut recovered).await?;
            if zone.generation >= HIGH_GENERATION && restart {
                // Records of the new epoch are compared with each other only, so that generations may begin
                // anew.
                zone.generation = 1;
            }
            if zone.state == ZoneState::Full {
                recovered.full.insert(id);
            }
            recovered.zones.push(zone);
        }
        self.flush().await?;
        Ok(recovered)
    }

    async fn recover_zone(&self, id: ZoneId, recovered: &mut Recovered) -> Result<Zone, MountError> {
        let (entry, mut decision) = self.decide(id);
        let first_missing = decision.pointer;
        if !self.has_failed(id, &entry, &decision) {
            decision = self.end_at_whole_write(id, &entry, decision).await?;
            decision = self.decide_section(id, decision);
        }
        let (worn, keeps_worn_part) = (self.has_worn_part(id), self.keeps_worn_part(id));
        // The next life of an empty zone has a generation that no stale record has.
        let fresh = entry.generation.saturating_add(1);
        let empty =
            |state, generation| Zone::new(state, generation, Blocks::ZERO, RunningParity::new(&self.layout));
        Ok(match decision.verdict {
            _ if self.has_failed(id, &entry, &decision) => {
                let lacking = self.missing_parts(id);
                tracing::error!(
                    zone = id.0,
                    lacking,
                    "too many drives lack their part of the zone: the zone failed"
                );
                // A failed zone stays failed until a reset, also when the drives are replaced: new drives
                // lack the content.
                recovered.failed.push(id);
                empty(ZoneState::Offline, entry.generation)
            }
            Verdict::Empty if !keeps_worn_part => empty(ZoneState::Empty, fresh),
            // The intent of a reset (of this zone, or of the first section of a joined zone) may lie in the log of one drive alone, and that
            // drive may be lost with the next power cut. So physical zones are reset only once the new epoch has the intent on all drives.
            Verdict::Reset
                if !keeps_worn_part
                    && self.places.stored().is_none()
                    && self.options.rules().completes_known_resets() =>
            {
                recovered.resets.push(id);
                let mut zone = empty(ZoneState::Empty, entry.generation);
                zone.resetting = true;
                zone
            }
            Verdict::Reset | Verdict::FullWithoutContent if !keeps_worn_part => {
                // With stored maps the record of the next generation may lie on one drive alone, as an intent may. No map names the zone's
                // physical zones then, and step 6 resets them. No block of a full zone without content was acknowledged.
                if self.places.stored().is_none() {
                    self.reset_parts(id).await?;
                }
                let mut zone = empty(ZoneState::Empty, fresh.saturating_add(1));
                if decision.verdict == Verdict::FullWithoutContent {
                    // A full zone without content needs no physical zones, of which one may be worn.
                    if let Some(maps) = self.places.stored() {
                        maps.set(id, &[]);
                    }
                    (zone.state, zone.pointer) = (ZoneState::Full, self.layout.capacity());
                    zone.end = Some(Blocks::ZERO);
                }
                zone
            }
            _ => {
                let (mut zone, bad_rows) =
                    self.resync_zone(id, entry, (decision, first_missing), worn).await?;
                // The worn part of the zone cannot be reset. The content of the other parts must not come
                // back when the drive with the worn part fails or is replaced.
                zone.resetting = decision.verdict == Verdict::Reset;
                recovered.bad_rows.push((id, bad_rows));
                zone
            }
        })
    }

    /// True if a logical zone has a worn part that stays its part. The next life of a zone with a stored map takes other physical zones.
    pub(crate) fn keeps_worn_part(&self, id: ZoneId) -> bool {
        self.has_worn_part(id) && self.places.stored().is_none()
    }

    /// Completes the reset of a logical zone on all its physical zones.
    async fn reset_parts(&self, id: ZoneId) -> Result<(), MountError> {
        for (slot, present, info) in self.physical_zones(id) {
            let worn = matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
            if info.state != ZoneState::Empty && !worn {
                PhysicalZone::at(&*present.device, info.zone).act(Action::Reset).await.of(slot)?;
            }
        }
        Ok(())
    }

    /// Resyncs the stripes of a zone that may have been in flight. Also returns the bad rows of the zone's parts, by role.
    async fn resync_zone(
        &self,
        id: ZoneId,
        entry: ZoneEntry,
        (decision, first_missing): (Decision, Blocks),
        worn: bool,
    ) -> Result<(Zone, Vec<RowSet>), MountError> {
        let resync = self.resync(id, entry.generation, first_missing, decision.verdict);
        let relocates = self.superblock.incompat & superblock::FEATURE_RELOCATION != 0;
        let verdict = match decision.verdict {
            _ if worn => Verdict::Full,
            Verdict::OpenAboveStale if !relocates => Verdict::Full,
            verdict => verdict,
        };
        let resynced = resync.run(&decision, verdict).await?;
        let Resynced { parity, relocated, mut stale, parts, bad_rows, verdict, torn } = resynced;
        let pointer = decision.pointer;
        let block = self.superblock.block_size as usize;
        for (role, part) in self.layout.roles().zip(&parts) {
            let used = self.layout.used(role, pointer);
            match part {
                PartState::Missing => stale.forget(role),
                PartState::Written(row) if verdict.is_open() => stale.cut(block, role, used, *row),
                // A zone with a full part takes no more writes: rows above the pointer do not matter.
                PartState::Written(_) | PartState::Full => stale.cut(block, role, used, used),
            }
        }
        let state = match verdict {
            _ if worn => ZoneState::ReadOnly,
            Verdict::Full | Verdict::Known | Verdict::FullWithoutContent => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        let full = state == ZoneState::Full;
        let mut zone = Zone::new(state, entry.generation, pointer, parity);
        // A worn zone that a mount found empty, and not finished, is empty again once its drive is replaced.
        let is_empty = matches!(decision.verdict, Verdict::Empty | Verdict::Reset);
        if (full || worn) && !is_empty {
            zone.end = Some(pointer);
        }
        if full {
            zone.pointer = self.layout.capacity();
        }
        zone.relocated = relocated;
        zone.torn = torn.filter(|_| full || worn);
        zone.stale = stale;
        Ok((zone, bad_rows))
    }

    /// The resync of a zone, with everything that drives and logs say of the zone.
    pub(crate) fn resync(
        &self,
        id: ZoneId,
        generation: u64,
        first_missing: Blocks,
        verdict: Verdict,
    ) -> Resync {
        let place = |role| self.places.place(id, role);
        let device = |role| Some(self.present(place(role)?.slot)?.device.clone());
        let bad_rows = self.bad_rows_of(id, generation);
        let (stale, relocated) = self.relocated_content(id, generation);
        Resync {
            layout: self.layout,
            block_size: self.superblock.block_size,
            zone: id,
            devices: self.layout.roles().map(device).collect(),
            places: self.layout.roles().map(|role| place(role).unwrap_or_default()).collect(),
            parts: self.parts(id),
            relocated,
            stale,
            first_missing,
            partials: self.partials(id, generation),
            ends_of_writes: self.ends_of_writes(id, generation),
            bad_rows: self
                .layout
                .roles()
                .map(|role| bad_rows.get(place(role)?.slot.index()).cloned())
                .map(Option::unwrap_or_default)
                .collect(),
            has_recorded_end: verdict == Verdict::Known,
            rules: self.options.rules(),
        }
    }

    /// The drives that are present, by slot.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Slot, &PresentMember)> {
        (0..).map(Slot).zip(&self.present).filter_map(|(slot, present)| Some((slot, present.as_ref()?)))
    }

    async fn flush(&self) -> Result<(), MountError> {
        let mut flushes = DriveIos::default();
        self.members().for_each(|(slot, present)| flushes.push(slot, Some(present.device.flush())));
        first_failure(flushes.join().await)
    }

    /// The metadata zone of each drive that takes the mount's checkpoint: one without records that count.
    async fn checkpoint_zones(&self) -> Result<Vec<Option<ZoneId>>, MountError> {
        let mut targets = Vec::new();
        for (slot, present) in (0..).map(Slot).zip(&self.present) {
            let Some(present) = present else {
                targets.push(None);
                continue;
            };
            if let Some((zone, _)) = present.begun {
                targets.push(Some(zone));
                continue;
            }
            let Some(info) = present.first_free_zone(self.epoch) else {
                let error = Error::new(ErrorKind::Damaged, &self.name, "open");
                return Err(error.because(format!("drive {} has no free metadata zone", slot.0))).of(slot);
            };
            if info.state != ZoneState::Empty {
                present.device.zone(info.zone, Action::Reset).await.of(slot)?;
                present.device.flush().await.of(slot)?;
            }
            targets.push(Some(info.zone));
        }
        Ok(targets)
    }

    /// Step 5 of a mount: puts the array together and writes the first checkpoint of the new epoch to every
    /// drive.
    async fn begin_epoch(
        &mut self,
        recovered: Recovered,
        targets: &[Option<ZoneId>],
    ) -> Result<Arc<Core>, MountError> {
        let core = self.build_core(recovered.zones, targets).of_array()?;
        for (id, bad_rows) in recovered.bad_rows {
            for (role, rows) in self.layout.roles().zip(bad_rows) {
                if let Some(part) = core.members.part(id, role) {
                    part.member().bad_rows.set(id, rows);
                }
            }
        }
        zone_rewrite::end_torn_zones(&core);
        write_first_checkpoint(&core).await?;
        Ok(core)
    }

    /// Step 6 of a mount, after the new epoch is complete on all drives: resets the other metadata zones, and
    /// finishes the physical zones of full and failed zones.
    async fn end_old_epoch(
        &self,
        targets: &[Option<ZoneId>],
        full: &BTreeSet<ZoneId>,
        failed: &[ZoneId],
    ) -> Result<(), MountError> {
        // All of this is safe to repeat, so that the drives need no order.
        let mut ios = DriveIos::default();
        for (slot, (present, target)) in (0..).map(Slot).zip(self.present.iter().zip(targets)) {
            let (Some(present), Some(target)) = (present, target) else { continue };
            for info in present.zones.iter().filter(|info| info.zone != *target) {
                // A worn metadata zone keeps its records, which are of an older epoch.
                let worn = matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline);
                if info.state != ZoneState::Empty && !worn {
                    ios.push(slot, Some(present.device.zone(info.zone, Action::Reset)));
                }
            }
        }
        for id in full {
            for (place, present, info) in self.last_parts(*id) {
                // A physical zone with a slot for another part stays as it is.
                let has_slot = self.shares_zones()
                    && self.next_slot(place.row, Some(info)) + self.layout.part_rows
                        <= self.superblock.zone_capacity.0;
                if info.state != ZoneState::Full && !has_slot {
                    ios.push(
                        place.slot,
                        Some(PhysicalZone::at(&*present.device, info.zone).act(Action::Finish)),
                    );
                }
            }
        }
        first_failure(ios.join().await)?;
        self.finish_failed_zones(failed).await?;
        self.reset_unmapped_zones().await?;
        self.flush().await
    }

    fn build_core(&mut self, mut zones: Vec<Zone>, targets: &[Option<ZoneId>]) -> Result<Arc<Core>> {
        let geometry = self.geometry()?;
        if self.superblock.limits.is_none() && self.present.iter().all(Option::is_some) {
            let Geometry { max_open, max_active, .. } = geometry;
            self.superblock.limits = Some(Limits { max_open, max_active });
            self.superblock.config += 1;
        }
        if self.superblock.incompat & FEATURE_BAD_ROWS == 0 {
            // The superblock's feature bit keeps out builds that do not know bad rows and would read zeros
            // there.
            self.superblock.incompat |= FEATURE_BAD_ROWS;
            self.superblock.config += 1;
        }
        let may_append = self.options.appends != AppendMode::Ordered && !self.has_atomic_writes();
        if may_append && self.superblock.incompat & FEATURE_APPENDS == 0 {
            // Builds that do not know reorder records would believe the parity that these correct.
            self.superblock.incompat |= FEATURE_APPENDS;
            self.superblock.config += 1;
        }
        let mut limits = Resources::default();
        for (id, zone) in (0..).map(ZoneId).zip(&mut zones) {
            if self.has_atomic_writes() {
                zone.frames = Some(Frames::at(zone.readable()));
            }
            // A worn zone cannot be closed, so that its parts on other drives stay active. The parts of a
            // failed zone do not.
            zone.worn_active = zone.state == ZoneState::ReadOnly && self.is_active(id);
            limits.moved(id, ZoneState::Empty, if zone.worn_active { ZoneState::Closed } else { zone.state });
        }
        let metrics: Arc<Metrics> = Arc::default();
        let member = |(slot, (present, target)): (Slot, (&Option<PresentMember>, &Option<ZoneId>))| {
            let device = present.as_ref().map(|p| p.device.clone());
            let capacity = device.as_ref().map_or(0, |device| device.geometry().zone_capacity.0);
            let begun = present.as_ref().and_then(|p| p.begun).map_or(0, |(_, blocks)| blocks);
            let sequence = present.as_ref().map_or(0, |p| p.log.sequence + 1);
            let zone = target.unwrap_or_default();
            let log = Log::new(&self.superblock, self.next, sequence, zone, begun, capacity);
            let member = Member::new(slot, device, log, Arc::clone(&metrics));
            member.set_vacant(self.superblock.member(slot).is_some_and(|info| info.vacated));
            member
        };
        let driver = self.present.iter().flatten().next().expect("at least two").device.driver();
        let members = (0..).map(Slot).zip(self.present.iter().zip(targets)).map(member).collect();
        let ctx = Arc::new(Context {
            geometry,
            layout: self.layout,
            places: self.places.clone(),
            driver: Arc::clone(driver),
            rules: self.options.rules(),
            appends: self.options.appends,
            append_round: self.options.append_round,
            metrics: Arc::clone(&metrics),
            events: Bus::default(),
            owner: OnceLock::new(),
        });
        let members = Arc::new(Membership::new(&ctx, members, self.superblock.clone()));
        let free = self.free_physical_zones(|id| {
            zones.get(id.index()).is_some_and(|zone| zone.state == ZoneState::Empty)
        });
        let shared = self.shared_physical_zones(|id| zones.get(id.index()).map(|zone| zone.state));
        let zones =
            Arc::new(ZoneTable::new(&ctx, &members, zones, limits, self.worn_zones(), (free, shared)));
        let spares = IdleSpares::new(std::mem::take(&mut self.spares), self.options.rebuild);
        Ok(Core::new(ctx, members, zones, spares))
    }

    fn geometry(&self) -> Result<Geometry> {
        let block = u64::from(self.superblock.block_size);
        let all = || self.present.iter().flatten().map(|p| p.device.geometry());
        // The superblock's limits do not depend on which drive is missing.
        let limits = self.superblock.limits.unwrap_or_else(|| Limits::of(all(), METADATA_ZONES));
        let stripe = self.layout.unit * self.layout.data_units();
        let capacity = self.layout.capacity();
        // Kernels expect zone sizes that are powers of two.
        let zone_size = match self.shares_zones() {
            true => Blocks(capacity.0.next_power_of_two()),
            false => Blocks(self.superblock.zone_size.0 * self.layout.data_units()),
        };
        let most = |bytes: u64| Blocks((bytes / block).max(stripe)).min(capacity);
        Ok(Geometry {
            name: Arc::clone(&self.name),
            block_size: self.superblock.block_size,
            zones: self.superblock.zones,
            conventional: 0,
            zone_size,
            zone_capacity: capacity,
            max_open: limits.max_open,
            max_active: limits.max_active,
            max_append: most(MAX_APPEND),
            max_transfer: most(MAX_TRANSFER),
            atomic_write: if self.has_atomic_writes() { most(MAX_TRANSFER) } else { Blocks(1) },
            optimal_write: Blocks(stripe).min(capacity),
            volatile_cache: all().any(|g| g.volatile_cache),
            ordered_cache: false,
            read_past_pointer: true,
        })
    }
}

/// Writes the first records of the epoch to every drive. The end record follows when all other records are durable on all
/// drives.
async fn write_first_checkpoint(core: &Arc<Core>) -> Result<(), MountError> {
    let superblock = Body::Superblock(core.members.config.lock().clone());
    let mut ios = DriveIos::default();
    let full = |_| {
        let error = core
            .ctx
            .error(ErrorKind::ZoneFull, "open")
            .because("the checkpoint does not fit a metadata zone");
        MountError { slot: None, error }
    };
    for member in core.members.working_members() {
        ios.push(member.slot, member.append(&superblock, true, Durability::Cached).map_err(full)?);
        let (slot, incarnation) = (member.slot, member.log.lock().incarnation);
        let mut writes = CheckpointWrites::default();
        core.checkpoints.write_checkpoint(slot, incarnation, &mut writes).map_err(full)?;
        debug_assert!(writes.barriers.is_empty() && writes.commits.is_empty(), "nothing is in flight yet");
        writes.ios.into_iter().for_each(|io| ios.push(slot, Some(io)));
    }
    first_failure(ios.join().await)?;
    let mut flushes = DriveIos::default();
    core.members.working_members().for_each(|member| flushes.push(member.slot, member.flush()));
    first_failure(flushes.join().await)?;
    let mut ends = DriveIos::default();
    for member in core.members.working_members() {
        let end = member.append(&Body::CheckpointEnd, true, Durability::Durable).map_err(full)?;
        ends.push(member.slot, end);
    }
    first_failure(ends.join().await)
}
