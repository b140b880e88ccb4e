//! Logical zones whose reset has begun and not ended.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use units::sync::Event;
use zoned::ZoneId;

use crate::layout::Slot;
use crate::layout::placement::Place;

/// The logical zones with parts in shared physical zones whose reset is under way. Such a zone has no places any more, while its parts
/// still lie in physical zones: a reclaim waits for the reset, which makes room itself.
#[derive(Debug, Default)]
pub(crate) struct ResetsUnderWay {
    /// With the drives of the parts.
    zones: Mutex<BTreeMap<ZoneId, Vec<Slot>>>,
    /// Notified when a reset ends.
    changed: Event,
}

impl ResetsUnderWay {
    /// The reset of a zone with parts at `places` begins.
    pub(crate) fn begin(&self, id: ZoneId, places: &[Place]) {
        self.zones.lock().insert(id, places.iter().map(|place| place.slot).collect());
    }

    /// The reset has given up the zone's parts, or failed.
    pub(crate) fn end(&self, id: ZoneId) {
        self.zones.lock().remove(&id);
        self.changed.notify();
    }

    /// True if the reset of a zone with a part on the drive in `slot` is under way.
    pub(crate) fn any_on(&self, slot: Slot) -> bool {
        self.zones.lock().values().any(|slots| slots.contains(&slot))
    }

    /// Waits until no reset of the zone is under way.
    pub(crate) async fn ended(&self, id: ZoneId) {
        loop {
            let seen = self.changed.version();
            if !self.zones.lock().contains_key(&id) {
                return;
            }
            self.changed.changed_since(seen).await;
        }
    }
}
