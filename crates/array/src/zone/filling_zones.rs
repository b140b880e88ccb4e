//! Full zones that a power cut may make active again.
//!
//! A zone is full for clients once its last write or its finish is submitted. Until that has ended, and lies below a flush of each drive
//! with a volatile cache, a power cut may leave the zone's physical zones partly written: they are active then. A mount needs an active
//! zone of each drive for its checkpoint, so such zones count against the limit of active zones until a cut cannot reopen them
//! (`io::write::full_zones`).

use parking_lot::Mutex;
use zoned::ZoneId;

/// Zones that became full, until they are found to be full for good, or to have been reset.
#[derive(Default)]
pub(crate) struct FillingZones(Mutex<Vec<ZoneId>>);

impl FillingZones {
    /// Adds a zone that became full.
    pub(crate) fn add(&self, id: ZoneId) {
        let mut zones = self.0.lock();
        if !zones.contains(&id) {
            zones.push(id);
        }
    }

    /// The number of zones, some of which may be full for good.
    pub(crate) fn most(&self) -> usize {
        self.0.lock().len()
    }

    /// Removes the zones for which `is_filling` is false. Gives the others.
    pub(crate) fn retain(&self, is_filling: impl Fn(ZoneId) -> bool) -> Vec<ZoneId> {
        let zones = self.0.lock().clone();
        let (filling, done): (Vec<ZoneId>, Vec<ZoneId>) = zones.into_iter().partition(|id| is_filling(*id));
        self.0.lock().retain(|id| !done.contains(id));
        filling
    }
}
