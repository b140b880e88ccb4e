//! The interface of the tables below the parallel WAL.

use super::error::LogError;
use fs::Ticket;

/// RocksDB's sequence number of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sequence(pub u64);

impl Sequence {
    /// A sequence above every sequence in use.
    pub const LAST: Sequence = Sequence(u64::MAX);
}

/// A mark: a record of the hidden family, written in one batch with the batch that it marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The ticket of the marked batch.
    pub ticket: Ticket,
    /// A new floor to write with the mark; the marks below it are removed.
    pub floor: Option<Ticket>,
}

/// Called once when a background flush has ended.
pub type FlushOver = Box<dyn FnOnce() + Send>;

/// The interface of the tables below the parallel WAL, and of the hidden family of marks in them.
pub trait Tables: Send + Sync {
    /// Applies a batch from the log with its mark, in a replay. Skips records of families that no longer exist.
    fn replay(&self, batch: &[u8], mark: Option<Mark>) -> Result<(), LogError>;

    /// Fails while the tables refuse every batch, so that no batch goes to the log in vain.
    fn check_writable(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// Notes that the tables refused a batch: [`check_writable`](Tables::check_writable) asks RocksDB before the next
    /// batch.
    fn was_refused(&self) {}

    /// Flushes the memtables of all families together, and waits for the end. Success does not prove that any batch is
    /// in tables: only [`flushed`](super::ParallelWal::flushed) and [`all_flushed`](super::ParallelWal::all_flushed)
    /// do.
    fn flush(&self) -> Result<(), LogError>;

    /// Like [`flush`](Tables::flush), while no batch is being applied. After success every batch applied earlier is in
    /// tables, durably.
    fn empty_memtables(&self) -> Result<(), LogError>;

    /// Starts a [`flush`](Tables::flush) in the background; calls `over` when the flush is done or has failed.
    fn flush_soon(&self, over: FlushOver);

    /// The marks' floor: the ticket below which every batch is in tables. `None` if the hidden family is absent or
    /// empty.
    fn floor(&self) -> Result<Option<Ticket>, LogError>;

    /// Whether the tables have the mark of a ticket.
    fn is_marked(&self, ticket: Ticket) -> Result<bool, LogError>;

    /// Creates the hidden family of marks if it is absent, removes every mark and writes the floor, in memory: the next
    /// flush makes these changes durable. Called while no write is in flight and every batch of the log is in tables: a
    /// mark at or above the floor is of another log.
    fn set_floor(&self, floor: Ticket) -> Result<(), LogError>;

    /// Removes the hidden family of marks if it exists, durably.
    fn drop_marks(&self) -> Result<(), LogError>;
}
