//! Failed zones: two drives lack their part, because one drive is missing and another drive's part is offline.
//!
//! The content of the zone cannot be reconstructed, and a new drive's part would be zeros. So the zone is offline, and
//! recorded as failed with its generation: its end is [`ZoneEntry::END_OF_FAILED_ZONE`]. Its parts are finished, so that no drive
//! counts them as active.
//!
//! A reset makes the zone usable again. The reset is possible once every drive is present and no part of the zone is worn,
//! and works like any other reset (`io::action`): the entry of the next generation replaces the record.
//!
//! A zone of which two drives lack their part may have been empty. If its first block is known to be missing, nothing of
//! the zone was durable: such a zone is worn and empty, not failed.

use std::sync::Arc;

use zoned::{Blocks, Durability, Io, Result, ZoneId, ZoneState};

use crate::core::Core;
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::Slot;
use crate::layout::row_set::RowSet;
use crate::zone::Zone;
use crate::zone::frames::Frames;
use crate::zone::work::Work;

/// The drive whose part of a zone is offline, among the drives that work.
pub(crate) async fn offline_part(core: &Core, id: ZoneId) -> Option<Slot> {
    for part in core.members.parts(id) {
        if part.info().await.ok()?.is_some_and(|info| info.state == ZoneState::Offline) {
            return Some(part.slot());
        }
    }
    None
}

/// Fails a zone of an array in use: two drives lack their part. The failure is durable when this returns, and nothing
/// of the zone is in flight.
pub(crate) async fn fail_zone(core: &Arc<Core>, id: ZoneId) -> Result<()> {
    let paused: Io<()> = core.zones.begin_or_queue(id, Work::Pause { generation: None }).typed();
    paused.await?;
    let lost = {
        let mut limits = core.zones.limits.lock();
        let mut zone = core.zones.zone(id);
        // An empty zone has no content to lose, and neither has a zone that is being reset.
        let has_failed = !zone.resetting && !matches!(zone.state, ZoneState::Empty | ZoneState::Offline);
        has_failed.then(|| {
            let from = if zone.worn_active { ZoneState::Closed } else { zone.state };
            limits.moved(id, from, ZoneState::Offline);
            let queue = std::mem::take(&mut zone.queue);
            let (parity, frames) = (zone.parity.emptied(), zone.frames.as_ref().map(Frames::of_next_life));
            *zone = Zone::new(ZoneState::Offline, zone.generation, Blocks::ZERO, parity);
            (zone.queue, zone.frames, zone.busy) = (queue, frames, true);
            core.members.iter().for_each(|member| member.bad_rows.set(id, RowSet::default()));
            (zone.generation, from.is_active())
        })
    };
    let mut recorded = Ok(());
    if let Some((generation, active)) = lost {
        tracing::error!(zone = id.0, "two drives lack their part of the zone: the zone failed");
        let entries = vec![ZoneEntry { generation, end: Some(ZoneEntry::END_OF_FAILED_ZONE) }];
        recorded = core
            .members
            .write_zone_record(id, &Body::Zones { first: id, entries }, Durability::Durable)
            .await;
        if active && recorded.is_ok() {
            // The drive with the offline part refuses the finish.
            let _refused = core.actions.finish_failed_parts(id).await;
        }
    }
    core.zones.zone(id).busy = false;
    core.zones.begin_queued(id);
    recorded
}
