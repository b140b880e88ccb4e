//! The parallel log as its users see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::parallel::inner::{Inner, ParallelStats};
use crate::wal::parallel::submit::Body;
use crate::wal::parallel::ticket::Ticket;

/// The writer of a parallel log. Any number of threads may call it at once; share it in an [`Arc`].
///
/// Dropping it closes the log in the background.
pub struct ParallelLog {
    inner: Arc<Inner>,
}

impl ParallelLog {
    pub(super) fn new(inner: Arc<Inner>) -> ParallelLog {
        ParallelLog { inner }
    }

    /// Appends a record, and gives its ticket. With `sync`, the record and everything that was acknowledged before it is
    /// safe from a power cut on return; without, the record survives a kill of the process.
    ///
    /// Of unsynced records, a power cut leaves none whose predecessors it took: all that were acknowledged before one was
    /// submitted survive with it. Once the record is handed to the device, dropping the future changes nothing.
    ///
    /// # Errors
    /// `NoSpace` and `Busy`: nothing was written, and it can be tried again. `TooLarge`: longer than 2 GiB, or more parts
    /// than an entry has. A device's error: a void of the ticket is durable, so the record will never be replayed; the log
    /// goes on. `Poisoned`: that failed too, or a flush did; what became of the record is seen when the log is opened again.
    pub async fn append(&self, record: &[u8], sync: bool) -> Result<Ticket> {
        self.append_for(record, sync, 1).await
    }

    /// [`append`](ParallelLog::append) of what `writers` have, which their owner has put together: a log that joins records
    /// does not wait for more, and counts so many. It is one record all the same.
    pub async fn append_for(&self, record: &[u8], sync: bool, writers: usize) -> Result<Ticket> {
        let ticket = match self.inner.join {
            true => self.inner.append_auto(record, writers.max(1)).await?,
            false => self.inner.append(Body::Record(record), None).await.0?,
        };
        if sync {
            self.inner.make_durable().await?;
        }
        Ok(Ticket(ticket))
    }

    /// Whether a record would go to the drive at once; otherwise as many operations are in flight as pay, and it would wait.
    /// An owner of many writers puts together what comes until then. Without `join` it is always so.
    pub fn goes_at_once(&self) -> bool {
        !self.inner.join || self.inner.goes_at_once()
    }

    /// Takes an acknowledged record back, durably: for a writer that could not apply what the log has.
    ///
    /// # Errors
    /// `NoSpace` and `Busy`: there is no room for the void yet, and until there is the record may come back in a recovery; it is
    /// written as soon as there is, and nothing else is written before it. A device's error poisons
    /// the log. `Invalid`: this opening of the log did not give the ticket; what an earlier one left was decided when it was replayed.
    pub async fn void(&self, ticket: Ticket) -> Result<()> {
        let (first, next) = (self.inner.first, self.inner.tickets.next());
        if !(first..next).contains(&ticket.0) {
            let why = format!(
                "ticket {} is not among {first} to {next}, which this opening of the log has given",
                ticket.0
            );
            return Err(Error::new(ErrorKind::Invalid, "taking a record back").because(why));
        }
        self.inner.check_usable()?;
        self.inner.void(ticket.0, 1, false).wait().await
    }

    /// Makes everything acknowledged before the call safe from a power cut.
    pub async fn sync(&self) -> Result<()> {
        self.inner.make_durable().await
    }

    /// Says that no ticket below is needed any more: what is in it is durable elsewhere. Zones come free by that when the log
    /// has left them. Marks only go up; one may be lost in a crash, which costs a longer replay.
    pub fn retire(&self, below: Ticket) -> Result<()> {
        self.inner.retire(below.0)
    }

    /// The ticket that comes next: everything in the log is below.
    pub fn next_ticket(&self) -> Ticket {
        Ticket(self.inner.tickets.next())
    }

    /// Every ticket below is acknowledged.
    pub fn acknowledged(&self) -> Ticket {
        Ticket(self.inner.tickets.low())
    }

    /// Why the log takes no more records, if it does not.
    pub fn failed(&self) -> Option<Error> {
        self.inner.failed.lock().clone()
    }

    /// What was done so far.
    pub fn stats(&self) -> ParallelStats {
        ParallelStats { zones: self.inner.spread.zones() as u64, ..self.inner.counters.stats() }
    }

    /// Refuses further records, waits for all that is in flight, and lets go of the zones. What is retired is given up; the
    /// rest is there when the log is opened again. Nothing is promised of a power cut: `sync` before it, if need be.
    pub async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

impl Drop for ParallelLog {
    fn drop(&mut self) {
        if self.inner.settled.load(Ordering::Acquire) {
            return;
        }
        let inner = Arc::clone(&self.inner);
        self.inner.driver().drive(Box::pin(async move {
            if let Err(error) = inner.close().await {
                tracing::warn!(%error, "closing a parallel log whose writer was dropped failed");
            }
        }));
    }
}

impl fmt::Debug for ParallelLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ino, epoch) = (self.inner.identity.log, self.inner.identity.epoch);
        write!(f, "parallel log {ino}, epoch {epoch}, next ticket {}", self.inner.tickets.next())
    }
}
