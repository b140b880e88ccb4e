//! The parallel WAL above RocksDB (the paper WALTZ, `--wal waltz`): every writer appends its own batch to a parallel log,
//! then applies it with RocksDB's log
//! off. `docs/adr/0013` has the decisions and why they are sound.
//!
//! ```text
//!  batch --> decode (batch.rs) --> stripes of its keys --> TicketLog::append --> apply --> Ledger: ticket, sequence
//!                                        held until the end                        |            |
//!                                                            failed: TicketLog::void    flushed: TicketLog::retire
//! ```
//!
//! Nothing here knows RocksDB but for the serialisation of its batches: [`Tables`] and the closure given to
//! [`ParallelWal::write`] are RocksDB, [`TicketLog`] is the log.

mod batch;
mod builder;
mod database;
mod error;
mod fs_log;
mod interposed;
mod ledger;
#[doc(hidden)]
pub mod linear;
mod log;
mod memory_log;
mod mode;
mod options;
mod protocol;
mod rocks_tables;
mod stripes;
mod tables;

pub use batch::{BatchError, Family, Kind, Records, parse};
pub use builder::BatchBuilder;
pub use database::{Database, DatabaseOptions};
pub use error::{LogError, LogErrorKind, WriteError};
pub(crate) use fs_log::LOG_ZONES;
pub use fs_log::{FsLog, LOG_FILE, log_limits};
pub use interposed::Interposed;
pub use log::{LogFuture, Ticket, TicketLog, VisitRecord};
pub use memory_log::{MemoryLog, Survivors};
pub use mode::{UnknownMode, WAL_VARIABLE, WalMode};
#[doc(hidden)]
pub use options::Without;
pub use options::{Applied, FamilyInfo, HeldRecords, How, ParallelWalOptions};
pub use protocol::ParallelWal;
pub use rocks_tables::RocksTables;
pub use tables::{FlushOver, Mark, Sequence, Tables};

#[cfg(test)]
mod tests;
