//! A load on a log: writers append records, with or without syncs. Raw appends of the same size on the same drive give
//! the limit.
//!
//! Before the clock starts, the drive is formatted and mounted, and a log with one record is made, as a database does
//! when it is opened. The clock runs from the first record until the last byte is durable, replacements of zones and
//! logs included.

mod batchings;
mod group;
mod limit;
mod load;
mod logs;
mod neighbours;
mod outcome;
mod parallel;
mod run;

pub use batchings::{ComparedBatchings, WRITERS, compare};
pub use limit::Limit;
pub use load::{LogMode, Sync, WalLoad, io_name};
pub(crate) use load::{bytes, io_mode, optional_bytes};
pub use outcome::WalOutcome;
pub use run::run;
