//! What chapter 5 of the RAIZN dissertation (RAIZN+) shows of atomic writes, RocksDB, memory, streams that overwrite an array and reclaim, on `zn540`.
//!
//! The paper gives curves without numbers, a table, and a condition under which reclaim keeps up.

mod atomic_writes;
mod memory;
mod overwrite;
mod reclaim;
mod rocks;

#[cfg(test)]
mod tests;

use super::Figure;

/// The figures of RAIZN+.
pub const FIGURES: [Figure; 5] =
    [atomic_writes::FIGURE, rocks::FIGURE, memory::FIGURE, overwrite::FIGURE, reclaim::FIGURE];
