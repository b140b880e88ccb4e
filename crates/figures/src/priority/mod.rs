//! The figures of the paper "Mitigating Write-ahead Log Contention on Shared Storage Devices", in virtual time: the numbers are those of emulated drives, and of no host.
//!
//! The paper gives the latency of a log beside bulk writes, and no figure says what its bulk keeps. Each latency here has the bulk's rate beside it.

mod log_beside_bulk;
mod sentences;
mod snapshots;

use super::Figure;

/// All figures of the paper, the slowest last.
pub const FIGURES: [Figure; 3] = [sentences::FIGURE, log_beside_bulk::FIGURE, snapshots::FIGURE];

#[cfg(test)]
mod tests;
