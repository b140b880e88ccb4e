//! Failed zones at a mount: zones of which more drives lack their part than there are parities. See `degraded::failed_zones`.

use zoned::{Action, Blocks, ErrorKind, ZoneId};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::Stripe;
use crate::layout::placement::Place;
use crate::member::physical_zone::PhysicalZone;
use crate::mount::decide::{Decision, PartState};
use crate::mount::errors::{FromDrive, MountError};
use crate::mount::gather::Mount;

impl Mount {
    /// True if a zone has failed, now or before an earlier mount.
    pub(crate) fn has_failed(&self, id: ZoneId, entry: &ZoneEntry, decision: &Decision) -> bool {
        if entry.is_failed_zone() {
            // A failed zone whose reset was begun is not failed: the mount completes the reset.
            return !self.has_reset_intent(id, entry.generation)
                || self.missing_parts(id) > self.layout.parities as usize
                || self.has_worn_part(id);
        }
        self.lost_its_map(id, entry)
            || self.missing_parts(id) > self.layout.parities as usize && !self.was_empty(id, entry, decision)
    }

    /// True if nothing of a zone was durable, because its first block is missing. If the drive of that block lacks
    /// its part, the block could still be in partial parity: then the log with that record must be readable, and no
    /// other drive may hold more.
    fn was_empty(&self, id: ZoneId, entry: &ZoneEntry, decision: &Decision) -> bool {
        let first = self.layout.data(Stripe(0), 0);
        if self.has_reset_intent(id, entry.generation) {
            // The zone was not empty: a reset was begun, or the end of the zone was recorded.
            return true;
        }
        let untouched =
            || self.parts(id).iter().all(|part| matches!(part, PartState::Written(0) | PartState::Missing));
        // With two parities, a record may cover the block beside one of another drive that lacks its part: then neither is known.
        let records = || {
            let known = self.partials(id, entry.generation);
            let role = |parity| self.layout.parity(Stripe(0), parity);
            let mut logs = self.layout.parities().filter_map(|parity| self.places.slot(id, role(parity)));
            let readable = logs.any(|slot| self.contents(slot).is_some());
            readable && (self.layout.parities == 1 || !known.contains_key(&Stripe(0)))
        };
        decision.pointer == Blocks::ZERO
            && entry.end.is_none()
            && (self.part(id, first) != PartState::Missing || records() && untouched())
    }

    /// Finishes the active parts of failed zones, whose failures are durable already.
    pub(crate) async fn finish_failed_zones(&self, lost: &[ZoneId]) -> Result<(), MountError> {
        for id in lost {
            for (Place { slot, .. }, present, info) in self.last_parts(*id) {
                if !info.state.is_active() {
                    continue;
                }
                match PhysicalZone::at(&*present.device, info.zone).act(Action::Finish).await {
                    // A part that wore out meanwhile is not active, so that its error does not matter.
                    Err(e) if matches!(e.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline) => {}
                    finished => finished.of(slot)?,
                }
            }
        }
        Ok(())
    }
}
