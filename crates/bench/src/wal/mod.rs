//! A load on a log: writers that append records, with or without syncs, beside what raw appends of the same size
//! reach on the same drive.
//!
//! The clock runs from the first record to the moment when the last byte is safe on the drive. Before it the drive
//! is formatted and mounted, and the log made, with one record in it: what a database does when it is opened.
//! Everything that happens meanwhile counts: zones that are used up, logs that take turns.

mod batchings;
mod group;
mod limit;
mod load;
mod logs;
mod neighbours;
mod parallel;
mod run;

pub use batchings::{Compared, WRITERS, compare};
pub use limit::Limit;
pub use load::{Sync, WalLoad, WalMode, WalOutcome, io_name};
pub(crate) use load::{bytes, io_mode, optional_bytes};
pub use run::run;
