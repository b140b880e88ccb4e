//! Restoring lost parts: where an array has more drives than a stripe has units, the parts of a lost drive move to drives that have no
//! other part of their zones, at once and without a person (RAIZN+DP, section 5.2.5, names the layout and leaves the rebuild open).
//!
//! Zones with the least redundancy come first, then those that are written to. A part moves to the drive with the most free physical
//! zones, as long as the drives that work keep enough for every logical zone that is empty: the capacity that `spare_drives` leaves free
//! is used, never what clients were promised. At the end every log moves, so that each record that lost a copy has its copies again.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use units::spawn;
use zoned::{Result, ZoneId};

use super::move_one;
use crate::Pace;
use crate::array::Array;
use crate::core::Core;
use crate::events::EventKind;
use crate::layout::{Role, Slot};

/// What a run of [`Array::restore_parts`] did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RestoredParts {
    /// Parts of lost drives that have a place on another drive now.
    pub moved: u32,
    /// Parts with content that are still lost: the other drives have no room, or the parts cannot be reconstructed.
    pub left: u32,
}

/// A lost part of a zone with content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LostPart {
    /// Lost parts of the zone: least redundancy first.
    lost: Reverse<usize>,
    is_idle: bool,
    zone: ZoneId,
    role: Role,
}

impl Array {
    /// Moves the parts of failed and missing drives to drives that have no other part of their zones, as far as these drives have
    /// spare room. The zones stay in use. The array does this by itself when a drive fails, and when it is opened without one.
    ///
    /// Errors: those of the logs. A part whose move fails stays lost, and is counted.
    pub async fn restore_parts(&self, pace: Pace) -> Result<RestoredParts> {
        restore(&self.core, pace).await
    }
}

/// Starts the task that restores the parts of each drive that fails. The task ends with the array, and keeps no drive open while it
/// waits. Nothing is started for an array without spare room on other drives.
pub(crate) fn watch(core: &Arc<Core>, pace: Pace) {
    let has_room = core.ctx.places.stored().is_some_and(|maps| maps.drives() > core.ctx.layout.width)
        && core.members.config.lock().spare_drives > 0;
    if !has_room {
        return;
    }
    let (events, watched) = (core.ctx.events.subscribe(), Arc::downgrade(core));
    let task = async move {
        loop {
            let Some(core) = watched.upgrade() else { return };
            // A drive whose failure is being recorded counts as failed only afterwards.
            if core.members.failures_persisted("move a part").await.is_ok()
                && core.members.failed_beside(None).is_some()
                && core.jobs.running_rebuild().is_none()
                && let Err(error) = restore(&core, pace).await
            {
                tracing::warn!(%error, "the parts of lost drives are not restored");
            }
            drop(core);
            loop {
                let Some(event) = events.next_until_closed().await else { return };
                if matches!(event.kind, EventKind::DriveFailed { .. } | EventKind::Dropped(_)) {
                    break;
                }
            }
        }
    };
    drop(spawn(&*core.ctx.driver, "restore parts", task));
}

async fn restore(core: &Arc<Core>, pace: Pace) -> Result<RestoredParts> {
    let mut failed: BTreeSet<(ZoneId, Role)> = BTreeSet::new();
    let mut moved = 0;
    let parts = count_lost_parts(core);
    if next_move(core, &failed).is_none() {
        return Ok(RestoredParts { moved, left: parts });
    }
    core.ctx.publish(EventKind::RestoreStarted { parts });
    while let Some((zone, role, slot)) = next_move(core, &failed) {
        match move_one(core, zone, role, slot, pace).await {
            Ok(true) => moved += 1,
            Ok(false) => {}
            Err(error) => {
                if core.members.is_broken() || core.jobs.is_closed() || core.jobs.running_rebuild().is_some()
                {
                    break;
                }
                tracing::error!(zone = zone.0, role = role.0, %error, "a lost part is not restored");
                failed.insert((zone, role));
            }
        }
    }
    if moved > 0 && !core.members.is_broken() && !core.jobs.is_closed() {
        core.members.renew_logs().await?;
    }
    let left = count_lost_parts(core);
    core.ctx.publish(EventKind::RestoreEnded { moved, left });
    Ok(RestoredParts { moved, left })
}

/// The lost parts of zones with content.
fn lost_parts(core: &Core) -> BTreeSet<LostPart> {
    let mut all = BTreeSet::new();
    for id in core.zones.ids() {
        let lost: Vec<Role> = core.ctx.layout.roles().filter(|role| is_lost(core, id, *role)).collect();
        let zone = core.zones.zone(id);
        if zone.pointer.0 == 0 || zone.is_gone() {
            continue;
        }
        let is_idle = !zone.state.is_active();
        let part = |role| LostPart { lost: Reverse(lost.len()), is_idle, zone: id, role };
        all.extend(lost.iter().copied().map(part));
    }
    all
}

/// True if the drive with a part of a zone failed or is missing.
fn is_lost(core: &Core, id: ZoneId, role: Role) -> bool {
    core.members.part(id, role).is_some_and(|part| !part.member().is_good())
}

/// The number of parts with content whose drive failed or is missing.
pub(crate) fn count_lost_parts(core: &Core) -> u32 {
    u32::try_from(lost_parts(core).len()).unwrap_or(u32::MAX)
}

/// The next lost part to restore, and the drive that gets it. `failed`: parts whose move failed.
fn next_move(core: &Core, failed: &BTreeSet<(ZoneId, Role)>) -> Option<(ZoneId, Role, Slot)> {
    let maps = core.ctx.places.stored().filter(|_| core.zones.shared().is_none())?;
    let free = core.zones.free().counts();
    let good: Vec<(Slot, usize)> =
        (0..).map(Slot).zip(free).filter(|(slot, _)| core.members.member(*slot).is_good()).collect();
    let empty = core.zones.ids().filter(|id| !maps.has(*id)).count();
    let room: usize = good.iter().map(|(_, free)| free).sum();
    if room <= empty * core.ctx.layout.width as usize {
        return None;
    }
    lost_parts(core).into_iter().filter(|part| !failed.contains(&(part.zone, part.role))).find_map(|part| {
        let has_part = maps.slots(part.zone);
        let may_take = |(slot, free): &&(Slot, usize)| *free > 0 && !has_part.contains(slot);
        let (slot, _) = good.iter().filter(may_take).max_by_key(|(slot, free)| (*free, Reverse(*slot)))?;
        Some((part.zone, part.role, *slot))
    })
}
