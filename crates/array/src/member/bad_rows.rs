//! Rows of a drive whose content is lost: when the drive was rebuilt another one could not read its part of them (md calls
//! such a list the bad block log of a drive).
//!
//! What lies there are zeros. They are never read: such a row reads as if its drive could not read it, so that it follows from
//! the other drives, should these be able to read theirs again, or is an error. No row of another drive is put together
//! from it. It is over with the zone's reset.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zoned::{Error, ErrorKind, Lba, ZoneId, ZonedDevice};

use crate::zone::stale_rows;

/// Rows of one drive that a rebuild gives up at the most: beyond that the other drive is of no use.
pub(crate) const MOST_LOST: u64 = 64;

/// The lost rows of a drive, by logical zone.
#[derive(Debug, Default)]
pub(crate) struct LostRows {
    /// There are some: nearly always there are none.
    any: AtomicBool,
    zones: Mutex<BTreeMap<ZoneId, Vec<Range<u64>>>>,
}

impl LostRows {
    /// These rows of a zone are lost, and no others.
    pub(crate) fn set(&self, zone: ZoneId, ranges: Vec<Range<u64>>) {
        self.change(zone, |known| *known = ranges);
    }

    /// What belongs in these rows is known. Says whether any was lost.
    pub(crate) fn remove(&self, zone: ZoneId, rows: &Range<u64>) -> bool {
        let hit = self.hits(zone, rows);
        if hit {
            self.change(zone, |known| stale_rows::remove(known, rows));
        }
        hit
    }

    fn change(&self, zone: ZoneId, change: impl FnOnce(&mut Vec<Range<u64>>)) {
        let mut zones = self.zones.lock();
        let known = zones.entry(zone).or_default();
        change(known);
        if known.is_empty() {
            zones.remove(&zone);
        }
        self.any.store(!zones.is_empty(), Ordering::Release);
    }

    /// The lost rows of a zone.
    pub(crate) fn of(&self, zone: ZoneId) -> Vec<Range<u64>> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.zones.lock().get(&zone).cloned().unwrap_or_default()
    }

    /// Whether any of these rows is lost.
    pub(crate) fn hits(&self, zone: ZoneId, rows: &Range<u64>) -> bool {
        self.any.load(Ordering::Acquire)
            && self.zones.lock().get(&zone).is_some_and(|known| hits(known, rows))
    }

    /// All of them: zones and how many rows.
    pub(crate) fn all(&self) -> Vec<(ZoneId, u64)> {
        let rows = |ranges: &Vec<Range<u64>>| ranges.iter().map(|range| range.end - range.start).sum();
        self.zones.lock().iter().map(|(zone, ranges)| (*zone, rows(ranges))).collect()
    }
}

/// Whether any of these rows is in the ranges.
pub(crate) fn hits(ranges: &[Range<u64>], rows: &Range<u64>) -> bool {
    ranges.iter().any(|range| range.start < rows.end && rows.start < range.end)
}

/// What a read of lost rows says.
pub(crate) const WORDS: &str = "what belongs here is lost: two drives could not read what it follows from. Copy what can be \
                                read of the array's zone, and reset it";

/// The error of a read of lost rows.
pub(crate) fn error(device: &dyn ZonedDevice, at: Lba) -> Error {
    Error::new(ErrorKind::Media, &device.geometry().name, "read").at(at).because(WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_lost_until_they_are_known_or_the_zone_is_reset() {
        let lost = LostRows::default();
        assert!(!lost.hits(ZoneId(1), &(0..99)));
        lost.set(ZoneId(1), vec![4..7, 9..10]);
        assert_eq!((lost.of(ZoneId(1)), lost.all()), (vec![4..7, 9..10], vec![(ZoneId(1), 4)]));
        assert!(
            lost.hits(ZoneId(1), &(6..9)) && !lost.hits(ZoneId(1), &(7..9)) && !lost.hits(ZoneId(2), &(4..5))
        );
        assert!(lost.remove(ZoneId(1), &(5..10)) && !lost.remove(ZoneId(1), &(5..10)));
        assert_eq!(lost.of(ZoneId(1)), std::slice::from_ref(&(4..5)));
        lost.set(ZoneId(1), Vec::new());
        assert_eq!(lost.all(), []);
    }
}
