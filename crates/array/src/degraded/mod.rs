//! Failed drives, failed zones and unreadable blocks.

pub(crate) mod equation;
pub(crate) mod errors;
pub(crate) mod failed_zones;
pub(crate) mod failures;
pub(crate) mod read_repair;
pub(crate) mod reconstruct;
pub(crate) mod whole_stripes;
