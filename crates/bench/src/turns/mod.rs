//! A replicated group whose servers write snapshots beside their logs, on one drive each: who decides when, in virtual time. The results are functions of the load and its seed.
//!
//! Figures 4 and 5 of "Mitigating Write-ahead Log Contention on Shared Storage Devices": the rate of writes, and the longest write, by the size of the snapshots.
//!
//! - The drives are emulated ones. An append to the log has the class `log`; a snapshot is written by 32 writes of 256 KiB in flight, of the class `flush`.
//! - The leader computes for each entry, and proposes up to 16 at a time. A server appends all entries that wait, durably, one append at a time. An entry is acknowledged when a majority
//!   has it.
//! - Nothing fails, clocks agree, and a server's memory holds what its drive has not taken yet.
//! - A leader that hands over commits what it has proposed; then its successor asks for votes, which are durable before they are given. Clients' requests wait meanwhile.
//!
//! Floors: `load`, `syncs`, `tally`, `server`, then `cluster`, `replication` and `rules`, then `snapshots`, then `run`.

mod cluster;
mod load;
mod replication;
mod rules;
mod run;
mod server;
mod snapshots;
mod syncs;
mod tally;

pub use load::{Due, Policy, TurnsLoad, WARM_UP};
pub use run::{TurnsLine, measure};
