//! The figures of chapter 5 of the RAIZN dissertation (RAIZN+), on `zn540`: atomic writes, zones that share physical ones, RocksDB,
//! memory, streams that overwrite an array, and reclaim.
//!
//! The paper gives curves without numbers, a table, and a condition under which reclaim keeps up.

mod atomic_writes;
mod database;
mod memory;
mod overwrite;
mod reclaim;
mod rocks;
mod shared_zones;

#[cfg(test)]
mod tests;

use super::Figure;

/// The figures of RAIZN+.
pub const FIGURES: [Figure; 7] = [
    atomic_writes::FIGURE,
    shared_zones::FIGURE,
    rocks::FIGURE,
    database::FIGURE,
    memory::FIGURE,
    overwrite::FIGURE,
    reclaim::FIGURE,
];
