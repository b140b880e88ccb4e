//! Background jobs beside clients: rebuild and scrub.

pub(crate) mod jobs;
pub(crate) mod latency;
pub(crate) mod pace;
pub(crate) mod rebuild;
pub(crate) mod runner;
pub(crate) mod scrub;
pub(crate) mod scrub_report;
