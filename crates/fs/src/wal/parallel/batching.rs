//! Appends under [`Batching::Auto`](crate::wal::parallel::options::Batching::Auto): a record is written alone
//! or in a batch, as the joiner decides.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use units::BoxFuture;
use units::sync::step_back;

use crate::error::{Error, ErrorKind, Result};
use crate::wal::parallel::append::{Appender, EntryRecords};
use crate::wal::parallel::joiner::{Batch, Joiner, RecordWay};
use crate::wal::parallel::payload::payload_len;

#[derive(Debug)]
pub(super) struct Batcher {
    joiner: Arc<Joiner>,
    appender: Arc<Appender>,
}

impl Batcher {
    pub(super) fn new(joiner: Arc<Joiner>, appender: Arc<Appender>) -> Arc<Batcher> {
        Arc::new(Batcher { joiner, appender })
    }

    /// True if a record would be submitted to the device now.
    pub(super) fn goes_at_once(&self) -> bool {
        self.joiner.goes_at_once()
    }

    /// Appends a record alone or in a batch; returns its ticket. `writers`: how many callers' records
    /// `record` combines.
    pub(super) async fn append(self: &Arc<Batcher>, record: &[u8], writers: usize) -> Result<u64> {
        self.appender.health.check_usable()?;
        let len = payload_len(std::iter::once(record.len()));
        if writers > 1 {
            self.appender.striping.widen();
        }
        // The length is checked before the record is copied.
        self.appender.check_length(len)?;
        match self.joiner.way(record, len, writers) {
            RecordWay::Alone(slot) => self.appender.append(EntryRecords::Record(record), Some(slot)).await.0,
            RecordWay::Follows(batch, place) => batch.wait().await.map(|first| first + u64::from(place)),
            RecordWay::Leads(batch) => {
                let (me, mine) = (Arc::clone(self), Arc::clone(&batch));
                Leads { batcher: self, rest: Some(Box::pin(async move { me.lead(&mine).await })) }.await;
                batch.wait().await
            }
        }
    }

    /// Waits for the batch's turn, appends its records, and gives the result to the records' writers.
    async fn lead(&self, batch: &Arc<Batch>) {
        let mut leading = BatchResultGuard { batcher: self, batch, ended: false };
        let (records, slot) = loop {
            let seen = batch.turn.version();
            if self.joiner.is_next(batch) {
                step_back().await;
                if let Some(going) = self.joiner.take(batch, || self.appender.striping.widen()) {
                    break going;
                }
            } else {
                batch.turn.changed_since(seen).await;
            }
        };
        let (result, slot) = self.appender.append(EntryRecords::Joined(records), Some(slot)).await;
        // The batch's writers are woken before its slot is released: they append again first, and join the
        // next batch.
        leading.end(result);
        drop(slot);
    }
}

/// Gives the writers of a batch their result, even if the leader panics.
struct BatchResultGuard<'a> {
    batcher: &'a Batcher,
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
        let error = self.batcher.appender.health.poison(error);
        self.batcher.joiner.remove(self.batch);
        self.end(Err(error));
    }
}

/// The future of a batch's leader. If it is dropped before its end it continues as a background task, because
/// other writers wait for the batch.
struct Leads<'a> {
    batcher: &'a Batcher,
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
            self.batcher.appender.dev.driver().drive(rest);
        }
    }
}
