//! The ways to batch beside each other: the same load under a group, as a parallel log, and as one that chooses.

use serde::Serialize;

use super::load::{WalLoad, WalMode, WalOutcome};
use super::run::run;
use crate::Result;

/// Writers of a comparison's rows.
pub const WRITERS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// What so many writers reach under each batching.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The writers.
    pub threads: u32,
    /// A leader appends for all who wait.
    pub group: WalOutcome,
    /// Each record alone.
    pub waltz: WalOutcome,
    /// Alone or together, as the log chooses.
    pub auto: WalOutcome,
}

/// Runs `load` with `threads` writers under each batching. What the drive holds is lost from the second run on.
///
/// # Errors
/// Those of [`run`].
pub fn compare(load: &WalLoad, threads: u32) -> Result<Compared> {
    let one = |batch, force| run(&WalLoad { batch, threads, force, ..load.clone() });
    let group = one(WalMode::Group, load.force)?;
    Ok(Compared { threads, group, waltz: one(WalMode::Waltz, true)?, auto: one(WalMode::Auto, true)? })
}

impl Compared {
    /// `auto`'s records a second over those of the better of the others.
    pub fn throughput(&self) -> f64 {
        self.auto.ops_per_s / self.group.ops_per_s.max(self.waltz.ops_per_s).max(f64::MIN_POSITIVE)
    }

    /// `auto`'s p99.9 over that of the better of the others: less is better.
    pub fn tail(&self) -> f64 {
        let best = self.group.latency_us.p99_9.min(self.waltz.latency_us.p99_9);
        self.auto.latency_us.p99_9 / best.max(f64::MIN_POSITIVE)
    }
}
