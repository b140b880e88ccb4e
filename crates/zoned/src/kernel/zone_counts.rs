//! Counts open and active zones, to name the limit behind a drive's refusal: an NVMe target in the kernel answers a
//! refused open with "internal error". The counts refuse nothing themselves, because a drive closes zones on its own
//! and only the drive knows whether a zone may open.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::zone_queue::Claims;
use crate::{ErrorKind, Geometry, ZoneState};

/// The numbers of a drive's zones that use a limited resource.
#[derive(Debug, Default)]
pub(crate) struct ZoneCounts {
    active: AtomicU32,
    /// Zones opened by command, which the drive does not close.
    held_open: AtomicU32,
}

impl ZoneCounts {
    /// Counts a change of the resources that one zone uses. The caller holds the zone's lock.
    pub(crate) fn update(&self, before: Claims, after: Claims) {
        let step = |count: &AtomicU32, was: bool, is: bool| match (was, is) {
            (false, true) => drop(count.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(count.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        };
        step(&self.active, before.active, after.active);
        step(&self.held_open, before.held_open, after.held_open);
    }

    /// The limit that opening a zone in `state` exceeds, if any. The counts already include the zone as
    /// active.
    pub(crate) fn limit_reached(&self, state: ZoneState, geometry: &Geometry) -> Option<ErrorKind> {
        let others = self.active.load(Ordering::Relaxed).saturating_sub(1);
        if !state.is_active() && geometry.max_active.is_some_and(|most| others >= most) {
            return Some(ErrorKind::TooManyActive);
        }
        let held = self.held_open.load(Ordering::Relaxed);
        let full = !state.is_open() && geometry.max_open.is_some_and(|most| held >= most);
        full.then_some(ErrorKind::TooManyOpen)
    }
}
