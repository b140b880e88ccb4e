//! Rebuild: a new drive replaces a failed one while the array is in use (RAIZN, section 4.2.2).
//!
//! 1. The new drive is reset. The superblocks of the other drives name it, and its rebuild notes begin.
//! 2. Each zone is copied from the other drives (`copy_zone`), active zones first, at a pace that respects clients
//!    (`background::pace`). From then on the zone's writes go to the new drive too. Durable zones are noted
//!    (`rebuild_notes`).
//! 3. The new drive's log begins with a checkpoint, everything in flight is flushed, the superblocks name it as a
//!    good member, and its checkpoint gets its end record (`admit_member`).
//!
//! A drive without that end record is no member. After a crash the array works without the drive, as before. A mount
//! with the new drive resumes the rebuild: it copies the zones that are not noted, or were changed since.

mod admit_member;
mod copy_zone;
mod rebuild_notes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uuid::Uuid;
use zoned::{ErrorKind, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice};

use crate::RebuildOptions;
use crate::admin::create_array::{self, refuse_worn_zones, reset_all_zones};
use crate::array::Array;
use crate::background::idle_spares::MARK_ZONE;
use crate::background::job_runner::Runner;
use crate::background::jobs::{Job, Rebuild};
use crate::background::rebuild::admit_member::admit_member;
use crate::background::rebuild::copy_zone::{CopyPatience, CopyResult, RebuildTarget, needed_rows};
use crate::background::rebuild::rebuild_notes::{NotedZones, RebuildNotes, unchanged_noted_zones};
use crate::core::Core;
use crate::events::EventKind;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::placement::{Place, part_zones};
use crate::member::drive_fits::check_drive_fits;
use crate::member::log_contents::LogContents;
use crate::member::member_drive::MemberDrive;
use crate::mount::candidate::Candidate;

impl Array {
    /// Replaces the drive in `slot`, which failed or is missing, by `device`, and rebuilds its content. **All data on
    /// `device` is lost.** The array stays in use. When this returns, the array has all its drives. A dropped future
    /// does not stop the rebuild: [`Array::rebuild`] returns its handle.
    ///
    /// Errors: those of [`Array::start_replace`]; any other error ends the rebuild, and the array works without the
    /// drive.
    pub async fn replace(&self, slot: Slot, device: Arc<dyn ZonedDevice>) -> Result<()> {
        self.start_replace(slot, device, RebuildOptions::default()).await?.wait().await
    }

    /// Checks that the drive in `slot` may be replaced now.
    ///
    /// Errors: [`ErrorKind::Invalid`] if there is no such slot, its drive is good, or a rebuild runs.
    pub fn may_replace(&self, slot: Slot) -> Result<()> {
        let core = &self.core;
        let refuse = |why: String| Err(core.ctx.error(ErrorKind::Invalid, "replace").because(why));
        let count = core.ctx.places.drives();
        if slot.0 >= count {
            return refuse(format!("the array has {count} slots, from 0 on: there is no {}", slot.0));
        }
        if core.members.member(slot).is_good() || core.members.is_broken() {
            return refuse("only a failed or missing drive of an array that works is replaced".to_owned());
        }
        if core.jobs.running_rebuild().is_some() {
            return refuse("a rebuild runs already: wait for it, or cancel it".to_owned());
        }
        if let Some(other) = core.members.needed_before(slot) {
            return refuse(format!(
                "the array lacks nothing of drive {}, and drive {} is lacking: replace that one first",
                slot.0, other.0
            ));
        }
        Ok(())
    }

    /// Begins to replace the drive in `slot`, which failed or is missing, by `device`. **All data on `device` is
    /// lost.** Returns when the drive is reset. The rebuild runs beside clients (RAIZN, section 4.2.2), and resumes
    /// after a restart if the drive is among the given ones.
    ///
    /// Errors: [`ErrorKind::Invalid`] if the slot's drive is good, a rebuild runs, or the new drive does not fit;
    /// [`ErrorKind::ZoneReadOnly`] or [`ErrorKind::ZoneOffline`] if a zone of the new drive is worn: no data of it is
    /// lost then.
    pub async fn start_replace(
        &self,
        slot: Slot,
        device: Arc<dyn ZonedDevice>,
        options: RebuildOptions,
    ) -> Result<Rebuild> {
        let (core, device) = (&self.core, MemberDrive::new(device));
        options.pace.check(&core.ctx.geometry.name)?;
        self.may_replace(slot)?;
        let superblock = self.superblock();
        core.refuse_drive_of_array(&device, "replace")?;
        check_drive_fits(&device, &superblock, slot)?;
        refuse_lower_zone_limits(core, &device, "replace")?;
        let handle = begin_job(core, slot)?;
        if let Err(e) = prepare_new_drive(core, slot, &device).await {
            // An idle spare may take the place of the drive.
            handle.job.set_new_drive_failed();
            core.ctx.publish(EventKind::RebuildEnded { slot, error: Some(e.to_string()) });
            handle.end(Err(e.duplicate()));
            return Err(e);
        }
        run_rebuild(core, slot, (device, NewDrive::Named), options, None, &handle);
        Ok(handle)
    }

    /// The rebuild that runs, or the last one that ran.
    pub fn rebuild(&self) -> Option<Rebuild> {
        self.core.jobs.rebuild.lock().clone()
    }
}

/// Refuses a new drive that cannot have as many zones open or active as the array promises.
pub(super) fn refuse_lower_zone_limits(
    core: &Core,
    device: &MemberDrive,
    operation: &'static str,
) -> Result<()> {
    let own = device.geometry();
    let kept = core.members.config.lock().placement.kept_active_zones();
    let lacks = |promised: Option<u32>, has: Option<u32>| {
        has.is_some_and(|has| promised.is_none_or(|n| n.saturating_add(kept) > has.max(4)))
    };
    if lacks(core.ctx.geometry.max_open, own.max_open) || lacks(core.ctx.geometry.max_active, own.max_active)
    {
        let error = core.ctx.error(ErrorKind::Invalid, operation);
        return Err(error.because(format!(
            "{} can have {:?} zones open and {:?} active, which is less than the other drives: the array would \
             have to lower limits that its users rely on",
            own.name, own.max_open, own.max_active
        )));
    }
    if own.volatile_cache && !core.ctx.geometry.volatile_cache {
        let error = core.ctx.error(ErrorKind::Invalid, operation);
        return Err(error.because(format!(
            "the cache of {} is volatile, and the array reports no volatile cache, so that its users flush nothing",
            own.name
        )));
    }
    Ok(())
}

/// Begins to rebuild the drive in `slot`, which failed or is missing, onto an idle spare. Returns when the superblocks name
/// the spare as the new drive. The spare's mark stays until the rebuild's notes begin.
///
/// Errors: [`ErrorKind::Invalid`] if a rebuild runs, or the spare does not fit; those of the spare's drive.
pub(super) async fn begin_on_spare(
    core: &Arc<Core>,
    slot: Slot,
    device: MemberDrive,
    uuid: Uuid,
) -> Result<()> {
    check_drive_fits(&device, &core.members.config.lock().clone(), slot)?;
    refuse_lower_zone_limits(core, &device, "replace")?;
    let handle = begin_job(core, slot)?;
    if let Err(e) = prepare_spare(core, slot, &device, uuid).await {
        handle.end(Err(e.duplicate()));
        return Err(e);
    }
    core.ctx.publish(EventKind::SpareUsed { slot, spare: uuid });
    run_rebuild(core, slot, (device, NewDrive::Spare), core.spares.options, None, &handle);
    Ok(())
}

/// Names a spare in the superblocks as the new drive of `slot`, and resets the spare apart from its mark.
async fn prepare_spare(core: &Arc<Core>, slot: Slot, device: &MemberDrive, uuid: Uuid) -> Result<()> {
    let zones = device.report(0..device.geometry().zones).await?;
    let needed = part_zones(core.members.part_zones()).end as usize;
    refuse_worn_zones(device, "replace", zones.iter().take(needed))?;
    name_new_drive(core, slot, uuid).await?;
    let unmarked: Vec<ZoneInfo> = zones.into_iter().filter(|info| info.zone != MARK_ZONE).collect();
    reset_all_zones(device, &unmarked).await
}

fn begin_job(core: &Arc<Core>, slot: Slot) -> Result<Rebuild> {
    core.jobs.begin_rebuild(Job::new(Some(slot), &core.ctx.driver)).ok_or_else(|| {
        let error = core.ctx.error(ErrorKind::Invalid, "replace");
        error.because("a rebuild runs already: wait for it, or cancel it")
    })
}

/// Resets a new drive, and names it in the superblocks.
async fn prepare_new_drive(core: &Arc<Core>, slot: Slot, device: &MemberDrive) -> Result<()> {
    let zones = device.report(0..device.geometry().zones).await?;
    // Every physical zone of the new drive that the array uses must take writes.
    let needed = part_zones(core.members.part_zones()).end as usize;
    refuse_worn_zones(device, "replace", zones.iter().take(needed))?;
    reset_all_zones(device, &zones).await?;
    name_new_drive(core, slot, create_array::random_uuid(&*core.ctx.driver)).await
}

/// Names a new drive of `slot` in the superblocks, durably. A spare with this identity is idle no more.
async fn name_new_drive(core: &Arc<Core>, slot: Slot, uuid: Uuid) -> Result<()> {
    core.members
        .publish(|superblock| {
            if let Some(info) = superblock.members.get_mut(slot.index()) {
                (info.uuid, info.failed, info.rebuilding) = (uuid, true, true);
            }
            superblock.spares.retain(|spare| *spare != uuid);
        })
        .await
}

/// Where the new drive of a rebuild comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NewDrive {
    /// An operator named the slot that it is for, and hears of the rebuild's end.
    Named,
    /// An idle spare, or the new drive of a rebuild that a mount resumes: nobody waits for its end. Where another drive has to be replaced
    /// first, it becomes an idle spare.
    Spare,
}

/// Runs a rebuild as a task. `from`: the new drive's log, as an interrupted rebuild left it.
fn run_rebuild(
    core: &Arc<Core>,
    slot: Slot,
    (device, new_drive): (MemberDrive, NewDrive),
    options: RebuildOptions,
    from: Option<LogContents>,
    handle: &Rebuild,
) {
    core.members.member(slot).begin_replacement(device.clone(), core.ctx.geometry.zones as usize);
    match core.zones.shared() {
        Some(shared) => shared.replace_drive(slot),
        None => core.zones.free().replace_drive(slot),
    }
    if let Some(shared) = core.zones.shared() {
        // No part moves beside a rebuild, which may wait for zones whose first writes wait for room.
        shared.requests.close(&core.ctx.error(ErrorKind::NoSpace, "write"));
    }
    core.ctx.publish(EventKind::RebuildStarted { slot, resumed: from.is_some() });
    let driver = Arc::clone(&core.ctx.driver);
    let (core, handle) = (Arc::clone(core), handle.clone());
    let task = async move {
        let places_stay = core.jobs.places.acquire().await;
        let mut runner = Runner::new(&core, &handle.job, options.pace);
        let target = RebuildTarget::new(slot, device);
        let result = rebuild_member(&core, &mut runner, (slot, &target), from).await;
        if let Err(error) = &result {
            let member = core.members.member(slot);
            if member.is_aborted() || error.device() == &*target.copy.device.geometry().name {
                handle.job.set_new_drive_failed();
            }
            let is_for_another = new_drive == NewDrive::Spare
                && !handle.job.is_ended_early()
                && !handle.job.has_new_drive_failed()
                && core.members.needed_before(slot).is_some();
            end_failed_rebuild(&core, slot, handle.job.is_stopped(), error).await;
            if is_for_another {
                core.spares.give_back(target.copy.device.clone());
            }
        }
        core.members.member(slot).end_replacement();
        drop((runner, target, places_stay));
        let error = result.as_ref().err().map(ToString::to_string);
        if !handle.job.is_stopped() {
            core.ctx.publish(EventKind::RebuildEnded { slot, error });
        }
        handle.end(result);
        if let Some(shared) = core.zones.shared().filter(|_| core.jobs.reclaims()) {
            shared.requests.open();
            shared.requests.changed.notify();
        }
    };
    drop(units::spawn(&*driver, "rebuild", task));
}

/// Ends a failed rebuild: the array works without the drive. `stopped`: the next mount resumes it.
async fn end_failed_rebuild(core: &Arc<Core>, slot: Slot, stopped: bool, error: &zoned::Error) {
    let member = core.members.member(slot);
    member.abort_replacement();
    if stopped {
        return;
    }
    match error.kind() {
        ErrorKind::Cancelled => tracing::warn!(slot = slot.0, "an operator cancelled the rebuild"),
        _ => tracing::error!(slot = slot.0, %error, "the rebuild ended"),
    }
    if member.is_good() {
        // The new drive was written as a member already, so it is failed like a member. A failure that breaks
        // the array is reported elsewhere.
        let _broken = core.members.fail(slot, error).await;
    } else {
        let forget = core.members.publish(|superblock| {
            if let Some(info) = superblock.members.get_mut(slot.index()) {
                info.rebuilding = false;
            }
        });
        let _broken = forget.await;
    }
}

async fn rebuild_member(
    core: &Arc<Core>,
    runner: &mut Runner,
    (slot, target): (Slot, &RebuildTarget),
    from: Option<LogContents>,
) -> Result<()> {
    core.members.refuse_needed_before(slot)?;
    let noted = from.as_ref().map(rebuild_notes::known).unwrap_or_default();
    // Parts behind one another are copied in their order: a rebuild of physical zones that zones share begins anew.
    let kept = match core.zones.shared() {
        Some(_) => NotedZones::new(),
        None => unchanged_noted_zones(core, slot, &target.copy.device, &noted).await?,
    };
    if let Some(log) = &from {
        rebuild_notes::keep_bad_rows(core, slot, log, &kept);
    }
    clear_other_zones(core, slot, &target.copy.device, &kept).await?;
    let mut notes = RebuildNotes::begin(core, slot, &target.copy.device, &kept, from.as_ref()).await?;
    let mut order: Vec<ZoneId> = (0..core.ctx.geometry.zones).map(ZoneId).collect();
    set_job_totals(core, runner, slot, &kept);
    // Zones that the new drive holds already come first, because they cost nothing, then active zones: until
    // an active zone is copied, its writes lack redundancy.
    order.sort_by_key(|id| (!kept.contains_key(id), !core.zones.zone(*id).state.is_active()));
    let mut left: VecDeque<(ZoneId, u32)> = order.into_iter().map(|id| (id, 0)).collect();
    while let Some((id, tries)) = left.pop_front() {
        core.members.refuse_needed_before(slot)?;
        if runner.job.is_ended_early() || core.members.is_broken() || core.members.member(slot).is_aborted() {
            return Err(if core.members.is_broken() {
                core.members.broken_error("rebuild")
            } else {
                target.copy.early_end_error(core)
            });
        }
        if target.lacks_part_below(core, id) {
            left.push_back((id, tries));
            continue;
        }
        let there = kept.get(&id).copied().filter(|_| tries == 0);
        // A zone with a rebuild note is not put off: a restarted copy would leave the note while the new
        // drive's zone is reset.
        let how = match tries {
            MAX_COPY_RESTARTS.. => CopyPatience::Last,
            ..MAX_PUT_OFFS if there.is_none() && !left.is_empty() && core.zones.shared().is_none() => {
                CopyPatience::Patient
            }
            _ => CopyPatience::Follows,
        };
        match target.fill(runner, id, there, how).await {
            Ok(CopyResult::Done(entry)) => {
                count_and_note_zone(core, runner, &mut notes, id, entry, there == Some(entry)).await?;
            }
            Ok(CopyResult::Later) => left.push_back((id, tries + 1)),
            Ok(CopyResult::Again) => left.push_front((id, tries + 1)),
            // The copy failed because another drive failed and broke the array.
            Err(_) if core.members.is_broken() => return Err(core.members.broken_error("rebuild")),
            Err(e) => return Err(e),
        }
    }
    target.copy.device.flush().await?;
    if runner.job.is_ended_early() {
        return Err(target.copy.early_end_error(core));
    }
    let result = match admit_member(core, slot, &notes).await {
        Ok(()) => {
            // The slot's worn zones were those of the old drive. The next mount makes their logical zones
            // usable.
            core.zones.worn.forget_replaced_drive(slot);
            notes.end().await
        }
        Err(e) => {
            if core.members.member(slot).is_good() {
                // The new drive is failed before its log rolls: the end record of a checkpoint would make the
                // drive a member.
                let _broken = core.members.fail(slot, &e).await;
            }
            Err(e)
        }
    };
    let incarnation = core.members.member(slot).log.lock().incarnation;
    core.members.end_roll(slot, incarnation);
    result
}

/// Resets the physical zones of a new drive that hold nothing to keep, with stored maps: a zone that begins its life during the
/// rebuild may take any of them.
async fn clear_other_zones(core: &Core, slot: Slot, device: &MemberDrive, kept: &NotedZones) -> Result<()> {
    let Some(maps) = core.ctx.places.stored() else { return Ok(()) };
    let kept: Vec<Place> = kept.keys().flat_map(|id| maps.places(*id)).collect();
    let is_kept = |info: &ZoneInfo| kept.contains(&Place::whole(slot, info.zone));
    let mut zones = device.report(part_zones(core.members.part_zones())).await?;
    zones.retain(|info| !is_kept(info));
    let worn = zones.iter().filter(|info| matches!(info.state, ZoneState::ReadOnly | ZoneState::Offline));
    for info in worn {
        match core.zones.shared() {
            Some(shared) => shared.wear(Place::whole(slot, info.zone)),
            None => core.zones.free().wear(Place::whole(slot, info.zone)),
        }
    }
    reset_all_zones(device, &zones).await
}

/// Counts and notes a zone that was copied to the new drive, or kept on it.
async fn count_and_note_zone(
    core: &Arc<Core>,
    runner: &Runner,
    notes: &mut RebuildNotes,
    id: ZoneId,
    entry: ZoneEntry,
    noted: bool,
) -> Result<()> {
    if entry.end.is_none_or(|end| end.0 == 0) {
        return Ok(());
    }
    runner.job.zones_done.fetch_add(1, Ordering::Relaxed);
    let bad = runner.job.slot.map(|slot| (slot, core.members.member(slot).bad_rows.of(id)));
    if let Some((slot, bad)) = bad.filter(|(_, bad)| !bad.is_empty()) {
        let blocks = bad.len();
        core.ctx.publish(EventKind::BlocksLost { slot, zone: id, blocks });
    }
    if noted {
        return Ok(());
    }
    notes.note(core, &[(id, entry)]).await
}

/// Sets the totals of the rebuild's progress.
fn set_job_totals(core: &Core, runner: &Runner, slot: Slot, kept: &NotedZones) {
    let job = &runner.job;
    let (mut zones, mut total, mut before) = (0, 0, 0);
    for id in (0..core.ctx.geometry.zones).map(ZoneId) {
        let rows = needed_rows(core, id, slot);
        if core.zones.zone(id).readable().0 == 0 {
            continue;
        }
        zones += 1;
        total += core.ctx.bytes(rows) as u64;
        before += if kept.contains_key(&id) { core.ctx.bytes(rows) as u64 } else { 0 };
    }
    job.zones.store(zones, Ordering::Relaxed);
    job.total.store(total, Ordering::Relaxed);
    job.before.store(before, Ordering::Relaxed);
    job.bytes.store(before, Ordering::Relaxed);
}

/// Resumes a rebuild that a restart interrupted.
pub(crate) fn resume(core: &Arc<Core>, candidate: Candidate, options: RebuildOptions) -> Result<()> {
    let Candidate { slot, device, log } = candidate;
    refuse_lower_zone_limits(core, &device, "replace")?;
    let handle = begin_job(core, slot)?;
    run_rebuild(core, slot, (device, NewDrive::Spare), options, Some(log), &handle);
    Ok(())
}

/// How often the copy of a zone that clients write is put off.
const MAX_PUT_OFFS: u32 = 3;
/// How often the copy of a zone restarts after resets, before the zone's I/O waits for the copy.
const MAX_COPY_RESTARTS: u32 = 16;
