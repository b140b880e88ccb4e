//! Open and active zones, counted: not to refuse anything, for the drive closes zones by itself and alone knows
//! whether there is room; but to name what it refuses. A target in the kernel, for one, answers "internal error".

use std::sync::atomic::{AtomicU32, Ordering};

use crate::kernel::lane::Claims;
use crate::{ErrorKind, Geometry, ZoneState};

/// How many zones claim something.
#[derive(Debug, Default)]
pub(crate) struct Census {
    active: AtomicU32,
    /// Open by command: the drive does not close those.
    held_open: AtomicU32,
}

impl Census {
    /// A zone's claims changed. The caller holds the zone's lock.
    pub(crate) fn moved(&self, before: Claims, after: Claims) {
        let step = |count: &AtomicU32, was: bool, is: bool| match (was, is) {
            (false, true) => drop(count.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(count.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        };
        step(&self.active, before.active, after.active);
        step(&self.held_open, before.held_open, after.held_open);
    }

    /// Which limit a zone in `state` runs into when it is to be opened, if any. It counts itself as one that claims to
    /// be active, for it is about to be.
    pub(crate) fn reached(&self, state: ZoneState, geometry: &Geometry) -> Option<ErrorKind> {
        let others = self.active.load(Ordering::Relaxed).saturating_sub(1);
        if !state.is_active() && geometry.max_active.is_some_and(|most| others >= most) {
            return Some(ErrorKind::TooManyActive);
        }
        let held = self.held_open.load(Ordering::Relaxed);
        let full = !state.is_open() && geometry.max_open.is_some_and(|most| held >= most);
        full.then_some(ErrorKind::TooManyOpen)
    }
}
