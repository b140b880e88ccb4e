//! The integration tests of arrays once more, with stored maps (placement 2), and tests of stored maps alone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

/// The placement of the arrays of [`ground::ArrayFixture`].
const PLACEMENT: array::Placement = array::Placement::Stored;
/// Physical zones of a drive that a small array with this placement keeps in reserve.
const RESERVE_ZONES: u32 = 1;
/// Logical zones of these arrays that share a physical zone.
const SHARES: u32 = 1;
/// Active zones of a drive that arrays with these shares keep free.
const SPARE_ACTIVE: u32 = 1;

#[path = "../integration/admission.rs"]
mod admission;
#[path = "../integration/appends.rs"]
mod appends;
#[path = "../integration/atomic_writes.rs"]
mod atomic_writes;
#[path = "../integration/common/mod.rs"]
mod common;
#[path = "../integration/conformance.rs"]
mod conformance;
#[path = "../integration/conventional_zones.rs"]
mod conventional_zones;
#[path = "../integration/crash.rs"]
mod crash;
#[path = "../integration/degraded_reads.rs"]
mod degraded_reads;
#[path = "../integration/failed_zones.rs"]
mod failed_zones;
#[path = "../integration/failures.rs"]
mod failures;
#[path = "../integration/ground/mod.rs"]
mod ground;
#[path = "../integration/in_flight.rs"]
mod in_flight;
#[path = "../integration/log_room.rs"]
mod log_room;
#[path = "../integration/parity_rows.rs"]
mod parity_rows;
#[path = "../integration/persistence.rs"]
mod persistence;
#[path = "../integration/rebuild.rs"]
mod rebuild;
#[path = "../integration/rebuild_errors.rs"]
mod rebuild_errors;
#[path = "../integration/refusing_drives.rs"]
mod refusing_drives;
#[path = "../integration/relocation.rs"]
mod relocation;
#[path = "../integration/reopened_zones.rs"]
mod reopened_zones;
#[path = "../integration/reopened_zones_uncounted.rs"]
mod reopened_zones_uncounted;
#[path = "../integration/reset_cuts.rs"]
mod reset_cuts;
#[path = "../integration/scrub.rs"]
mod scrub;
#[path = "../integration/spare_faults.rs"]
mod spare_faults;
#[path = "../integration/spares.rs"]
mod spares;
#[path = "../integration/torn_zones.rs"]
mod torn_zones;
#[path = "../integration/two_parities.rs"]
mod two_parities;
#[path = "../integration/unreadable_metadata.rs"]
mod unreadable_metadata;
#[path = "../integration/wide_cuts.rs"]
mod wide_cuts;
#[path = "../integration/worn.rs"]
mod worn;

mod evacuation;
mod lives;
mod moves;
mod restored_parts;
mod vacated_drives;
mod widths;
