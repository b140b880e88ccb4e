//! The space and the zones of a mount, by use.

use std::sync::atomic::Ordering;

use units::{Blocks, Bytes};
use zoned::ZoneState;

use crate::files::stat::{StatFs, ZoneCounts, ZoneRole, ZoneUse};
use crate::metadata::state::Node;
use crate::shared::Shared;

/// Space and counts.
pub(crate) fn statfs(shared: &Shared) -> StatFs {
    let garbage = shared.garbage();
    let zones = count_zones(&zone_map(shared));
    let state = shared.state.lock();
    let geometry = shared.device.geometry();
    let bytes = |blocks: u64| Blocks(blocks).bytes(geometry.block_size);
    let kept = state.allocator.kept as u64 * geometry.zone_capacity.0;
    let capacity = state.allocator.table.usable().saturating_sub(kept);
    let files = state.nodes.len() as u64 - 1;
    debug_assert!(state.nodes.values().any(|n| matches!(n, Node::Directory { .. })), "the root is there");
    StatFs {
        uuid: shared.superblock.uuid,
        label: shared.superblock.label.clone(),
        capacity: bytes(capacity),
        used: bytes(state.allocator.table.live()),
        free: bytes(
            state
                .allocator
                .writable_blocks(geometry.zone_capacity.0)
                .min(capacity.saturating_sub(state.allocator.table.live())),
        ),
        garbage: Bytes(garbage.0),
        files,
        log_waits: shared.log_waits.load(Ordering::Relaxed),
        zones,
    }
}

fn count_zones(map: &[ZoneUse]) -> ZoneCounts {
    let mut counts = ZoneCounts::default();
    for zone in map {
        let count = match (zone.role, zone.state) {
            (_, ZoneState::ReadOnly | ZoneState::Offline) => &mut counts.worn,
            (ZoneRole::Superblock | ZoneRole::Metadata, _) => &mut counts.metadata,
            (ZoneRole::Log, _) => &mut counts.log,
            (ZoneRole::Data { .. }, _) => &mut counts.data,
            (ZoneRole::Free, _) => &mut counts.free,
        };
        *count += 1;
        counts.open += u32::from(zone.state.is_open());
    }
    counts
}

/// Every zone of the device and its use.
pub(crate) fn zone_map(shared: &Shared) -> Vec<ZoneUse> {
    let chain = shared.metadata.chain();
    let state = shared.state.lock();
    let mut map: Vec<ZoneUse> = state
        .allocator
        .table
        .iter()
        .map(|(zone, z)| ZoneUse {
            zone,
            role: z.role,
            state: z.state,
            pointer: Blocks(z.pointer),
            capacity: Blocks(z.capacity),
            live: Blocks(z.live),
        })
        .collect();
    for open in &state.allocator.open {
        if let Some(entry) = map.get_mut(open.zone.index()) {
            entry.pointer = Blocks(open.pointer());
        }
    }
    // The write pointers of the metadata zones come from the metadata chain, because every commit changes
    // them.
    for entry in map.iter_mut().filter(|entry| entry.role == ZoneRole::Metadata) {
        (entry.state, entry.pointer, entry.live) = (ZoneState::Empty, Blocks::ZERO, Blocks::ZERO);
        if let Some(written) = chain.written(entry.zone, entry.capacity) {
            let full = written == entry.capacity;
            entry.state = if full { ZoneState::Full } else { ZoneState::ImplicitOpen };
            (entry.pointer, entry.live) = (written, written);
        }
    }
    map
}
