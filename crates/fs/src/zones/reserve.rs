//! The empty zones kept for the recovery of databases.
//!
//! A database that could not write for want of space must open for writing again, or nothing can be deleted from it. Its recovery
//! writes the content of its logs to tables before it removes the logs: room for as much as the live logs fill. Outside a recovery no
//! write takes these zones, so the room is there at every opening; the recovery gives back what its logs filled.
//!
//! Logs stop before file data, so that flushes and compactions go on where puts find no space. The first log takes a zone while
//! hardly any is left: an opened database takes deletes.

/// Zones that file data leaves beside one for each zone of live logs: for the next log, for what is larger in a table than in a
/// log, and for the manifest.
const ZONES_BESIDE_LOGS: usize = 3;
/// Zones that logs leave to file data.
const ZONES_LEFT_BY_LOGS: usize = 2;
/// Zones that the first log leaves.
const ZONES_LEFT_BY_FIRST_LOG: usize = 1;
/// The reserve is at most the zones for files divided by this number.
const LARGEST_RESERVE_DIVISOR: usize = 4;

/// The rule of the empty zones kept for recovery.
#[derive(Debug, Default)]
pub(crate) struct RecoveryReserve {
    /// Whether the mount keeps a reserve.
    pub kept: bool,
    /// Number of recoveries under way: while there is one, every write may take the reserve.
    pub recoveries: usize,
}

impl RecoveryReserve {
    /// Number of empty zones that file data leaves, while `log_zones` of `usable` zones have live segments of logs.
    pub(crate) fn left_by_data(&self, log_zones: usize, usable: usize) -> usize {
        self.bounded(log_zones + ZONES_BESIDE_LOGS, usable)
    }

    /// Number of empty zones that a log leaves when it takes one, while `log_zones` of `usable` zones have live segments of logs.
    pub(crate) fn left_by_log(&self, log_zones: usize, usable: usize) -> usize {
        let left = match log_zones {
            0 => ZONES_LEFT_BY_FIRST_LOG,
            // The log's new zone enlarges the reserve by one.
            n => n + 1 + ZONES_BESIDE_LOGS + ZONES_LEFT_BY_LOGS,
        };
        self.bounded(left, usable)
    }

    fn bounded(&self, zones: usize, usable: usize) -> usize {
        if self.kept && self.recoveries == 0 { zones.min(usable / LARGEST_RESERVE_DIVISOR) } else { 0 }
    }
}
