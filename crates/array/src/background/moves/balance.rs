//! Balance: where an array has spare room on other drives, a new drive takes parts back from the drives that hold more than their share,
//! by plain copies, so that the spare room lies on all drives again: the parts of the next drive that fails find room there.
//!
//! Parts move from the drive with the fewest free physical zones to the one with the most, one after the other, until these numbers
//! differ by no more than one. An opening goes on with that after a restart, if they differ by half of a drive's share of the spare room.

use std::collections::BTreeSet;
use std::sync::Arc;

use units::spawn;
use zoned::ZoneId;

use super::{after_rebuild, move_one, must_end, restore};
use crate::Pace;
use crate::core::Core;
use crate::events::EventKind;
use crate::layout::{Role, Slot};

/// The smallest difference of free physical zones between two drives that a move makes smaller.
const LEAST_DIFFERENCE: usize = 2;

/// A part that leaves the fullest drive, idle zones first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PartToMove {
    is_active: bool,
    zone: ZoneId,
    role: Role,
}

/// Starts the task that spreads parts over the drives after each rebuild. The task ends with the array, and keeps no drive open while it
/// waits. Nothing is started for an array without spare room on other drives.
pub(crate) fn watch(core: &Arc<Core>, pace: Pace) {
    if !restore::has_room(core) {
        return;
    }
    let (events, watched) = (core.ctx.events.subscribe(), Arc::downgrade(core));
    let mut least = half_share(core);
    let task = async move {
        loop {
            let Some(core) = after_rebuild(&watched).await else { return };
            let is_done = balance(&core, pace, least).await;
            drop(core);
            loop {
                let Some(event) = events.next_until_closed().await else { return };
                match event.kind {
                    EventKind::RebuildEnded { error: None, .. } | EventKind::Dropped(_) => {
                        least = LEAST_DIFFERENCE;
                        break;
                    }
                    // A rebuild that broke the moves off ended without a new drive.
                    EventKind::RebuildEnded { .. } | EventKind::SpareMissing { .. } if !is_done => break,
                    _ => {}
                }
            }
        }
    };
    drop(spawn(&*core.ctx.driver, "balance drives", task));
}

/// Half of the physical zones that each drive leaves free where the capacity of whole drives is kept free.
fn half_share(core: &Core) -> usize {
    let superblock = core.members.config.lock();
    let free = superblock.part_zones as usize * superblock.spare_drives as usize;
    LEAST_DIFFERENCE.max(free / superblock.members.len().max(1) / 2)
}

/// Moves parts, unless the numbers of free physical zones differ by less than `least`. False if a rebuild, or the array's end, broke the
/// moves off.
async fn balance(core: &Arc<Core>, pace: Pace, least: usize) -> bool {
    let mut tried = BTreeSet::new();
    let mut least = least;
    while let Some((part, to)) = next_move(core, least, &tried) {
        let PartToMove { zone, role, .. } = part;
        tried.insert((zone, role));
        match move_one(core, zone, role, to, pace).await {
            Ok(_) => least = LEAST_DIFFERENCE,
            Err(_) if must_end(core) => return false,
            Err(error) => {
                tracing::warn!(zone = zone.0, role = role.0, to = to.0, %error, "a part stays on its drive")
            }
        }
    }
    !must_end(core)
}

/// The next part to move, and the drive that gets it. `tried`: parts that were moved, or could not be.
fn next_move(core: &Core, least: usize, tried: &BTreeSet<(ZoneId, Role)>) -> Option<(PartToMove, Slot)> {
    let maps = core.ctx.places.stored().filter(|_| !must_end(core) && core.members.lacking().is_empty())?;
    let free = (0..).map(Slot).zip(core.zones.free().counts());
    let mut drives: Vec<(usize, Slot)> = free
        .filter(|(slot, _)| core.members.member(*slot).is_good())
        .map(|(slot, free)| (free, slot))
        .collect();
    drives.sort_unstable();
    let (most, to) = *drives.last()?;
    let parts = |from: Slot| {
        core.zones.ids().filter_map(move |id| {
            let role = core.ctx.places.role(id, from)?;
            let zone = core.zones.zone(id);
            let part = PartToMove { is_active: zone.state.is_active(), zone: id, role };
            let may_move = zone.pointer.0 > 0
                && !zone.is_gone()
                && !tried.contains(&(id, role))
                && !maps.slots(id).contains(&to);
            may_move.then_some(part)
        })
    };
    let full = drives.iter().take_while(|(free, _)| free + least <= most);
    full.filter_map(|(_, from)| parts(*from).min()).next().map(|part| (part, to))
}
