//! The parallel WAL above RocksDB, after the paper WALTZ (`--wal waltz` and `auto`): every writer appends its own batch to a
//! parallel log, then applies it with RocksDB's log off. `docs/adr/0013` has the decisions and why they are sound.
//!
//! ```text
//!  batch --> plan: families, stripes of its keys --> TicketLog::append --> apply --> ledger: ticket, sequences
//!                          held until the end                                |            |
//!                                                       failed: TicketLog::void    flushed: TicketLog::retire
//! ```
//!
//! The protocol knows of RocksDB only the serialisation of its batches: [`Tables`] and the closure given to
//! [`ParallelWal::write`] stand for RocksDB, [`TicketLog`] for the log. Modules, from the top layer down:
//!
//! | files | what they are |
//! |---|---|
//! | `database`, `interposed` | a database of the server's, and one of an unmodified program |
//! | `open` | the parallel WAL of an open database, with its log and its tables |
//! | `rocks_tables`, `fs_log` | RocksDB as [`Tables`], `fs`'s parallel log as [`TicketLog`] |
//! | `protocol` | [`ParallelWal`] |
//! | `in_flight`, `marks`, `plan` | writes in flight, the marks of a replay, column families and the needs of a batch |
//! | `ledger`, `stripes` | tickets not in tables, key locks |
//! | `log`, `tables`, `options`, `batch`, `error` | interfaces, settings, RocksDB's format |

mod batch;
mod builder;
mod database;
mod error;
mod fs_log;
mod in_flight;
mod interposed;
mod ledger;
mod log;
mod marks;
mod mode;
mod open;
mod options;
mod plan;
mod protocol;
mod rocks_tables;
mod stripes;
mod tables;
mod write_pace;

pub use batch::{BatchError, Family, RecordKind, Records, parse};
pub use builder::BatchBuilder;
pub use database::{Database, DatabaseOptions};
pub use error::{LogError, LogErrorKind, WriteError};
pub use fs::Ticket;
pub(crate) use fs_log::LOG_ZONES;
pub use fs_log::{FsLog, LOG_FILE, log_limits};
pub use interposed::Interposed;
pub use log::{LogFuture, TicketLog, VisitRecord};
pub use mode::{UnknownMode, WAL_VARIABLE, WalMode};
pub(crate) use open::OpenParallelWal;
#[cfg(feature = "broken-rules")]
pub use options::BrokenRule;
pub use options::{Applied, HeldRecords, ParallelWalOptions, WriteOptions};
pub use plan::FamilyInfo;
pub use protocol::ParallelWal;
pub use rocks_tables::RocksTables;
pub use tables::{FlushOver, Mark, Sequence, Tables};
pub use write_pace::Memtables;

#[cfg(test)]
mod tests;
