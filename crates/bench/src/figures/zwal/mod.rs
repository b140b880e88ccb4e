//! The figures of the ZWAL paper, on both of its drives.

mod fig2;

use super::Figure;

/// All of them, those that take longest last.
pub const FIGURES: [Figure; 1] = [fig2::FIGURE];
