//! The rate of a log without RocksDB, in virtual time.

use units::Bytes;

use super::drive::{APPENDS_IN_FLIGHT, Drive, PAIR_BYTES};
use crate::{Error, Result};
use bench::Clock;
use bench::wal::{self, WalLoad, io_name};

/// Measures a log without RocksDB: gives thousands of records of 4 KiB a second, and a note on the measurement. The load's
/// drive, clock, record and window are replaced.
pub fn log_alone_rate(drive: Drive, load: WalLoad) -> Result<(f64, String)> {
    let load = WalLoad {
        device: drive.url(),
        clock: Some(Clock::Virtual),
        record: Bytes(PAIR_BYTES),
        window: APPENDS_IN_FLIGHT,
        ..load
    };
    let outcome = wal::run(&load).map_err(|e| {
        Error::new(format!("the log on {} in the {} mode", drive.profile(), io_name(load.io)), e)
    })?;
    let limit = outcome.device_limit.mib_per_s * f64::from(1 << 20) / PAIR_BYTES as f64 / 1e3;
    let note = format!(
        "the log alone, virtual clock, {} MiB, window {APPENDS_IN_FLIGHT}; raw appends carry {limit:.1} thousand a second",
        load.total.0 >> 20,
    );
    Ok((outcome.ops_per_s / 1e3, note))
}
