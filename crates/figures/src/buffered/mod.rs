//! The figures of the paper "Buffered I/O support for Zoned Namespace SSD" (Lee, Jung, Shin), measured with RocksDB and LevelDB.
//!
//! The paper's databases have some 10 GB on a drive with zones of 32 MiB. The databases here are smaller, and memtables, block cache
//! and zones are in proportion. The engines' threads run on the real clock: a hit in the page cache costs the host's time.

mod comparison;
mod dilated;
mod fig3;
mod fig4;
mod fig5;
mod ftl;
mod setup;

pub use setup::MIN_RECORDS;

use super::Figure;

/// All figures of the paper, the slowest last. Fig. 1, the order of writes in the scheduler, comes first once it is measured.
pub const FIGURES: [Figure; 4] = [fig3::FIGURE, dilated::FIGURE, fig4::FIGURE, fig5::FIGURE];

#[cfg(test)]
mod tests;
