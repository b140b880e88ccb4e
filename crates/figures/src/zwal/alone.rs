//! The log without RocksDB, in virtual time.

use units::Bytes;

use super::drive::{Drive, PAIR, WINDOW};
use crate::{Error, Result};
use bench::Clock;
use bench::wal::{self, WalLoad, io_name};

/// Thousand records of 4 KiB a second, and how they were measured. What the load says of drive, clock, record and
/// window does not count.
pub fn alone(drive: Drive, load: WalLoad) -> Result<(f64, String)> {
    let load = WalLoad {
        device: drive.url(),
        clock: Some(Clock::Virtual),
        record: Bytes(PAIR),
        window: WINDOW,
        ..load
    };
    let outcome = wal::run(&load).map_err(|e| {
        Error::new(format!("the log on {} in the {} mode", drive.profile(), io_name(load.io)), e)
    })?;
    let limit = outcome.device_limit.mib_per_s * f64::from(1 << 20) / PAIR as f64 / 1e3;
    let note = format!(
        "the log alone, virtual clock, {} MiB, window {WINDOW}; raw appends carry {limit:.1} thousand a second",
        load.total.0 >> 20,
    );
    Ok((outcome.ops_per_s / 1e3, note))
}
