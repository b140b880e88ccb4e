//! The figures of the paper "Buffered I/O support for Zoned Namespace SSD" (Lee, Jung, Shin), measured with RocksDB and LevelDB.
//!
//! The paper's databases have some 10 GB on a drive with zones of 32 MiB. The databases here are smaller, and memtables, block cache
//! and zones are in proportion. The engines' threads run on the real clock: a hit in the page cache costs the host's time.

mod comparison;
mod dilated;
mod fig1;
mod fig3;
mod fig4;
mod fig5;
mod ftl;
mod setup;

pub use setup::MIN_RECORDS;

use super::Figure;

/// All figures of the paper, the slowest last.
pub const FIGURES: [Figure; 5] = [fig1::FIGURE, fig3::FIGURE, dilated::FIGURE, fig4::FIGURE, fig5::FIGURE];

#[cfg(test)]
mod tests;
