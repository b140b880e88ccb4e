//! Integration tests of arrays once more, with logical zones that share physical ones, and tests of shared physical zones alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

/// The placement of the arrays of [`ground::ArrayFixture`].
const PLACEMENT: array::Placement = array::Placement::Stored;
/// Physical zones of a drive that small arrays have beside those of the other placements, so that as many zones may be active.
const RESERVE_ZONES: u32 = 14;
/// Logical zones of these arrays that share a physical zone.
const SHARES: u32 = 2;
/// Active zones of a drive that arrays with these shares keep free.
const SPARE_ACTIVE: u32 = 1;

#[path = "../integration/atomic_writes.rs"]
mod atomic_writes;
#[path = "../integration/common/mod.rs"]
mod common;
#[path = "../integration/conformance.rs"]
mod conformance;
#[path = "../integration/crash.rs"]
mod crash;
#[path = "../integration/ground/mod.rs"]
mod ground;
#[path = "../integration/in_flight.rs"]
mod in_flight;
#[path = "../integration/persistence.rs"]
mod persistence;
#[path = "../integration/reopened_zones.rs"]
mod reopened_zones;
#[path = "../integration/two_parities.rs"]
mod two_parities;
#[path = "../integration/wide_cuts.rs"]
mod wide_cuts;

mod evacuation;
mod narrow;
mod sharing;
