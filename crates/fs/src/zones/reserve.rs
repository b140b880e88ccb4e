//! The empty zones kept for the recovery of databases.
//!
//! A database that could not write for want of space must open for writing again, or nothing can be deleted from it. Its recovery
//! writes the content of its logs to tables before it removes the logs: room for as much as the live logs fill. Outside a recovery no
//! write may take these zones, so the room is there at every opening; the recovery gives back what its logs filled.

/// Zones of the reserve beside one for each zone of live logs: for the next log, for what is larger in a table than in a log, and for the
/// manifest.
const ZONES_BESIDE_LOGS: usize = 3;
/// The reserve is at most the device's zones divided by this number.
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
    /// Number of empty zones to keep while `log_zones` zones of `all` have live segments of logs. 0 without logs.
    pub(crate) fn zones(&self, log_zones: usize, all: usize) -> usize {
        if !self.kept || self.recoveries > 0 || log_zones == 0 {
            return 0;
        }
        (log_zones + ZONES_BESIDE_LOGS).min(all / LARGEST_RESERVE_DIVISOR)
    }
}
