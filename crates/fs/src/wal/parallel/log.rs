//! The public type of the parallel log. Appends a record alone or in a batch, as the joiner decides.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use units::BoxFuture;
use units::sync::step_back;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::parallel::append::{Appender, EntryRecords};
use crate::wal::parallel::close::close;
use crate::wal::parallel::joiner::{Batch, Joiner, RecordWay};
use crate::wal::parallel::parts::Parts;
use crate::wal::parallel::payload::payload_len;
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
        let ticket = match &self.parts.joiner {
            Some(joiner) => self.append_joined(joiner, record, writers.max(1)).await?,
            None => self.parts.appender.append(EntryRecords::Record(record), None).await.0?,
        };
        if sync {
            self.parts.durability.make_durable().await?;
        }
        Ok(Ticket(ticket))
    }

    /// Appends a record alone or in a batch; returns its ticket. `writers`: how many callers' records
    /// `record` combines.
    async fn append_joined(&self, joiner: &Arc<Joiner>, record: &[u8], writers: usize) -> Result<u64> {
        let appender = &self.parts.appender;
        appender.health.check_usable()?;
        let len = payload_len(std::iter::once(record.len()));
        if writers > 1 {
            appender.striping.widen();
        }
        // The length is checked before the record is copied.
        appender.check_length(len)?;
        match joiner.way(record, len, writers) {
            RecordWay::Alone(slot) => appender.append(EntryRecords::Record(record), Some(slot)).await.0,
            RecordWay::Follows(batch, place) => batch.wait().await.map(|first| first + u64::from(place)),
            RecordWay::Leads(batch) => {
                let leading = lead(Arc::clone(joiner), Arc::clone(appender), Arc::clone(&batch));
                Leads { appender, rest: Some(Box::pin(leading)) }.await;
                batch.wait().await
            }
        }
    }

    /// True if a record would be submitted at once. If false, the window is full, and a caller that serves
    /// many writers can combine their data in one record meanwhile. Always true under
    /// [`Batching::Each`](crate::Batching::Each).
    pub fn goes_at_once(&self) -> bool {
        self.parts.joiner.as_ref().is_none_or(|joiner| joiner.goes_at_once())
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

/// Waits for the batch's turn, appends its records, and gives the result to the records' writers.
async fn lead(joiner: Arc<Joiner>, appender: Arc<Appender>, batch: Arc<Batch>) {
    let mut guard = BatchResultGuard { joiner: &joiner, appender: &appender, batch: &batch, ended: false };
    let (records, slot) = loop {
        let seen = batch.turn.version();
        if joiner.is_next(&batch) {
            step_back().await;
            if let Some(going) = joiner.take(&batch, || appender.striping.widen()) {
                break going;
            }
        } else {
            batch.turn.changed_since(seen).await;
        }
    };
    let (result, slot) = appender.append(EntryRecords::Joined(records), Some(slot)).await;
    // The batch's writers are woken before its slot is released: they append again first, and join the
    // next batch.
    guard.end(result);
    drop(slot);
}

/// Gives the writers of a batch their result, even if the leader panics.
struct BatchResultGuard<'a> {
    joiner: &'a Joiner,
    appender: &'a Appender,
    batch: &'a Arc<Batch>,
    ended: bool,
}

impl BatchResultGuard<'_> {
    fn end(&mut self, result: Result<u64>) {
        self.ended = true;
        self.batch.set(result);
    }
}

impl Drop for BatchResultGuard<'_> {
    /// The batch's leader panicked: whether the records are on the device is unknown.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let why = "the task that wrote the records of several panicked: close the log and open it again, which decides";
        let error = Error::new(ErrorKind::Poisoned, "appending to a parallel log").because(why);
        let error = self.appender.health.poison(error);
        self.joiner.remove(self.batch);
        self.end(Err(error));
    }
}

/// The future of a batch's leader. If it is dropped before its end it continues as a background task, because
/// other writers wait for the batch.
struct Leads<'a> {
    appender: &'a Appender,
    rest: Option<BoxFuture>,
}

impl Future for Leads<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A leader's future that panics in `poll` is not kept: it cannot continue.
        let Some(mut rest) = self.rest.take() else { return Poll::Ready(()) };
        let poll = rest.as_mut().poll(cx);
        if poll.is_pending() {
            self.rest = Some(rest);
        }
        poll
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.appender.dev.driver().drive(rest);
        }
    }
}
