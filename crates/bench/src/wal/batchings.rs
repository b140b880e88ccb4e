//! One load under group commit, on a parallel log of single records, and on a parallel log that joins records.

use serde::Serialize;

use super::load::{LogMode, WalLoad};
use super::outcome::WalOutcome;
use super::run::run;
use crate::Result;

/// Numbers of writers, one for each row of the comparison.
pub const WRITERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// The outcomes of all three modes with one number of writers.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedBatchings {
    /// Number of writers.
    pub threads: u32,
    /// The outcome with group commit.
    pub group: WalOutcome,
    /// The outcome on a parallel log, each record an append of its own.
    pub waltz: WalOutcome,
    /// The outcome on a parallel log that joins records.
    pub auto: WalOutcome,
}

/// Runs `load` with `threads` writers in each of the three modes. The second and third run overwrite the drive's data.
///
/// # Errors
/// The errors of [`run`].
pub fn compare(load: &WalLoad, threads: u32) -> Result<ComparedBatchings> {
    let one = |wal, force| run(&WalLoad { wal, threads, force, ..load.clone() });
    let group = one(LogMode::Group, load.force)?;
    Ok(ComparedBatchings {
        threads,
        group,
        waltz: one(LogMode::Waltz, true)?,
        auto: one(LogMode::Auto, true)?,
    })
}

impl ComparedBatchings {
    /// The records a second of `auto` over the higher rate of `group` and `waltz`.
    pub fn throughput(&self) -> f64 {
        self.auto.ops_per_s / self.group.ops_per_s.max(self.waltz.ops_per_s).max(f64::MIN_POSITIVE)
    }

    /// The p99.9 latency of `auto` over the lower one of `group` and `waltz`: less is better.
    pub fn tail(&self) -> f64 {
        let best = self.group.latency_us.p99_9.min(self.waltz.latency_us.p99_9);
        self.auto.latency_us.p99_9 / best.max(f64::MIN_POSITIVE)
    }
}
