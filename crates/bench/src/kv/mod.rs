//! A load of single puts, gets and scans on RocksDB over the file system, with RocksDB's own log or under the parallel
//! log, while memtables are flushed and tables compacted.
//!
//! The database is filled in key order and flushed before the count begins.

mod background;
mod engine;
mod groups;
mod load;
mod mix;
pub mod mixgraph;
mod run;
mod slow;
mod work;

pub use background::Background;
pub use groups::GroupOutcome;
pub use load::{Compaction, Interval, KvLoad, KvOutcome, LogMode};
pub use mix::{Mix, Operation};
pub use run::run;
pub use slow::SlowWrite;
