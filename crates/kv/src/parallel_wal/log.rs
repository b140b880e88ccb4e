//! What the engine needs of a log.

use std::pin::Pin;

use super::error::LogError;

/// The place of a record in the log. Tickets go up; some are never used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Called with each record of a replay; an error ends it.
pub type VisitRecord<'v> = dyn FnMut(Ticket, &[u8]) -> Result<(), LogError> + 'v;

/// A log's operation on its way.
pub type LogFuture<'l, T> = Pin<Box<dyn Future<Output = Result<T, LogError>> + Send + 'l>>;

/// A log of records with tickets, which any number of threads append to at once.
pub trait TicketLog: Send + Sync {
    /// Appends a record. On return it survives a kill of the process; with `synced` a power cut too, with everything
    /// that was acknowledged before. A power cut takes no record without those that were submitted after its
    /// acknowledgement.
    ///
    /// # Errors
    /// Unless the error is `Poisoned`, the record will never be replayed.
    fn append(&self, record: &[u8], synced: bool) -> Result<Ticket, LogError>;

    /// The same without blocking a thread, where the log can. The record is what `writers` have.
    fn append_soon<'l>(&'l self, record: &'l [u8], synced: bool, _writers: usize) -> LogFuture<'l, Ticket> {
        Box::pin(async move { self.append(record, synced) })
    }

    /// Whether a record would go at once, rather than wait for those on their way.
    fn goes_at_once(&self) -> bool {
        true
    }

    /// Takes an acknowledged record back, durably.
    fn void(&self, ticket: Ticket) -> Result<(), LogError>;

    /// The same without blocking a thread, where the log can.
    fn void_soon(&self, ticket: Ticket) -> LogFuture<'_, ()> {
        Box::pin(async move { self.void(ticket) })
    }

    /// Makes everything acknowledged before the call durable.
    fn sync(&self) -> Result<(), LogError>;

    /// The same without blocking a thread, where the log can.
    fn sync_soon(&self) -> LogFuture<'_, ()> {
        Box::pin(async move { self.sync() })
    }

    /// Nothing below is needed any more. A crash may lose the mark.
    fn retire(&self, below: Ticket) -> Result<(), LogError>;

    /// Above every ticket that was given so far.
    fn next_ticket(&self) -> Ticket;

    /// Why the log takes no records, if it does not.
    fn failure(&self) -> Option<LogError>;

    /// Visits what the log held when it was opened, in the order of tickets. Called before the first append.
    fn replay(&self, visit: &mut VisitRecord<'_>) -> Result<(), LogError>;

    /// Takes no records any more, and makes durable what was retired: an opening of the log finds nothing below.
    fn seal(&self) -> Result<(), LogError>;

    /// Ends the log, durably: afterwards there is none. For a log that is sealed, and in which everything is retired.
    fn remove(&self) -> Result<(), LogError>;
}
