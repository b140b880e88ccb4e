//! The figures of the ZWAL paper, on both of its drives.

mod alone;
mod barrier;
mod drive;
mod fig2;
mod fig4;
mod fig5;
mod fig6;
mod recovered;

use super::Figure;

/// All figures of the ZWAL paper, the slowest last.
pub const FIGURES: [Figure; 5] = [fig2::FIGURE, fig4::FIGURE, fig6::FIGURE, fig5::FIGURE, barrier::FIGURE];

#[cfg(test)]
mod tests;
