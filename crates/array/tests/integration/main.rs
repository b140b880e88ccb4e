//! Integration tests of the array. They are one program, because linking a program for each file takes longer than the
//! tests of most files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

mod admission;
mod check;
mod common;
mod conformance;
mod conventional_zones;
mod crash;
mod degraded_reads;
mod failed_zones;
mod failures;
mod ground;
mod in_flight;
mod log_room;
mod parity_rows;
mod persistence;
mod raizn_defects;
mod rebuild;
mod rebuild_errors;
mod refusing_drives;
mod relocation;
mod scrub;
mod spare_faults;
mod spares;
mod stripes;
mod throughput;
mod torn_zones;
mod unreadable_metadata;
mod wide_cuts;
mod worn;
