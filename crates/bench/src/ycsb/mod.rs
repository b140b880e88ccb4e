//! The workloads of the Yahoo! Cloud Serving Benchmark on RocksDB over the file system.
//!
//! RocksDB itself, with its own log as a zoned log: writers share its group commit and nothing above it. Each
//! workload opens the database, runs, and closes it. The time to open it, the replay of its log included, is
//! reported apart.

pub mod keys;
mod load;
mod phase;
mod run;
mod workload;

pub use keys::Distribution;
pub use load::{Phase, YcsbLoad, YcsbOutcome};
pub use run::run;
pub use workload::{Operation, Workload};
