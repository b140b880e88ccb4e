//! The engine: writer threads that run pipelines in groups and write each group as one batch, and background tasks.
//!
//! ```text
//!  start --> writer, reading, expiry --> handle (Engine) --> schedule, refusals, stats --> claims, work, options
//! ```

mod claims;
mod expiry;
mod handle;
mod options;
mod reading;
mod refusals;
mod schedule;
mod start;
mod stats;
mod work;
mod writer;

pub use claims::Claims;
pub use handle::Engine;
pub use options::{Durability, EngineOptions};
pub use reading::Reading;
pub use stats::{KeyspaceCounts, Stats};
pub use work::Work;

#[cfg(test)]
mod tests;
