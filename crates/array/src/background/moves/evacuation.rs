//! Evacuation: parts of zones with stored maps leave physical zones that wore out, and those of which much content is relocated,
//! without a person. A zone's redundancy is whole again then, and its relocated content is in place and out of the logs. From the next
//! open on the zone takes writes, or is full if a mount found the wear: the mount ended the zone.
//!
//! Offline parts come first, because their content is one copy less redundant. A read-only part, or one with relocated content, leaves
//! only while its drive keeps a free physical zone for every logical zone that is empty, or where zones share physical ones an empty one
//! for the reclaim: nothing that clients were promised is used.

use std::collections::BTreeSet;
use std::sync::Arc;

use units::spawn;
use zoned::{Bytes, ZoneId, ZoneState};

use super::{after_rebuild, move_one, must_end};
use crate::Pace;
use crate::core::Core;
use crate::events::EventKind;
use crate::layout::stored_maps::StoredMaps;
use crate::layout::{Role, Slot};

/// A part that is to leave its physical zone, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct DisplacedPart {
    why: Why,
    zone: ZoneId,
    role: Role,
    slot: Slot,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Why {
    Offline,
    ReadOnly,
    Relocated,
}

/// Starts the task that moves such parts, now and whenever a physical zone wears out. The task ends with the array, and keeps no
/// drive open while it waits. Nothing is started for the fixed placement. `relocated_above`: a zone's parts with relocated content
/// leave if the zone has more of it.
pub(crate) fn watch(core: &Arc<Core>, pace: Pace, relocated_above: Bytes) {
    if core.ctx.places.stored().is_none() {
        return;
    }
    let (events, watched) = (core.ctx.events.subscribe(), Arc::downgrade(core));
    let task = async move {
        loop {
            let Some(core) = after_rebuild(&watched).await else { return };
            evacuate(&core, pace, relocated_above).await;
            drop(core);
            loop {
                let Some(event) = events.next_until_closed().await else { return };
                if matches!(
                    event.kind,
                    EventKind::ZoneWorn { .. }
                        | EventKind::RebuildEnded { .. }
                        | EventKind::RestoreEnded { .. }
                        | EventKind::SpareMissing { .. }
                        | EventKind::Dropped(_)
                ) {
                    break;
                }
            }
        }
    };
    drop(spawn(&*core.ctx.driver, "evacuate parts", task));
}

/// Moves each displaced part once, as far as there is room.
async fn evacuate(core: &Arc<Core>, pace: Pace, relocated_above: Bytes) {
    let mut tried = BTreeSet::new();
    while let Some((part, to)) = next_move(core, relocated_above, &tried) {
        let DisplacedPart { why, zone, role, slot } = part;
        tried.insert((zone, role));
        match move_one(core, zone, role, to, pace).await {
            Ok(true) => {
                tracing::info!(
                    zone = zone.0,
                    role = role.0,
                    slot = slot.0,
                    ?why,
                    "a part has left its physical zone"
                );
            }
            Ok(false) => {}
            Err(_) if must_end(core) => return,
            Err(error) => {
                tracing::warn!(zone = zone.0, role = role.0, slot = slot.0, ?why, %error, "a part stays in its physical zone");
            }
        }
    }
}

/// The next part to move, and the drive that gets it. `tried`: parts that were moved, or could not be.
fn next_move(
    core: &Core,
    relocated_above: Bytes,
    tried: &BTreeSet<(ZoneId, Role)>,
) -> Option<(DisplacedPart, Slot)> {
    let maps = core.ctx.places.stored().filter(|_| !must_end(core))?;
    let parts = displaced_parts(core, maps, relocated_above);
    parts
        .into_iter()
        .filter(|part| !tried.contains(&(part.zone, part.role)))
        .find_map(|part| Some((part, target(core, maps, part)?)))
}

/// The parts that are to leave their physical zones, on drives that work.
fn displaced_parts(core: &Core, maps: &StoredMaps, relocated_above: Bytes) -> BTreeSet<DisplacedPart> {
    let mut parts = BTreeSet::new();
    for worn in core.zones.worn.all() {
        let why = if worn.state == ZoneState::Offline { Why::Offline } else { Why::ReadOnly };
        if let Some(role) = core.ctx.places.role(worn.zone, worn.slot) {
            parts.insert(DisplacedPart { why, zone: worn.zone, role, slot: worn.slot });
        }
    }
    for id in core.zones.ids().filter(|id| maps.has(*id)) {
        let zone = core.zones.zone(id);
        let bytes = core.ctx.bytes(zone.relocated_rows(&core.ctx.layout)) as u64;
        if bytes <= relocated_above.0 {
            continue;
        }
        let roles = zone.roles_with_relocated(&core.ctx.layout);
        parts.extend(roles.into_iter().filter_map(|role| {
            let slot = core.ctx.places.slot(id, role)?;
            Some(DisplacedPart { why: Why::Relocated, zone: id, role, slot })
        }));
    }
    parts.retain(|part| {
        let zone = core.zones.zone(part.zone);
        zone.pointer.0 > 0 && !zone.is_gone() && core.members.member(part.slot).is_good()
    });
    parts
}

/// The drive that gets a part: its own, else the one with the most free physical zones among those without a part of the zone. `None` if
/// there is no room.
fn target(core: &Core, maps: &StoredMaps, part: DisplacedPart) -> Option<Slot> {
    let is_urgent = part.why == Why::Offline;
    if let Some(shared) = core.zones.shared() {
        // The move finds a slot in a half-filled or an empty physical zone, or fails for lack of room.
        return Some(part.slot).filter(|slot| is_urgent || shared.empty_zones(*slot) > 1);
    }
    // The free zones are counted last: a first write meanwhile makes fewer of them.
    let needed = if is_urgent { 0 } else { empty_zones_of_drive(core, maps) };
    let free = core.zones.free().counts();
    let free_on = |slot: Slot| free.get(slot.index()).copied().unwrap_or(0);
    if free_on(part.slot) > needed {
        return Some(part.slot);
    }
    let has_part = maps.slots(part.zone);
    let slots = core.ctx.places.slots().filter(|slot| {
        core.members.member(*slot).is_good() && !has_part.contains(slot) && free_on(*slot) > needed
    });
    slots.max_by_key(|slot| (free_on(*slot), std::cmp::Reverse(*slot)))
}

/// The number of physical zones of a drive that logical zones without a map need, rounded up: all of these take one of each drive where
/// stripes are as wide as the array, else every drive has its share.
fn empty_zones_of_drive(core: &Core, maps: &StoredMaps) -> usize {
    let empty = core.zones.ids().filter(|id| !maps.has(*id)).count();
    (empty * core.ctx.layout.width as usize).div_ceil(maps.drives() as usize)
}
