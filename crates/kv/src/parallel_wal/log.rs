//! The interface of the log below the parallel WAL.

use std::pin::Pin;

use fs::Ticket;

use super::error::LogError;
use super::options::WriteOptions;

/// Called with each record of a log's replay; an error ends the replay.
pub type VisitRecord<'v> = dyn FnMut(Ticket, &[u8]) -> Result<(), LogError> + 'v;

/// The future of an operation of the log.
pub type LogFuture<'l, T> = Pin<Box<dyn Future<Output = Result<T, LogError>> + Send + 'l>>;

/// A log of records with tickets, which any number of threads append to at once.
pub trait TicketLog: Send + Sync {
    /// Appends a record. On return the record survives a kill of the process. With `synced` it and every record
    /// acknowledged earlier also survive a power cut. If record A was acknowledged before record B was submitted, a
    /// power cut that loses A also loses B.
    ///
    /// # Errors
    /// After any error but `Poisoned`, the record will never be replayed.
    fn append(&self, record: &[u8], synced: bool) -> Result<Ticket, LogError>;

    /// Like [`append`](TicketLog::append), but blocks no thread if the log can avoid it.
    fn append_soon<'l>(&'l self, record: &'l [u8], options: WriteOptions) -> LogFuture<'l, Ticket> {
        Box::pin(async move { self.append(record, options.synced) })
    }

    /// Voids an acknowledged record, durably: the record will never be replayed.
    fn void(&self, ticket: Ticket) -> Result<(), LogError>;

    /// Like [`void`](TicketLog::void), but blocks no thread if the log can avoid it.
    fn void_soon(&self, ticket: Ticket) -> LogFuture<'_, ()> {
        Box::pin(async move { self.void(ticket) })
    }

    /// Makes every record durable that was acknowledged before the call.
    fn sync(&self) -> Result<(), LogError>;

    /// Like [`sync`](TicketLog::sync), but blocks no thread if the log can avoid it.
    fn sync_soon(&self) -> LogFuture<'_, ()> {
        Box::pin(async move { self.sync() })
    }

    /// Retires the records below a ticket. A crash may undo the retirement.
    fn retire(&self, below: Ticket) -> Result<(), LogError>;

    /// A ticket above every ticket that the log has assigned.
    fn next_ticket(&self) -> Ticket;

    /// Why the log takes no more records; `None` while it takes them.
    fn failure(&self) -> Option<LogError>;

    /// Visits the records that the log held when it was opened, in the order of their tickets. Called before the first
    /// append.
    fn replay(&self, visit: &mut VisitRecord<'_>) -> Result<(), LogError>;

    /// Ends the log: it takes no more records, and retirements are durable, so that the next opening finds no retired
    /// record.
    fn seal(&self) -> Result<(), LogError>;

    /// Removes the log, durably. The log is sealed, and every record in it is retired.
    fn remove(&self) -> Result<(), LogError>;
}
