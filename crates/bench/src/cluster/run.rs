//! All measurements of a cluster.

use serde::Serialize;

use super::alone::{self, AloneOutcome};
use super::first_write::{self, FirstWriteOutcome};
use super::load::ClusterLoad;
use super::reads::{self, ReadsOutcome};
use super::writers::{self, WritersOutcome};
use crate::Result;

/// The measurements of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterOutcome {
    /// The load.
    pub load: ClusterLoad,
    /// Writes that are alone.
    pub alone: AloneOutcome,
    /// Writers side by side.
    pub writers: WritersOutcome,
    /// Reads under the lease.
    pub reads: ReadsOutcome,
    /// First writes after a lost primary.
    pub first_write: FirstWriteOutcome,
}

/// Measures a cluster. Blocks; this thread may run nothing else on a virtual clock.
///
/// # Errors
/// Settings outside of their ranges, an unknown profile, a drive's error, a command that a cluster without faults refuses.
pub fn measure(load: &ClusterLoad) -> Result<ClusterOutcome> {
    load.check()?;
    Ok(ClusterOutcome {
        load: load.clone(),
        alone: alone::measure(load)?,
        writers: writers::measure(load)?,
        reads: reads::measure(load)?,
        first_write: first_write::measure(load)?,
    })
}
