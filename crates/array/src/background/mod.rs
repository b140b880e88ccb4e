//! Background jobs beside clients: rebuild and scrub.

pub(crate) mod client_latency;
pub(crate) mod job_runner;
pub(crate) mod jobs;
pub(crate) mod pace;
pub(crate) mod rebuild;
pub(crate) mod scrub;
pub(crate) mod scrub_report;
