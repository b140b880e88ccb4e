//! The engine: writer threads that run pipelines in groups and write each group as one batch, and background tasks.
//!
//! ```text
//!  start --> writer, expiry --> handle (Engine) --> schedule, refusals, stats --> claims, work, options
//! ```

mod claims;
mod expiry;
mod handle;
mod options;
mod refusals;
mod schedule;
mod start;
mod stats;
mod work;
mod writer;

pub use claims::Claims;
pub use handle::{Engine, Reading};
pub use options::{Durability, EngineOptions};
pub use stats::{KeyspaceCounts, Stats};
pub use work::Work;

#[cfg(test)]
mod tests;
