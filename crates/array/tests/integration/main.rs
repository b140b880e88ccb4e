//! Integration tests of the array. They are one program, because linking a program for each file takes longer than the
//! tests of most files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

/// The placement of the arrays of [`ground::ArrayFixture`]. The programs `stored_maps` and `shared_zones` run the same tests with the other one.
const PLACEMENT: array::Placement = array::Placement::Fixed;
/// Physical zones of a drive that a small array with this placement keeps in reserve.
const RESERVE_ZONES: u32 = 0;
/// Logical zones of these arrays that share a physical zone.
const SHARES: u32 = 1;
/// Active zones of a drive that arrays with these shares keep free.
const SPARE_ACTIVE: u32 = 0;

mod admission;
mod appends;
mod atomic_writes;
mod check;
mod classes;
mod common;
mod conformance;
mod conventional_zones;
mod crash;
mod degraded_reads;
mod failed_zones;
mod failures;
mod full_zones;
mod ground;
mod in_flight;
mod log_room;
mod memory;
mod parity_rows;
mod persistence;
mod raizn_defects;
mod rebuild;
mod rebuild_errors;
mod refusing_drives;
mod relocation;
mod reopened_zones;
mod reopened_zones_uncounted;
mod reset_cuts;
mod scrub;
mod spare_faults;
mod spares;
mod staged;
mod stripes;
mod throughput;
mod torn_zones;
mod two_parities;
mod unreadable_metadata;
mod wide_cuts;
mod worn;
