//! Physical zones that wore out.

use parking_lot::Mutex;
use zoned::{ZoneId, ZoneState};

use crate::layout::Slot;

/// A physical zone that takes no writes any more, or cannot be read either.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WornZone {
    /// The drive.
    pub slot: Slot,
    /// The logical zone that the physical zone is a part of.
    pub zone: ZoneId,
    /// The physical zone's state: read-only or offline.
    pub state: ZoneState,
}

/// The worn physical zones of an array.
#[derive(Debug, Default)]
pub(crate) struct WornZones(Mutex<Vec<WornZone>>);

impl WornZones {
    pub(crate) fn new(worn: Vec<WornZone>) -> WornZones {
        WornZones(Mutex::new(worn))
    }

    /// Adds a worn physical zone. False if the zone is known already.
    pub(crate) fn add(&self, worn: WornZone) -> bool {
        let mut known = self.0.lock();
        let is_new = !known.iter().any(|other| (other.zone, other.slot) == (worn.zone, worn.slot));
        if is_new {
            known.push(worn);
        }
        is_new
    }

    /// The first part of a logical zone that is known to be worn.
    pub(crate) fn part_of(&self, id: ZoneId) -> Option<WornZone> {
        self.0.lock().iter().find(|worn| worn.zone == id).copied()
    }

    /// Forgets a slot's worn zones: its drive was replaced.
    pub(crate) fn forget_replaced_drive(&self, slot: Slot) {
        self.0.lock().retain(|worn| worn.slot != slot);
    }

    /// Forgets the worn parts of a zone, which takes other physical zones from now on.
    pub(crate) fn forget_zone(&self, id: ZoneId) {
        self.0.lock().retain(|worn| worn.zone != id);
    }

    /// Forgets the worn part of a zone on one drive: the part has moved to another physical zone.
    pub(crate) fn forget_part(&self, id: ZoneId, slot: Slot) {
        self.0.lock().retain(|worn| (worn.zone, worn.slot) != (id, slot));
    }

    /// True if the part of a zone on a drive is known to be offline.
    pub(crate) fn is_offline(&self, id: ZoneId, slot: Slot) -> bool {
        let is_it =
            |worn: &WornZone| (worn.zone, worn.slot) == (id, slot) && worn.state == ZoneState::Offline;
        self.0.lock().iter().any(is_it)
    }

    /// All worn physical zones, by zone and slot.
    pub(crate) fn all(&self) -> Vec<WornZone> {
        let mut all = self.0.lock().clone();
        all.sort_by_key(|worn| (worn.zone, worn.slot));
        all
    }
}
