//! Failed zones at a mount: zones of which two drives lack their part. See `degraded::failed_zones`.

use zoned::{Action, Blocks, ErrorKind, ZoneId};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::Stripe;
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
                || self.missing_parts(id) > 1
                || self.has_worn_part(id);
        }
        self.missing_parts(id) > 1 && !self.was_empty(id, entry, decision)
    }

    /// True if nothing of a zone was durable, because its first block is missing. If the drive of that block lacks
    /// its part, the block could still be in partial parity: then the log with that record must be readable, and no
    /// other drive may hold more.
    fn was_empty(&self, id: ZoneId, entry: &ZoneEntry, decision: &Decision) -> bool {
        let slot = |role| self.placement.slot(id, role);
        let (first, parity) = (slot(self.layout.data(Stripe(0), 0)), slot(self.layout.parity(Stripe(0))));
        if self.has_reset_intent(id, entry.generation) {
            // The zone was not empty: a reset was begun, or the end of the zone was recorded.
            return true;
        }
        let untouched = || {
            self.placement
                .slots()
                .all(|slot| matches!(self.part(slot, id), PartState::Written(0) | PartState::Missing))
        };
        decision.pointer == Blocks::ZERO
            && entry.end.is_none()
            && (self.part(first, id) != PartState::Missing || self.contents(parity).is_some() && untouched())
    }

    /// Finishes the active parts of failed zones, whose failures are durable already.
    pub(crate) async fn finish_failed_zones(&self, lost: &[ZoneId]) -> Result<(), MountError> {
        for (slot, present) in self.members() {
            for id in lost {
                if present.report.get(id.index()).is_none_or(|info| !info.state.is_active()) {
                    continue;
                }
                match PhysicalZone::part(&*present.device, *id).act(Action::Finish).await {
                    // A part that wore out meanwhile is not active, so that its error does not matter.
                    Err(e) if matches!(e.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline) => {}
                    finished => finished.of(slot)?,
                }
            }
        }
        Ok(())
    }
}
