//! Full zones whose physical zones a power cut may leave partly written, and so active.
//!
//! A zone is full for clients once its last write is admitted, or its finish has ended. Until the write has ended too, and a later flush of
//! each drive with a volatile cache, a power cut may reopen physical zones of it. A mount needs an active zone of each drive for its
//! checkpoint, so such zones count against the limit of active zones (`io::write::full_zones`).

use parking_lot::Mutex;
use zoned::ZoneId;

/// Zones that became full, until they are found to be full for good, or to have been reset. Empty in an array without a limit of active zones.
pub(crate) struct FillingZones {
    is_limited: bool,
    zones: Mutex<Vec<ZoneId>>,
}

impl FillingZones {
    /// `is_limited`: the array has a limit of active zones.
    pub(crate) fn new(is_limited: bool) -> FillingZones {
        FillingZones { is_limited, zones: Mutex::default() }
    }

    /// Adds a zone that became full. The caller holds the limits of active zones.
    pub(crate) fn add(&self, id: ZoneId) {
        if self.is_limited {
            let mut zones = self.zones.lock();
            if !zones.contains(&id) {
                zones.push(id);
            }
        }
    }

    /// The number of the zones, some of which may be full for good.
    pub(crate) fn len(&self) -> usize {
        self.zones.lock().len()
    }

    /// The zones, some of which may be full for good.
    pub(crate) fn all(&self) -> Vec<ZoneId> {
        self.zones.lock().clone()
    }

    /// Removes the zones for which `is_filling` is false. Gives the number of the others. The caller holds the limits of active zones.
    pub(crate) fn retain(&self, is_filling: impl Fn(ZoneId) -> bool) -> usize {
        let filling: Vec<ZoneId> = self.all().into_iter().filter(|id| is_filling(*id)).collect();
        let count = filling.len();
        *self.zones.lock() = filling;
        count
    }
}
