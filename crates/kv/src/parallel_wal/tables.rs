//! What the engine needs of RocksDB besides applying a batch.

use super::error::LogError;
use super::log::Ticket;

/// RocksDB's number of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sequence(pub u64);

impl Sequence {
    /// None is beyond.
    pub const LAST: Sequence = Sequence(u64::MAX);
}

/// What goes into the hidden family with a batch, in the same batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The batch's ticket.
    pub ticket: Ticket,
    /// A new floor: write it, and remove the marks below.
    pub floor: Option<Ticket>,
}

/// Called once, when a flush that was asked for is over.
pub type FlushOver = Box<dyn FnOnce() + Send>;

/// The tables below the engine, and the hidden family of marks in them.
pub trait Tables: Send + Sync {
    /// Applies a batch from the log, with its mark. Records of families that are gone are left out.
    fn replay(&self, batch: &[u8], mark: Option<Mark>) -> Result<(), LogError>;

    /// Fails while the tables refuse every batch: then the log is not to have one either.
    fn check_writable(&self) -> Result<(), LogError> {
        Ok(())
    }

    /// A batch was refused: [`check_writable`](Tables::check_writable) is to look before the next one.
    fn was_refused(&self) {}

    /// Writes everything that is in memory to tables, all families at once, and waits for it. Success does not prove that any
    /// batch is in tables: only [`flushed`](super::ParallelWal::flushed) and
    /// [`all_flushed`](super::ParallelWal::all_flushed) do.
    fn flush(&self) -> Result<(), LogError>;

    /// The same while no batch is being applied. Success means that everything applied before is in tables, durably.
    fn empty_memtables(&self) -> Result<(), LogError>;

    /// The same without waiting; `over` is called when it is done or has failed.
    fn flush_soon(&self, over: FlushOver);

    /// Below this ticket everything is in tables; none if there is no hidden family, or nothing in it yet.
    fn floor(&self) -> Result<Option<Ticket>, LogError>;

    /// Whether the tables have the mark of a ticket.
    fn is_marked(&self, ticket: Ticket) -> Result<bool, LogError>;

    /// Makes the hidden family if it is not there, removes every mark and writes the floor. Called while nobody writes, and
    /// all that the log has is in tables: a mark that is not below the floor is of another log. In memory: the next flush
    /// makes it durable.
    fn set_floor(&self, floor: Ticket) -> Result<(), LogError>;

    /// Removes the hidden family if it is there, durably.
    fn drop_marks(&self) -> Result<(), LogError>;
}
