//! Zones that are lost: two drives lack their part of one, as one drive is missing and another's part is offline. What the
//! zone held cannot be put together any more, and the part of a new drive would be zeros, so that the zone is offline, and
//! recorded as lost with its generation (the end that its entry has is [`ZoneEntry::LOST`]). Its parts are finished, so
//! that no drive counts them as active.
//!
//! It is over with a reset, which is let through once every drive is there and no part is worn: step by step as any other
//! (`action`), so that the next generation's entry takes the record away. A mount that finds the intent of it finishes it.
//!
//! A zone of which two drives lack their parts may have held nothing: where its first block is known not to be there nothing
//! durable was. It is no lost zone then, but a worn one without content.

use std::sync::Arc;

use zoned::{Action, Blocks, BufMut, Durability, Error, ErrorKind, Io, Result, ZoneId, ZoneState};

use crate::Array;
use crate::core::Core;
use crate::format::record::Body;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::{Slot, Stripe};
use crate::member::METADATA_ZONES;
use crate::mount::decide::{Child, Decision};
use crate::mount::gather::Mount;
use crate::mount::unusable::{OfDrive, Stopped};
use crate::zone::{Work, Zone};

impl Mount {
    /// Whether a zone is lost, now or since an earlier mount.
    pub(crate) fn loses(&self, id: ZoneId, entry: &ZoneEntry, decision: &Decision) -> bool {
        if entry.is_lost() {
            // A reset that was begun is brought to its end.
            return !self.intent(id, entry.generation) || self.absent(id) > 1 || self.worn(id);
        }
        self.absent(id) > 1 && !self.held_nothing(id, entry, decision)
    }

    /// Whether it is known that nothing of a zone was durable: its first block is not there. On a drive that lacks its part
    /// that block follows from partial parity, if the log that this goes to can be read, and no other drive holds more.
    fn held_nothing(&self, id: ZoneId, entry: &ZoneEntry, decision: &Decision) -> bool {
        let (first, parity) = (self.layout.data(id, Stripe(0), 0), self.layout.parity(id, Stripe(0)));
        if self.intent(id, entry.generation) {
            // Its reset was begun, or it was known before.
            return true;
        }
        let slots = || (0..self.layout.drives).map(Slot);
        let untouched = || slots().all(|slot| matches!(self.child(slot, id), Child::At(0) | Child::Missing));
        decision.pointer == Blocks::ZERO
            && entry.end.is_none()
            && (self.child(first, id) != Child::Missing || self.told(parity).is_some() && untouched())
    }

    /// All lost zones.
    pub(crate) fn lost_zones(&self) -> Vec<ZoneId> {
        let lost = |id: &ZoneId| {
            let (entry, decision) = self.decide(*id);
            self.loses(*id, &entry, &decision)
        };
        (0..self.superblock.zones).map(ZoneId).filter(lost).collect()
    }

    /// Finishes the parts of lost zones that drives count as active. That the zones are lost is durable.
    pub(crate) async fn finish_lost(&self, lost: &[ZoneId]) -> Result<(), Stopped> {
        for (slot, present) in self.members() {
            for id in lost {
                if present.report.get(id.index()).is_none_or(|info| !info.state.is_active()) {
                    continue;
                }
                match present.device.zone(ZoneId(id.0 + METADATA_ZONES), Action::Finish).await {
                    // It wore out meanwhile: it is not active either.
                    Err(e) if matches!(e.kind(), ErrorKind::ZoneReadOnly | ErrorKind::ZoneOffline) => {}
                    finished => finished.of(slot)?,
                }
            }
        }
        Ok(())
    }
}

impl Array {
    /// Takes a zone for lost, as if two drives lacked their parts of it: what it holds is gone. For tests.
    #[doc(hidden)]
    pub async fn lose_zone(&self, zone: ZoneId) -> Result<()> {
        self.core.lose(zone).await
    }
}

impl Core {
    /// The lost zones.
    pub(crate) fn lost_zones(&self) -> Vec<ZoneId> {
        let lost = |id: &ZoneId| self.zone(*id).state == ZoneState::Offline;
        (0..self.geometry.zones).map(ZoneId).filter(lost).collect()
    }

    /// Why a lost zone cannot be reset now, if it cannot.
    pub(crate) fn keeps_lost(&self, id: ZoneId) -> Option<String> {
        if let Some(lacking) = self.members.iter().find(|member| !member.is_good()) {
            return Some(format!("drive {} is lacking: replace it", lacking.slot.0));
        }
        let worn = self.worn.lock();
        let worn = worn.iter().find(|worn| worn.zone == id)?;
        let how = if worn.state == ZoneState::Offline { "offline" } else { "read-only" };
        Some(format!("its part on drive {} is {how}: replace the drive", worn.slot.0))
    }

    /// The error of what is asked of a lost zone.
    pub(crate) fn lost_error(&self, id: ZoneId, name: &'static str) -> Error {
        let next = match self.keeps_lost(id) {
            Some(why) => format!("{why}, then reset the zone"),
            None => "reset the zone to have it back".to_owned(),
        };
        let why = format!("the zone is lost, as two drives lacked their part of it; {next}");
        self.error(ErrorKind::ZoneOffline, name).in_zone(id).because(why)
    }

    /// The drive whose part of a zone is offline, among those that work.
    pub(crate) async fn offline_part(&self, id: ZoneId) -> Option<Slot> {
        let zone = id.0 + METADATA_ZONES;
        for member in self.good() {
            let Some(device) = member.device() else { continue };
            let report = device.report(zone..zone + 1).await.ok()?;
            if report.first().is_some_and(|info| info.state == ZoneState::Offline) {
                return Some(member.slot);
            }
        }
        None
    }

    /// Two drives lack their part of a zone while the array is in use: it is lost from now on, which is durable when this
    /// returns. Nothing of it is in flight then.
    pub(crate) async fn lose(self: &Arc<Core>, id: ZoneId) -> Result<()> {
        let paused: Io<()> = self.enter(id, Work::Pause).typed();
        paused.await?;
        let lost = {
            let mut limits = self.limits.lock();
            let mut zone = self.zone(id);
            // An empty one has nothing to lose, and one that is being reset neither.
            let loses = !zone.resetting && !matches!(zone.state, ZoneState::Empty | ZoneState::Offline);
            loses.then(|| {
                let from = if zone.worn_active { ZoneState::Closed } else { zone.state };
                limits.moved(id, from, ZoneState::Offline);
                let queue = std::mem::take(&mut zone.queue);
                *zone = Zone::new(ZoneState::Offline, zone.generation, Blocks::ZERO, BufMut::default());
                (zone.queue, zone.busy) = (queue, true);
                self.members.iter().for_each(|member| member.lost.set(id, Vec::new()));
                (zone.generation, from.is_active())
            })
        };
        let mut recorded = Ok(());
        if let Some((generation, active)) = lost {
            tracing::error!(zone = id.0, "two drives lack their part of the zone: it is lost");
            let entries = vec![ZoneEntry { generation, end: Some(ZoneEntry::LOST) }];
            recorded = self.record(id, &Body::Zones { first: id, entries }, Durability::Durable).await;
            if active && recorded.is_ok() {
                // The part that is offline refuses.
                let _refused = self.everywhere(id, Action::Finish).await;
            }
        }
        self.zone(id).busy = false;
        self.pump(id);
        recorded
    }
}
