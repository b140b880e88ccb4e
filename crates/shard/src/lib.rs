//! The replicas of CANDStore groups that one process has: one [`Group`] each, and the log that all of them share.
//!
//! ```text
//!   clients' batches --> Group (a replica::Replica with its tasks) --> GroupsLog --one record per request--> fs::ParallelLog
//!                          |            |
//!                        Peers        Tables
//! ```
#![forbid(unsafe_code)]

mod batch;
mod entries;
mod error;
mod fields;
mod group;
mod group_tables;
mod log;
mod peer;
mod row_key;
mod rules;
mod state_file;
mod store;
mod tables;
mod wait;

pub use batch::{Batch, Put, Write};
pub use error::{Error, Result};
pub use group::{Answered, Group, GroupOptions, MAX_COMMAND, Parts, Place, Refused};
pub use group_tables::{GroupTables, TablesDb, TablesOptions};
#[cfg(any(test, feature = "fuzzing"))]
pub use log::fuzz_record;
pub use log::{Change, GroupsLog, GroupsLogOptions, StoredGroup};
#[cfg(any(test, feature = "fuzzing"))]
pub use peer::fuzz_message;
pub use peer::{Answer, PeerMessage, Peers, RecordName, Request, RequestId};
pub use replica::GroupId;
pub use row_key::{client_key, once_row_key, row_key};
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use state_file::{read_state, replace_state};
pub use store::GroupStore;
pub use tables::{Entry, Row, Rows, Tables};
