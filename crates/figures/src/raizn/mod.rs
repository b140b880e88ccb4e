//! The figures of the RAIZN paper, chapter 4, on five `zn540`. Fig. 4.14 (MySQL) is left out.
//!
//! The paper gives curves, and few numbers in its text: these have rows of their own, and the text's other statements are in
//! the notes. md is [a model](md).

pub(crate) mod md;
mod micro;
pub(crate) mod overwrite;
mod repair;
pub(crate) mod rocks;
pub(crate) mod setup;
mod shares;

#[cfg(test)]
mod tests;

use super::Figure;

/// All figures of the RAIZN paper, those that need a quiet machine last.
pub const FIGURES: [Figure; 6] =
    [micro::UNITS, micro::WORKLOADS, overwrite::FIGURE, micro::DEGRADED, repair::FIGURE, rocks::FIGURE];
