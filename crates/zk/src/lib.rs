//! Turns of snapshots for stock ZooKeeper 3.9.4 or later, by its AdminServer: at most one *commanded* snapshot at a time in the ensemble, the leader's last. Paper:
//! "Mitigating Write-ahead Log Contention on Shared Storage Devices", section 3; decision: ADR 0036; how to set up the servers: docs/zookeeper.md.
//!
//! ```text
//!   AdminServer of each server <--GET-- ensemble   the client: monitor, leader, zabstate, last_snapshot, voting_view, snapshot
//!                                          |
//!                                       checks     settings with which turns make no sense, each as a sentence
//!                                          |
//!                            run: one polling thread a server, one thread for the command under way
//!                                          | Event, Action
//!                                     coordinator  pure: whose snapshot is next, when a turn is over; time is an input
//! ```
//!
//! Modules import downwards: `run`, `checks`, `ensemble` and `coordinator`, `sample`.
#![forbid(unsafe_code)]

pub mod checks;
pub mod coordinator;
pub mod ensemble;
pub mod run;
pub mod sample;

pub use coordinator::{Action, Coordinator, Event, Notice, Outcome, Settings};
pub use ensemble::{AdminServer, AskError, Credentials, ServerAddress};
pub use run::{Ended, Ensemble, Mode};
pub use sample::{Health, Role, Sample, ServerId, Zxid};
