//! The choice of nodes for replicas: pure functions of the nodes and the plans so far.

mod candidates;
mod even;
mod first;
mod from_log;
mod replacing;
mod silence;
mod upkeep;

pub use candidates::Candidate;
pub use first::place;
pub use replacing::{Replacements, replace};
pub use silence::SilentNodes;
pub use upkeep::{Upkeep, upkeep};
