//! How a mount divides the zones that the device allows to be open at once.

use zoned::Geometry;

/// Number of zones that a mount keeps open at most if the device has no limit.
const OPEN_ZONES_WITHOUT_LIMIT: usize = 32;
/// Data zones open at once at most: one per lifetime, and one for reclaim. A program uses few lifetimes: those that both flushes and compactions write may have two zones.
pub(crate) const MAX_OPEN_DATA_ZONES: usize = 7;
/// With fewer data zones open at once, flushes and compactions share the zones of a lifetime, so that each lifetime may have one.
pub(crate) const DATA_ZONES_TO_DIVIDE_BY_SOURCE: usize = 4;
/// The fewest open zones that the file system works with: one for metadata, two for logs (a database opens the next log
/// before it closes the last one), one for data.
pub(crate) const MIN_OPEN_ZONES: usize = 4;
/// If the device allows fewer open zones than this, one metadata zone is open at a time; otherwise two.
const SLOTS_FOR_TWO_METADATA_ZONES: usize = 7;
/// If the device allows fewer open zones than this, no zone is opened ahead for logs.
const SLOTS_FOR_ONE_ZONE_AHEAD: usize = 7;
/// If the device allows at least this many open zones, two zones are opened ahead for logs.
const SLOTS_FOR_TWO_ZONES_AHEAD: usize = 10;
/// A device with at least this many zones keeps two empty zones for reclaim, a smaller one keeps one.
const ZONES_FOR_TWO_RECLAIM_ZONES: u64 = 64;

/// How a mount divides the open zones that the device allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenZoneShares {
    pub total: usize,
    pub metadata: usize,
    pub data: usize,
    /// Number of zones opened ahead for logs.
    pub ahead: usize,
}

impl OpenZoneShares {
    /// The division of open zones on a device with the limits of `geometry`.
    pub(crate) fn of(geometry: &Geometry) -> OpenZoneShares {
        let limit = |l: Option<u32>| l.map_or(OPEN_ZONES_WITHOUT_LIMIT, |l| l as usize);
        let total = limit(geometry.max_open).min(limit(geometry.max_active)).min(OPEN_ZONES_WITHOUT_LIMIT);
        let metadata = if total >= SLOTS_FOR_TWO_METADATA_ZONES { 2 } else { 1 };
        let logs = if total > MIN_OPEN_ZONES { 2 } else { 1 };
        let ahead = match total {
            SLOTS_FOR_TWO_ZONES_AHEAD.. => 2,
            SLOTS_FOR_ONE_ZONE_AHEAD.. => 1,
            _ => 0,
        };
        let data = total.saturating_sub(metadata + logs).clamp(1, MAX_OPEN_DATA_ZONES);
        OpenZoneShares { total, metadata, data, ahead }
    }
}

/// Number of empty zones that a device of `zones` zones keeps for reclaim.
pub(crate) fn kept_for_reclaim(zones: u64) -> usize {
    if zones >= ZONES_FOR_TWO_RECLAIM_ZONES { 2 } else { 1 }
}
