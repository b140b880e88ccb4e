//! The crash explorer.
//!
//! ```text
//!   workload ---> fs, engine ---> Recorder ---> emulated drive
//!                                    |
//!                                  Trace: submitted, acknowledged, attempted, promised
//!                                    |
//!   for every event: replay up to it, cut the power, for every outcome that the contract allows:
//!     mount a copy ---> compare with the model ---> check ---> write on, cut again, mount again
//! ```
//!
//! [`crash`] runs an exploration. Workloads, samples and outcomes are functions of the seed, except those of the target
//! `engine`: RocksDB runs threads of its own, so that its trace is saved, and a replay reads the file.
#![forbid(unsafe_code)]

mod act;
mod array;
mod choose;
mod cluster;
mod drive;
mod engine;
mod error;
mod exploration;
mod explore;
mod file_log;
mod files;
mod groups;
mod linear;
mod model;
mod options;
mod oracle;
mod plan;
mod recorder;
mod replay;
mod report;
mod rng;
mod rules;
mod runs;
mod second_cut;
mod shape;
mod stage;
mod state;
mod tables;
mod trace;
mod tree;
mod turns;
mod waltz;

#[cfg(feature = "broken-rules")]
pub use self::cluster::NodeRule;
pub use self::cluster::{
    ClusterCounts, ClusterFailure, ClusterFailureKind, ClusterReport, ClusterRules, explore_cluster,
};
pub use self::turns::{TurnsFailure, TurnsReport, TurnsRules, explore_turns};
pub use choose::Sample;
pub use error::{Error, Result};
pub use explore::crash;
pub use options::{CrashOptions, During, Target};
pub use recorder::Recorder;
pub use report::{Failure, FailureKind, Report, StateKind};
pub use rng::Rng;
#[cfg(feature = "broken-rules")]
pub use rules::BrokenRule;
pub use rules::BrokenRules;
pub use state::{Outcome, StateId};
pub use trace::{Drive, Event, OpNumber, Step, Trace};
