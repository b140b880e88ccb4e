//! The seam between logical and physical zones: which zones of a drive hold metadata, and which one holds the drive's part of a
//! logical zone. No other module computes the number of a physical zone.
//!
//! ```text
//!   physical zone   0   1   2   3   4   ...
//!                   metadata    parts of logical zones 0, 1, ...
//! ```

use std::ops::Range;

use zoned::ZoneId;

/// The number of metadata zones of a drive: two may hold records that count, and one is free for the next checkpoint.
pub(crate) const METADATA_ZONES: u32 = 3;

/// The metadata zones of a drive.
pub(crate) fn metadata_zones() -> Range<u32> {
    0..METADATA_ZONES
}

/// True if a physical zone is for metadata.
pub(crate) fn is_metadata_zone(physical: ZoneId) -> bool {
    metadata_zones().contains(&physical.0)
}

/// The metadata zone that a log moves to when it leaves `zone`.
pub(crate) fn next_metadata_zone(zone: ZoneId) -> ZoneId {
    ZoneId((zone.0 + 1) % METADATA_ZONES)
}

/// The physical zone of a drive's part of logical zone `id`: the same on every drive.
pub(crate) fn part_zone(id: ZoneId) -> ZoneId {
    ZoneId(id.0 + METADATA_ZONES)
}

/// The physical zones of a drive's parts of logical zones 0 to `zones`, in order.
pub(crate) fn part_zones(zones: u32) -> Range<u32> {
    METADATA_ZONES..zones.saturating_add(METADATA_ZONES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_metadata_share_no_physical_zone() {
        let parts: Vec<u32> = (0..5).map(|id| part_zone(ZoneId(id)).0).collect();
        assert_eq!(parts, part_zones(5).collect::<Vec<_>>());
        assert!(parts.iter().all(|zone| !is_metadata_zone(ZoneId(*zone))));
        assert!(metadata_zones().all(|zone| is_metadata_zone(ZoneId(zone))));
    }

    #[test]
    fn a_log_rotates_over_all_metadata_zones() {
        let mut zone = ZoneId(1);
        let visited: Vec<u32> = metadata_zones()
            .map(|_| {
                zone = next_metadata_zone(zone);
                zone.0
            })
            .collect();
        assert_eq!(visited, [2, 0, 1]);
    }
}
