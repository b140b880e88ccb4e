//! Logical zones whose reset has begun and not ended.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use units::sync::Event;
use zoned::ZoneId;

/// The logical zones with parts in shared physical zones whose reset is under way. Such a zone has no places any more, while its parts
/// still lie in physical zones: a reclaim waits for the reset, which makes room itself.
#[derive(Debug, Default)]
pub(crate) struct ResetsUnderWay {
    zones: Mutex<BTreeSet<ZoneId>>,
    /// Notified when a reset ends.
    changed: Event,
}

impl ResetsUnderWay {
    pub(crate) fn begin(&self, id: ZoneId) {
        self.zones.lock().insert(id);
    }

    /// The reset has given up the zone's parts, or failed.
    pub(crate) fn end(&self, id: ZoneId) {
        self.zones.lock().remove(&id);
        self.changed.notify();
    }

    /// True if the reset of any zone is under way.
    pub(crate) fn any(&self) -> bool {
        !self.zones.lock().is_empty()
    }

    /// Waits until no reset of the zone is under way.
    pub(crate) async fn ended(&self, id: ZoneId) {
        loop {
            let seen = self.changed.version();
            if !self.zones.lock().contains(&id) {
                return;
            }
            self.changed.changed_since(seen).await;
        }
    }
}
