//! A process of a cluster: replicas of groups on one drive, the connections to the other processes, and the clients' server over them.
//!
//! ```text
//!   redis clients --> server --> kv::Engine --> GroupStore --> Group --> groups' log, tables: one drive
//!                        |                                       |
//!                     Members <--- leaders of the groups --------+--> peers::Network --> other processes
//!                        ^
//!                        +--- placement::Etcd: who is in the cluster, which replicas a group is to have
//! ```
//!
//! No request waits for etcd: what it said last lies on the drive, and a process starts from that.
//!
//! Floors, from below: `error`, `options`, `state`; `replicas`; `handing_over`; `members`, `leaders`, `planned`, `placer`; `agreement`, `spread`; `run`.
#![forbid(unsafe_code)]

pub mod admin;
mod agreement;
mod error;
mod handing_over;
mod leaders;
mod members;
mod options;
mod placer;
mod planned;
mod replicas;
mod run;
mod spread;
mod state;

pub use error::{Error, Result};
pub use options::{MAX_VALUE, NodeOptions};
pub use run::run;
#[cfg(any(test, feature = "fuzzing"))]
pub use state::fuzz_state;
