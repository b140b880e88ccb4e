//! The workloads of the Yahoo! Cloud Serving Benchmark on RocksDB over the file system.
//!
//! RocksDB runs with its own log, a zoned log, and its own group commit. Each workload opens the database, runs, and
//! closes it. The time to open the database, the replay of its log included, is reported apart.

pub mod keys;
mod load;
mod phase;
mod run;
mod workload;

pub use keys::Distribution;
pub use load::{Phase, YcsbLoad, YcsbOutcome};
pub use run::run;
pub use workload::{Operation, Workload};
