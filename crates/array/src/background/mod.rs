//! Background jobs beside clients: rebuild, onto an idle spare by itself, and scrub.

pub(crate) mod client_operations;
pub(crate) mod idle_spares;
pub(crate) mod job_runner;
pub(crate) mod jobs;
pub(crate) mod moves;
pub(crate) mod pace;
pub(crate) mod part_copy;
pub(crate) mod rebuild;
pub(crate) mod reclaim;
pub(crate) mod scrub;
pub(crate) mod scrub_report;
pub(crate) mod spares;
pub(crate) mod stuck_zones;
