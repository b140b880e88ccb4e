//! The emulated drive of a run.

use std::sync::Arc;

use zoned::emu::{Emu, EmuOptions, Profile};
use zoned::{Blocks, Driver, Goal, Share, ZonedDevice};

use super::load::{Admit, ShareLoad};
use crate::{Error, Result};

/// Bytes of an append of the log.
pub(super) const LOG_BYTES: usize = 4 << 10;
/// Bytes of a bulk write.
pub(super) const BULK_BYTES: usize = 256 << 10;
/// Bytes of a zone, so that runs need little memory: bulk resets a full zone and writes it again.
pub(super) const ZONE_BYTES: u64 = 64 << 20;

/// The drive of a load, with `zones` zones, behind its scheduler if it has one.
pub(super) fn drive(
    load: &ShareLoad,
    admit: Admit,
    zones: u32,
    driver: &Arc<dyn Driver>,
) -> Result<Arc<dyn ZonedDevice>> {
    let profile = Profile::load(&load.profile).map_err(|why| Error::settings(format!("profile: {why}")))?;
    let mut options = EmuOptions::of_profile(profile);
    options.zones = zones;
    options.conventional = 0;
    let block = u64::from(options.block_size);
    options.zone_size = Blocks(ZONE_BYTES / block);
    options.zone_capacity = options.zone_size;
    let drive: Arc<dyn ZonedDevice> = Emu::memory(options, Arc::clone(driver));
    Ok(match admit {
        Admit::Unbounded => drive,
        Admit::Controller => Share::over(drive, load.goal),
        Admit::Fixed(rate) => {
            Share::over(drive, Goal { least_rate: rate, most_rate: Some(rate), ..load.goal })
        }
    })
}
