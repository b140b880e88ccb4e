//! The public type of the parallel log.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::parallel::append::EntryRecords;
use crate::wal::parallel::close::close;
use crate::wal::parallel::parts::Parts;
use crate::wal::parallel::ticket::Ticket;
use crate::wal::stats::LogStats;

/// The writer of a parallel log. Any number of threads may call it at once; share it in an [`Arc`].
///
/// Dropping the writer closes the log in the background.
pub struct ParallelLog {
    parts: Arc<Parts>,
}

impl ParallelLog {
    pub(super) fn new(parts: Arc<Parts>) -> ParallelLog {
        ParallelLog { parts }
    }

    /// Appends a record, and gives its ticket. With `sync`, the record and everything that was acknowledged before it is
    /// safe from a power cut on return; without, the record survives a kill of the process.
    ///
    /// If unsynced record A was acknowledged before record B was submitted, a power cut that loses A also loses B. Once the
    /// record is submitted to the device, dropping the future changes nothing.
    ///
    /// # Errors `NoSpace` and `Busy`: nothing was written, and the call can be repeated. `TooLarge`: the
    /// record is longer than 2 GiB, or needs more parts than an entry may have. A device's error: a void
    /// entry of the ticket is durable, so the record will never be replayed; the log goes on. `Poisoned`: the
    /// void entry failed too, or a flush did; the next opening of the log decides what became of the record.
    pub async fn append(&self, record: &[u8], sync: bool) -> Result<Ticket> {
        self.append_for(record, sync, 1).await
    }

    /// [`append`](ParallelLog::append) of one record that combines the data of `writers` callers: under
    /// [`Batching::Auto`](crate::Batching::Auto) the log does not wait for more records to join it.
    pub async fn append_for(&self, record: &[u8], sync: bool, writers: usize) -> Result<Ticket> {
        let ticket = match &self.parts.batcher {
            Some(batcher) => batcher.append(record, writers.max(1)).await?,
            None => self.parts.appender.append(EntryRecords::Record(record), None).await.0?,
        };
        if sync {
            self.parts.durability.make_durable().await?;
        }
        Ok(Ticket(ticket))
    }

    /// True if a record would be submitted at once. If false, the window is full, and a caller that serves
    /// many writers can combine their data in one record meanwhile. Always true under
    /// [`Batching::Each`](crate::Batching::Each).
    pub fn goes_at_once(&self) -> bool {
        self.parts.batcher.as_ref().is_none_or(|batcher| batcher.goes_at_once())
    }

    /// Voids an acknowledged record, durably: for a writer that could not apply the record.
    ///
    /// # Errors
    /// `NoSpace` and `Busy`: there is no room for the void entry yet. The entry is written as soon as there is room, before any
    /// record; until then a recovery may replay the voided record. A device's error poisons the log. `Invalid`: the ticket is
    /// not of this opening of the log; the records of earlier openings were decided when they were replayed.
    pub async fn void(&self, ticket: Ticket) -> Result<()> {
        let order = &self.parts.order;
        let (first, next) = (order.first, order.next());
        if !(first..next).contains(&ticket.0) {
            let why = format!(
                "ticket {} is not among {first} to {next}, which this opening of the log has given",
                ticket.0
            );
            return Err(Error::new(ErrorKind::Invalid, "taking a record back").because(why));
        }
        self.parts.health.check_usable()?;
        self.parts.voids.request(ticket.0, 1, false).wait().await
    }

    /// Makes every record acknowledged before the call safe from a power cut.
    pub async fn sync(&self) -> Result<()> {
        self.parts.durability.make_durable().await
    }

    /// Retires all tickets below `below`, whose records are durable elsewhere, and frees the zones that have only retired
    /// tickets. The mark never falls; a crash may lose the newest mark, which makes the next replay longer.
    pub fn retire(&self, below: Ticket) -> Result<()> {
        if self.parts.segments.retire(below.0)? {
            self.parts.maintenance.room_was_freed();
        }
        Ok(())
    }

    /// The ticket that comes next: every record in the log has a lower one.
    pub fn next_ticket(&self) -> Ticket {
        Ticket(self.parts.order.next())
    }

    /// The lowest open ticket of the log: every record with a lower ticket is acknowledged.
    pub fn acknowledged(&self) -> Ticket {
        Ticket(self.parts.order.low())
    }

    /// The error that poisoned the log, if any.
    pub fn failed(&self) -> Option<Error> {
        self.parts.health.error()
    }

    /// Counts of the log's operations since it was opened.
    pub fn stats(&self) -> LogStats {
        self.parts.counters.stats(self.parts.replacement.stripe.zones())
    }

    /// Closes the log: refuses further records, waits for all operations in flight, and gives the zones back.
    /// Segments whose records are all retired are freed; the next opening replays the records of the others.
    /// Does not flush the device: [`sync`](ParallelLog::sync) makes records safe from a power cut.
    pub async fn close(&self) -> Result<()> {
        close(&self.parts).await
    }
}

impl Drop for ParallelLog {
    fn drop(&mut self) {
        if self.parts.settled.load(Ordering::Acquire) {
            return;
        }
        let parts = Arc::clone(&self.parts);
        self.parts.appender.dev.driver().drive(Box::pin(async move {
            if let Err(error) = close(&parts).await {
                tracing::warn!(%error, "closing a parallel log whose writer was dropped failed");
            }
        }));
    }
}

impl fmt::Debug for ParallelLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers = &self.parts.appender.headers;
        let next = self.parts.order.next();
        write!(f, "parallel log {}, epoch {}, next ticket {next}", headers.log, headers.epoch)
    }
}
