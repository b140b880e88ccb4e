//! A group of five replicas on emulated drives, with a modelled network between them, in virtual time. The results are functions of the load and its seed.
//!
//! - A replica is `shard::Group` with its log on a drive of its own: the code of `furrow serve`, without its connections and its engine.
//! - A message takes a fixed time, behind the time in which its sender's link sends its bytes and those before it. It is encoded and decoded as between processes, and travels in a frame of its own.
//! - Processors and tables take no time: drives, messages and the code's own waits are all that is measured.
//!
//! Floors: `load`, `tables`, `network`, then `node`, then `nodes`, then `alone`, `writers`, `reads` and `first_write`, then `run`.

mod alone;
mod first_write;
mod load;
mod network;
mod node;
mod nodes;
mod reads;
mod run;
mod tables;
mod writers;

pub use alone::AloneOutcome;
pub use first_write::FirstWriteOutcome;
pub use load::ClusterLoad;
pub use reads::ReadsOutcome;
pub use run::{ClusterOutcome, measure};
pub use tables::MemoryTables;
pub use writers::{WritersOutcome, write_records};
