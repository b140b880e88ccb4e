//! The figures of the WALTZ paper: tails of puts, on a drive of small zones like the paper's and on `zn540`.
//!
//! The paper's drive has 4 TB and its databases 64 and 256 GB; the drives and databases here have some tens of MiB. Memtables,
//! tables and zones are smaller too, so that flushes and compactions go on all the time and zones are used up in a run of
//! 10,000 puts. RocksDB's threads run on the real clock with the drive's times stretched, so that the host's own time hardly
//! counts.

mod ablation;
mod fig12;
mod fig3;
mod fig5;
mod groups;
mod micro;
mod mixgraph;
mod over_time;
mod step;

use super::Figure;

/// All figures of the WALTZ paper, the slowest last.
pub const FIGURES: [Figure; 9] = [
    fig3::FIGURE,
    fig5::FIGURE,
    ablation::FIGURE,
    groups::FIGURE,
    over_time::FIGURE,
    fig12::BY_THREADS,
    fig12::BY_VALUE,
    mixgraph::FIGURE,
    micro::FIGURE,
];

#[cfg(test)]
mod tests;
