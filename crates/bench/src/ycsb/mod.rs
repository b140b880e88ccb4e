//! The workloads of the Yahoo! Cloud Serving Benchmark on RocksDB or LevelDB over the file system.
//!
//! The engine runs with its own log, a zoned log, and its own group commit. The database stays open from the first workload to the last one, or
//! is opened for each; the time to open it, the replay of its log included, is reported apart. Compactions end between workloads.

mod database;
mod engine;
pub mod keys;
mod load;
mod phase;
mod run;
mod workload;

pub use engine::Engine;
pub use keys::Distribution;
pub use load::{Caching, Memory, Phase, YcsbLoad, YcsbOutcome};
pub use run::run;
pub use workload::{Operation, Workload};
