//! Work beside the clients.

pub(crate) mod jobs;
pub(crate) mod pace;
pub(crate) mod rebuild;
pub(crate) mod runner;
pub(crate) mod scrub;
