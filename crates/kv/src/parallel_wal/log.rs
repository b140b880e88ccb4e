//! The interface of the log below the parallel WAL.

use std::pin::Pin;

use fs::Ticket;

use super::error::LogError;
use super::options::WriteOptions;

/// Called with each record of a replay; an error ends it.
pub type VisitRecord<'v> = dyn FnMut(Ticket, &[u8]) -> Result<(), LogError> + 'v;

/// A running operation of a log.
pub type LogFuture<'l, T> = Pin<Box<dyn Future<Output = Result<T, LogError>> + Send + 'l>>;

/// A log of records with tickets, which any number of threads append to at once.
pub trait TicketLog: Send + Sync {
    /// Appends a record. On return it survives a kill of the process; with `synced` a power cut too, and so does every record
    /// that was acknowledged before. If record A was acknowledged before record B was submitted, a power cut that loses A
    /// also loses B.
    ///
    /// # Errors
    /// Unless the error is `Poisoned`, the record will never be replayed.
    fn append(&self, record: &[u8], synced: bool) -> Result<Ticket, LogError>;

    /// [`append`](TicketLog::append) without blocking a thread, where the log can.
    fn append_soon<'l>(&'l self, record: &'l [u8], options: WriteOptions) -> LogFuture<'l, Ticket> {
        Box::pin(async move { self.append(record, options.synced) })
    }

    /// Voids an acknowledged record, durably: it will never be replayed.
    fn void(&self, ticket: Ticket) -> Result<(), LogError>;

    /// [`void`](TicketLog::void) without blocking a thread, where the log can.
    fn void_soon(&self, ticket: Ticket) -> LogFuture<'_, ()> {
        Box::pin(async move { self.void(ticket) })
    }

    /// Makes everything acknowledged before the call durable.
    fn sync(&self) -> Result<(), LogError>;

    /// [`sync`](TicketLog::sync) without blocking a thread, where the log can.
    fn sync_soon(&self) -> LogFuture<'_, ()> {
        Box::pin(async move { self.sync() })
    }

    /// Notes that no record below a ticket is needed any more. A crash may lose the note.
    fn retire(&self, below: Ticket) -> Result<(), LogError>;

    /// A ticket above every one given so far.
    fn next_ticket(&self) -> Ticket;

    /// Why the log takes no records, if it does not.
    fn failure(&self) -> Option<LogError>;

    /// Visits the records that the log held when it was opened, in the order of tickets. Called before the first append.
    fn replay(&self, visit: &mut VisitRecord<'_>) -> Result<(), LogError>;

    /// Takes no more records, and makes durable what was retired: an opening of the log finds no record below.
    fn seal(&self) -> Result<(), LogError>;

    /// Removes the log, durably. For a log that is sealed, and in which every record is retired.
    fn remove(&self) -> Result<(), LogError>;
}
