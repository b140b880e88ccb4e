//! Which records about stripes a mount needs of the logs.

use std::collections::BTreeSet;

use zoned::ZoneId;

use crate::layout::{Layout, Stripe};

/// Which records of partial parity and which frames a mount keeps in memory.
#[derive(Debug)]
pub(crate) struct NeededParity {
    /// Number of stripes below the highest one of a zone that may have been in flight.
    pub doubt: u64,
    /// For each zone, the number of rows that every drive with a known pointer has written.
    pub lowest: Vec<u64>,
    /// Zones of which all frames are needed: a drive that filled its part as it lost power hides how much its cache lost.
    pub all_frames: BTreeSet<ZoneId>,
}

impl NeededParity {
    /// The first stripe of a zone whose partial parity may be needed, if `highest` is the highest stripe with a record. A
    /// drive may have lost everything in its cache, so the lowest pointer counts too.
    pub(crate) fn first_needed_stripe(&self, layout: &Layout, zone: ZoneId, highest: Stripe) -> Stripe {
        let lowest = self.lowest.get(zone.index()).map_or(0, |row| row / layout.unit.max(1));
        Stripe(highest.0.saturating_sub(self.doubt).min(lowest.saturating_sub(1)))
    }
}
