//! Idle spares: drives that take the place of a failed one by themselves.
//!
//! An idle spare is blank but for a mark, a superblock in its metadata zone 0, and the array's superblocks list it. Whoever
//! holds the array takes the first spare whose drive is present as soon as a drive fails, or when the array is opened
//! without a drive. Where lost parts can move to spare room on other drives, the spare is taken after these moves:
//!
//! 1. The superblocks of the other drives name the spare as the failed slot's new drive, under the spare's identity, and
//!    list the spare no more.
//! 2. The spare is reset, apart from its mark. The rebuild's notes begin in another metadata zone, and then the mark is reset.
//! 3. The rebuild runs like that of any new drive.
//!
//! Crash safety: before step 1 is durable the spare is still idle. From then on until the notes begin, a mount knows the
//! marked drive by its identity and takes it again for its slot. Afterwards the notes resume the rebuild. A drive that has a
//! mark and is not listed is left out, with a warning: a crash fell between the two writes that add or remove a spare.

use std::sync::Arc;

use units::spawn;
use uuid::Uuid;
use zoned::{Action, Durability, Error, ErrorKind, Result, ZoneInfo, ZonedDevice};

use crate::admin::create_array::{random_uuid, refuse_worn_zones, reset_all_zones};
use crate::array::Array;
use crate::background::idle_spares::{IdleSpare, MARK_ZONE};
use crate::background::moves::restore;
use crate::background::rebuild;
use crate::core::Core;
use crate::degraded::errors::{Retries, fails_the_drive};
use crate::events::EventKind;
use crate::format::record::{self, Body, RecordId};
use crate::format::superblock::{MAX_SPARES, MemberInfo, Superblock};
use crate::layout::Slot;
use crate::layout::placement::part_zones;
use crate::member::drive_fits::check_drive_fits;
use crate::member::member_drive::MemberDrive;

impl Array {
    /// Makes `device` an idle spare, which takes the place of a drive that fails. **All data on `device` is lost.** The
    /// spare is recorded durably when this returns. In a degraded array the spare is taken at once, and its rebuild begins, unless lost
    /// parts move to spare room first.
    ///
    /// Errors: [`ErrorKind::Invalid`] if the array has 8 idle spares already, or the drive can have fewer zones open or active
    /// than the array promises; [`ErrorKind::Damaged`] if its zones are too few or too small; [`ErrorKind::ZoneReadOnly`] or
    /// [`ErrorKind::ZoneOffline`] if a zone of the drive is worn. No data of the drive is lost then.
    pub async fn add_spare(&self, device: Arc<dyn ZonedDevice>) -> Result<Uuid> {
        let (core, device) = (&self.core, MemberDrive::new(device));
        let uuid = {
            let _turn = core.spares.turn.acquire().await;
            self.may_add_spare()?;
            core.refuse_drive_of_array(&device, "add a spare")?;
            let superblock = self.superblock();
            check_drive_fits(&device, &superblock, Slot(0))?;
            rebuild::refuse_lower_zone_limits(core, &device, "add a spare")?;
            let zones = device.report(0..device.geometry().zones).await?;
            refuse_worn_zones(
                &device,
                "add a spare",
                zones.iter().take(part_zones(superblock.part_zones).end as usize),
            )?;
            mark_and_list(core, device, &zones).await?
        };
        watch(core);
        if !restore::is_due(core) {
            take_spare(core).await;
        }
        Ok(uuid)
    }

    /// Checks that the array takes another idle spare now.
    ///
    /// Errors: [`ErrorKind::Invalid`] if the array has 8 idle spares; [`ErrorKind::Gone`] if more drives failed than there are parities.
    pub fn may_add_spare(&self) -> Result<()> {
        let core = &self.core;
        if core.members.is_broken() {
            return Err(core.members.broken_error("add a spare"));
        }
        let count = core.members.config.lock().spares.len();
        if count >= MAX_SPARES {
            let error = core.ctx.error(ErrorKind::Invalid, "add a spare");
            return Err(
                error.because(format!("the array has {count} idle spares, the most that it may have"))
            );
        }
        Ok(())
    }

    /// Begins the rebuild of the drive that the array lacks onto an idle spare, if there are such a drive and such a spare and no
    /// rebuild runs. The array does this by itself soon after a failure.
    pub async fn take_spare(&self) {
        take_spare(&self.core).await;
    }

    /// Gives up an idle spare, present or missing. When this returns, the superblocks do not list the spare, and its
    /// drive, if present and working, is blank.
    ///
    /// Errors: [`ErrorKind::NotFound`] if the array has no such idle spare: a spare that was taken is a member.
    pub async fn remove_spare(&self, uuid: Uuid) -> Result<()> {
        let core = &self.core;
        let _turn = core.spares.turn.acquire().await;
        if !self.superblock().spares.contains(&uuid) {
            let error = core.ctx.error(ErrorKind::NotFound, "remove a spare");
            return Err(error.because(format!("the array has no idle spare {uuid}")));
        }
        core.members.publish(|superblock| superblock.spares.retain(|spare| *spare != uuid)).await?;
        let Some(spare) = core.spares.take(uuid) else { return Ok(()) };
        let erased = async {
            spare.device.zone(MARK_ZONE, Action::Reset).await?;
            spare.device.flush().await
        };
        if let Err(error) = erased.await {
            tracing::warn!(spare = %uuid, %error, "the spare is given up, and keeps its mark");
        }
        Ok(())
    }
}

/// Erases a drive, marks it as an idle spare, and lists it in the superblocks. The caller holds the turn of the spares.
async fn mark_and_list(core: &Arc<Core>, device: MemberDrive, zones: &[ZoneInfo]) -> Result<Uuid> {
    reset_all_zones(&device, zones).await?;
    let uuid = random_uuid(&*core.ctx.driver);
    let mut marked = core.members.config.lock().clone();
    let index = marked.spares.len();
    marked.spares.push(uuid);
    let place = RecordId {
        array: marked.uuid,
        member: marked.slot_of_spare(index),
        epoch: core.members.epoch(),
        sequence: 0,
        checkpoint: false,
    };
    let mark = record::encode(place, &Body::Superblock(marked), core.ctx.geometry.block_size);
    device.write(device.geometry().start(MARK_ZONE), mark, Durability::Durable).await?;
    core.members.publish(|superblock| superblock.spares.push(uuid)).await?;
    core.spares.push(IdleSpare { uuid, device });
    Ok(uuid)
}

/// Makes the drives idle spares again whose rebuilds ended because another drive has to be replaced first, and takes one for that drive.
async fn take_back_returned(core: &Arc<Core>) {
    while let Some(device) = core.spares.take_returned() {
        let listed = async {
            let _turn = core.spares.turn.acquire().await;
            if core.members.config.lock().spares.len() >= MAX_SPARES {
                let error = core.ctx.error(ErrorKind::Invalid, "add a spare");
                return Err(error.because("the array has as many idle spares as it may have"));
            }
            let zones = device.report(0..device.geometry().zones).await?;
            mark_and_list(core, device.clone(), &zones).await
        };
        match listed.await {
            Ok(spare) => tracing::info!(%spare, "the new drive of a vacated slot is an idle spare again"),
            Err(error) => {
                tracing::warn!(%error, drive = %device.geometry().name, "a spare that was not needed is left out");
            }
        }
        if !restore::is_due(core) {
            take_spare(core).await;
        }
    }
}

/// Starts the task that replaces each failed drive by an idle spare, unless it runs already. The task ends with the array, and
/// keeps no drive open while it waits.
pub(crate) fn watch(core: &Arc<Core>) {
    if !core.spares.begin_watch() {
        return;
    }
    let (events, watched) = (core.ctx.events.subscribe(), Arc::downgrade(core));
    let task = async move {
        while let Some(event) = events.next_until_closed().await {
            let Some(last) = watched.upgrade().map(|core| core.jobs.rebuild.lock().clone()) else { return };
            if let Some(last) = &last {
                let _ended = last.wait().await;
            }
            if let Some(core) = watched.upgrade() {
                take_back_returned(&core).await;
            }
            let takes = match event.kind {
                EventKind::DriveFailed { .. } | EventKind::RestoreEnded { .. } => {
                    last.is_none_or(|rebuild| !rebuild.job.is_cancelled())
                }
                // The next spare would fail too if another drive than the new one stopped the rebuild.
                EventKind::RebuildEnded { error: Some(_), .. } => {
                    last.is_some_and(|rebuild| rebuild.job.has_new_drive_failed())
                }
                // Of an array with two parities another drive may have failed meanwhile.
                EventKind::Dropped(_) | EventKind::RebuildEnded { error: None, .. } => true,
                _ => false,
            };
            // The spare room of the other drives comes first: all drives that work restore lost parts.
            let is_restored = matches!(event.kind, EventKind::RestoreEnded { .. });
            if let Some(core) = watched.upgrade() {
                // A drive whose failure is being recorded counts as failed only afterwards.
                let _broken = core.members.failures_persisted("replace").await;
            }
            if let Some(core) =
                watched.upgrade().filter(|core| takes && (is_restored || !restore::is_due(core)))
            {
                take_spare(&core).await;
            }
        }
    };
    drop(spawn(&*core.ctx.driver, "spares", task));
}

/// Begins to rebuild the drive that the array lacks onto the first idle spare that can be used, if there are such a drive and
/// such a spare, and no rebuild runs.
pub(crate) async fn take_spare(core: &Arc<Core>) {
    let _turn = core.spares.turn.acquire().await;
    let mut kept = Vec::new();
    // A drive whose failure is being recorded counts as failed only afterwards.
    while core.members.failures_persisted("replace").await.is_ok()
        && let Some(slot) = next_slot(core)
        && !core.jobs.is_closed()
        && core.jobs.running_rebuild().is_none()
        && let Some(spare) = core.spares.take_first()
    {
        let named = slot_of_new_drive(core, spare.uuid);
        if let Some(other) = named.filter(|named| *named != slot) {
            // The power failed between steps 1 and 2, and another drive has to be replaced first.
            if list_again(core, other, spare.uuid).await.is_err() {
                kept.push(spare);
                break;
            }
        } else if named.is_none() && !core.members.config.lock().spares.contains(&spare.uuid) {
            tracing::warn!(spare = %spare.uuid, "the array does not list the spare any more: left out");
            continue;
        }
        match begin_with_retries(core, slot, &spare).await {
            Ok(()) => break,
            Err(_)
                if core.members.is_broken()
                    || core.jobs.is_closed()
                    || core.jobs.running_rebuild().is_some() =>
            {
                kept.push(spare);
                break;
            }
            Err(error) => {
                tracing::error!(slot = slot.0, spare = %spare.uuid, %error, "the spare cannot be used");
                let _broken = list_again(core, slot, spare.uuid).await;
                core.ctx.publish(EventKind::SpareMissing { spare: spare.uuid, why: error.to_string() });
                kept.extend(Some(spare).filter(|_| !means_unusable(&error)));
            }
        }
    }
    kept.into_iter().for_each(|spare| core.spares.push(spare));
}

/// The slot whose drive is to be replaced next: first one of which the array lacks something.
fn next_slot(core: &Core) -> Option<Slot> {
    let lacking = core.members.lacking().first().map(|member| member.slot);
    lacking.or_else(|| core.members.failed_beside(None).map(|member| member.slot))
}

/// The slot whose new drive the superblocks say the spare is.
fn slot_of_new_drive(core: &Core, spare: Uuid) -> Option<Slot> {
    let superblock = core.members.config.lock();
    let is_named = |member: &MemberInfo| member.uuid == spare && member.rebuilding;
    (0..).map(Slot).zip(&superblock.members).find(|(_, member)| is_named(member)).map(|(slot, _)| slot)
}

/// [`rebuild::begin_on_spare`], tried again after transient errors.
async fn begin_with_retries(core: &Arc<Core>, slot: Slot, spare: &IdleSpare) -> Result<()> {
    let mut retries = Retries::default();
    loop {
        match rebuild::begin_on_spare(core, slot, spare.device.clone(), spare.uuid).await {
            Err(error) if retries.wait(&*core.ctx.driver, &error).await => {}
            result => return result,
        }
    }
}

/// Lists a spare again that could not take the place of the drive in `slot`.
async fn list_again(core: &Arc<Core>, slot: Slot, spare: Uuid) -> Result<()> {
    let fresh = random_uuid(&*core.ctx.driver);
    let relist = |superblock: &mut Superblock| {
        if let Some(info) = superblock.members.get_mut(slot.index()).filter(|info| info.uuid == spare) {
            (info.uuid, info.rebuilding) = (fresh, false);
            if superblock.spares.len() < MAX_SPARES {
                superblock.spares.push(spare);
            }
        }
    };
    if core.members.config.lock().spares.contains(&spare) {
        Ok(())
    } else {
        core.members.publish(relist).await
    }
}

/// True if the error means that the spare's drive cannot take the place of another one.
fn means_unusable(error: &Error) -> bool {
    fails_the_drive(error.kind())
        || matches!(
            error.kind(),
            ErrorKind::Media | ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline | ErrorKind::Damaged
        )
}
