//! The replicas of CANDStore groups that one process has: so far the log that all of them share.
//!
//! ```text
//!   replica (one per group) --Persist, Retire--> GroupsLog --one record per request--> fs::ParallelLog
//! ```
#![forbid(unsafe_code)]

mod error;
mod log;
mod rules;

pub use error::{Error, Result};
#[cfg(any(test, feature = "fuzzing"))]
pub use log::fuzz_record;
pub use log::{Change, GroupId, GroupsLog, GroupsLogOptions, StoredGroup};
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
