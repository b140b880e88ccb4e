//! The recovery of one log, on the real clock.

use units::Bytes;

use super::drive::{Drive, PAIR_BYTES};
use crate::{Error, Result};
use bench::recovery::{self, RecoveredLog, RecoveryLoad};

/// Number of zones of the drive: enough for the largest log.
const ZONES: u32 = 16;

/// Fills and recovers a log of the load's one size, with an entry of 4 KiB for each pair. The load's drive, pair and buffer are
/// replaced.
pub fn recover_one_log(drive: Drive, load: RecoveryLoad) -> Result<RecoveredLog> {
    let load = RecoveryLoad {
        device: format!("{}&zones={ZONES}", drive.url()),
        pair: Bytes(PAIR_BYTES),
        buffer: Bytes(PAIR_BYTES),
        runs: 1,
        ..load
    };
    let doing = || format!("recovering a log on {}", drive.profile());
    let outcome = recovery::run(&load).map_err(|e| Error::new(doing(), e))?;
    outcome.logs.into_iter().next().ok_or_else(|| Error::new(doing(), "there is none"))
}
