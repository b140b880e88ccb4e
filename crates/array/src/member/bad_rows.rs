//! Bad rows: rows of a drive whose content is not recoverable.
//!
//! A rebuild finds a bad row when another drive cannot read its part of the row. The new drive holds zeros there, and
//! the zeros are never read: a read of a bad row fails like a media error. The row is then reconstructed from the other
//! drives, if these can read their parts by now. A bad row never serves to reconstruct a row of another drive. A reset of
//! the zone clears its bad rows. Linux md calls such a list the bad block log of a drive.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zoned::{Error, ErrorKind, Lba, ZoneId};

use crate::layout::row_set::RowSet;
use crate::member::member_drive::MemberDrive;

/// Bad rows that a rebuild of one drive accepts. A rebuild that finds more fails.
pub(crate) const MAX_BAD_ROWS: u64 = 64;

/// The bad rows of a drive, by logical zone.
#[derive(Debug, Default)]
pub(crate) struct BadRows {
    /// True if the drive has any bad rows. Almost every drive has none: reads check this flag only.
    any: AtomicBool,
    zones: Mutex<BTreeMap<ZoneId, RowSet>>,
}

impl BadRows {
    /// Replaces the bad rows of a zone.
    pub(crate) fn set(&self, zone: ZoneId, rows: RowSet) {
        self.change(zone, |known| *known = rows);
    }

    /// Removes rows whose content is known again from the drive's bad rows. True if any of them was bad.
    pub(crate) fn remove(&self, zone: ZoneId, rows: &Range<u64>) -> bool {
        let hit = self.intersects(zone, rows);
        if hit {
            self.change(zone, |known| known.remove(rows));
        }
        hit
    }

    fn change(&self, zone: ZoneId, change: impl FnOnce(&mut RowSet)) {
        let mut zones = self.zones.lock();
        let known = zones.entry(zone).or_default();
        change(known);
        if known.is_empty() {
            zones.remove(&zone);
        }
        self.any.store(!zones.is_empty(), Ordering::Release);
    }

    /// The bad rows of a zone.
    pub(crate) fn of(&self, zone: ZoneId) -> RowSet {
        if !self.any.load(Ordering::Acquire) {
            return RowSet::default();
        }
        self.zones.lock().get(&zone).cloned().unwrap_or_default()
    }

    /// True if any of `rows` is bad.
    pub(crate) fn intersects(&self, zone: ZoneId, rows: &Range<u64>) -> bool {
        self.any.load(Ordering::Acquire)
            && self.zones.lock().get(&zone).is_some_and(|known| known.intersects(rows))
    }

    /// Each zone with bad rows, and their number.
    pub(crate) fn rows_by_zone(&self) -> Vec<(ZoneId, u64)> {
        self.zones.lock().iter().map(|(zone, rows)| (*zone, rows.len())).collect()
    }
}

/// The reason that the error of a read of bad rows gives.
pub(crate) const BAD_ROWS_REASON: &str = "the content is lost: two drives could not read rows that it is reconstructed from. Copy the \
                                 readable blocks of the array's zone, and reset the zone";

/// The error of a read of bad rows at `at`.
pub(crate) fn error(drive: &MemberDrive, at: Lba) -> Error {
    drive.error(ErrorKind::Media, "read").at(at).because(BAD_ROWS_REASON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_bad_until_their_content_is_known_or_the_zone_is_reset() {
        let bad = BadRows::default();
        assert!(!bad.intersects(ZoneId(1), &(0..99)));
        let rows: RowSet = [4..7, 9..10].into_iter().collect();
        bad.set(ZoneId(1), rows.clone());
        assert_eq!((bad.of(ZoneId(1)), bad.rows_by_zone()), (rows, vec![(ZoneId(1), 4)]));
        let hit = |zone, rows| bad.intersects(ZoneId(zone), &rows);
        assert!(hit(1, 6..9) && !hit(1, 7..9) && !hit(2, 4..5));
        assert!(bad.remove(ZoneId(1), &(5..10)) && !bad.remove(ZoneId(1), &(5..10)));
        assert_eq!(bad.of(ZoneId(1)), RowSet::from_iter(std::iter::once(4..5)));
        bad.set(ZoneId(1), RowSet::default());
        assert_eq!(bad.rows_by_zone(), []);
    }
}
