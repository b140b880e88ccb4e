//! Counts of reads by zone: a zone is not reset while it is read.

use std::sync::atomic::{AtomicU32, Ordering};

use units::ZoneId;

/// The number of reads under way in each zone.
#[derive(Debug)]
pub(crate) struct Pins(Vec<PinCount>);

// The number of reads in one zone, in a cache line of its own: readers of two zones do not slow each other
// down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PinCount(AtomicU32);

impl Pins {
    pub(crate) fn new(zones: u32) -> Pins {
        Pins((0..zones).map(|_| PinCount::default()).collect())
    }

    /// Prevents the reset of `zone` until the returned pin is dropped.
    pub(crate) fn pin(&self, zone: ZoneId) -> Pin<'_> {
        let count = self.0.get(zone.index());
        if let Some(count) = count {
            count.0.fetch_add(1, Ordering::AcqRel);
        }
        Pin(count)
    }

    /// True if a read is under way in `zone`.
    pub(crate) fn is_pinned(&self, zone: ZoneId) -> bool {
        self.0.get(zone.index()).is_some_and(|count| count.0.load(Ordering::Acquire) > 0)
    }
}

/// A zone that is being read. Dropping the pin ends the read.
#[derive(Debug)]
pub(crate) struct Pin<'a>(Option<&'a PinCount>);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
