//! The engine's writer: runs groups of pipelines, and keeps their batches in flight side by side.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};

use super::handle::Shared;
use super::options::Durability;
use super::schedule::{Group, HeldKeys};
use super::work::Work;
use crate::error::{Error, ErrorKind, Result};
use crate::once::RecordId;
use crate::overlay::Overlay;
use crate::store::{View, Writing};
use crate::txn::{Refusal, Txn};

/// Bytes of a batch at which it is written, though more pipelines could join it.
const GROUP_BYTES: usize = 4 << 20;

/// The task of a writer thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// The writer's index among the engine's writers.
    number: usize,
    /// Whether a write is durable when it is acknowledged.
    synced: bool,
}

/// A group whose pipelines have run.
struct RunGroup<'a> {
    works: Vec<Box<dyn Work>>,
    held: HeldKeys,
    next: Next<'a>,
    keys: usize,
    bytes: usize,
    now_ms: u64,
    refusal: Option<Refusal>,
}

/// The next step of a group whose pipelines have run.
enum Next<'a> {
    /// The group's batch is being written.
    Write(Writing<'a>),
    /// Nothing was changed, and a replicated store confirms what was read.
    Confirm(Writing<'a>),
    /// The replies can be sent: nothing was changed.
    Nothing,
    /// Values of these records were missing: each pipeline runs by itself once they are here.
    Fetch(Vec<RecordId>),
    /// Nothing was run.
    Refuse(Error),
}

/// A group whose write has ended.
struct EndedGroup {
    works: Vec<Ended>,
    held: HeldKeys,
}

/// A pipeline that has ended.
enum Ended {
    Durable(Box<dyn Work>),
    NotLeader(Box<dyn Work>),
}

impl Ended {
    fn tell(self) {
        match self {
            Ended::Durable(work) => work.writes_are_durable(),
            Ended::NotLeader(work) => work.not_leader(),
        }
    }

    /// The end of a pipeline whose write, or whose confirmation, had this outcome. `None`: the pipeline is dropped, so that its client learns no outcome.
    fn of(work: Box<dyn Work>, outcome: Result<()>) -> Option<Ended> {
        match outcome.map_err(|error| error.kind()) {
            Err(ErrorKind::Elsewhere) => Some(Ended::NotLeader(work)),
            Err(ErrorKind::Open) => None,
            Ok(()) | Err(_) => Some(Ended::Durable(work)),
        }
    }
}

/// Drops the waiting pipelines when a writer ends, also by a panic, so that no client waits for ever.
struct DropQueue<'a>(&'a Shared);

impl Drop for DropQueue<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        let left = queue.schedule.drain();
        drop(queue);
        drop(left);
    }
}

impl Writer {
    /// The writer with the index `number`.
    pub fn new(shared: Arc<Shared>, number: usize) -> Writer {
        let synced = shared.options.durability == Durability::Sync;
        Writer { shared, number, synced }
    }

    /// Runs and writes groups until the engine is closed and no pipeline waits.
    pub async fn run(&self) {
        let shared = &*self.shared;
        let _drop_queue = DropQueue(shared);
        let takes_more = || shared.store.takes_more_batches();
        let mut overlay = Overlay::default();
        let mut in_flight = FuturesUnordered::new();
        let mut ended = Vec::new();
        loop {
            let (group, wake) = {
                let mut queue = shared.queue.lock();
                let group = queue.schedule.take(takes_more);
                // If more pipelines may run, another writer takes them.
                let more = group.is_some() && queue.schedule.may_take(takes_more);
                (group, if more { queue.idle.take_one() } else { None })
            };
            if let Some(waker) = wake {
                waker.wake();
            }
            let took = group.is_some();
            if let Some(group) = group {
                in_flight.push(self.finish_group(self.run_group(group, &mut overlay)));
            }
            // The first poll also starts the write that was just added.
            let goes_on = poll_fn(|cx| {
                while let Poll::Ready(Some(group)) = in_flight.poll_next_unpin(cx) {
                    let EndedGroup { works, held } = group;
                    shared.queue.lock().schedule.release(&held);
                    ended.extend(works);
                }
                let mut queue = shared.queue.lock();
                if took || !ended.is_empty() || queue.schedule.may_take(takes_more) {
                    return Poll::Ready(true);
                }
                if queue.closed && queue.schedule.is_idle() {
                    return Poll::Ready(false);
                }
                queue.idle.set(self.number, cx.waker());
                Poll::Pending
            })
            .await;
            shared.queue.lock().idle.clear(self.number);
            ended.drain(..).for_each(Ended::tell);
            if !goes_on {
                // Another writer may be waiting for the end of this group.
                shared.queue.lock().idle.wake_all();
                return;
            }
        }
    }

    /// Runs a group's pipelines over the stored keys, and begins to write their batch.
    fn run_group(&self, mut group: Group, overlay: &mut Overlay) -> RunGroup<'_> {
        let shared = &*self.shared;
        let now_ms = shared.driver.unix_millis();
        let refusal = shared.refusals.lock().refusal(&*shared.store, now_ms);
        overlay.reset();
        let view = match shared.store.view() {
            Ok(view) => view,
            Err(error) => {
                let (works, held) = group.into_pipelines();
                return RunGroup {
                    works,
                    held,
                    next: Next::Refuse(error),
                    keys: 0,
                    bytes: 0,
                    now_ms,
                    refusal,
                };
            }
        };
        let mut missing = Vec::new();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut done = 0;
            while overlay.byte_size() < GROUP_BYTES
                && let Some((work, _claims)) = group.pipeline_at(done)
            {
                overlay.begin_pipeline();
                let mut txn = self.txn(overlay, now_ms, refusal.clone(), view);
                #[cfg(debug_assertions)]
                txn.claim(_claims.clone());
                work.run(&mut txn);
                missing.append(&mut txn.take_missing());
                let expired = txn.take_expired();
                overlay.delete_unwritten(expired);
                done += 1;
            }
            done
        }));
        match ran {
            Ok(done) if done < group.works.len() => {
                shared.queue.lock().schedule.put_back(&mut group, done);
            }
            Ok(_) => {}
            Err(_) => {
                // A command panicked: drop the group's works, which disconnects their clients, and write
                // nothing.
                self.fail_by_panic();
                group.works.clear();
                overlay.reset();
            }
        }
        let (keys, bytes) = (overlay.len(), overlay.byte_size());
        let begin = || {
            if !missing.is_empty() {
                return Next::Fetch(std::mem::take(&mut missing));
            }
            if overlay.is_empty() {
                return shared.store.confirm(view).map_or(Next::Nothing, Next::Confirm);
            }
            shared.refusals.lock().note_batch(bytes);
            Next::Write(shared.store.write(overlay, self.synced, view))
        };
        let begun = catch_unwind(AssertUnwindSafe(begin));
        let next = begun.unwrap_or_else(|_| {
            self.fail_by_panic();
            group.works.clear();
            Next::Nothing
        });
        let (works, held) = group.into_pipelines();
        RunGroup { works, held, next, keys, bytes, now_ms, refusal }
    }

    /// Waits until a group's batch is written. If the write fails, runs and writes each pipeline by itself.
    async fn finish_group(&self, group: RunGroup<'_>) -> EndedGroup {
        let RunGroup { works, held, next, keys, bytes, now_ms, refusal } = group;
        let finishing = async {
            let outcome = match next {
                Next::Write(writing) => writing.await.map(|()| self.count_batch(keys, bytes)),
                Next::Confirm(confirming) => confirming.await,
                Next::Nothing => Ok(()),
                Next::Fetch(missing) => match self.shared.store.fetch(missing).await {
                    Err(error) if error.kind() == ErrorKind::Elsewhere => Err(error),
                    fetched => {
                        let outcome = fetched
                            .and(Err(Error::Missing("values of the group's keys were missing".into())));
                        return self.run_each(works, now_ms, &refusal, outcome).await;
                    }
                },
                Next::Refuse(error) => Err(error),
            };
            self.run_each(works, now_ms, &refusal, outcome).await
        };
        let works = AssertUnwindSafe(finishing).catch_unwind().await.unwrap_or_else(|_| {
            self.fail_by_panic();
            Vec::new()
        });
        EndedGroup { works, held }
    }

    /// Ends the pipelines of a group whose write had an outcome; runs each by itself where the group's write failed.
    async fn run_each(
        &self,
        works: Vec<Box<dyn Work>>,
        now_ms: u64,
        refusal: &Option<Refusal>,
        outcome: Result<()>,
    ) -> Vec<Ended> {
        let mut ended = Vec::with_capacity(works.len());
        for mut work in works {
            let outcome = match &outcome {
                Ok(()) => {
                    self.shared.counters.pipelines.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                }
                Err(error) => match error.kind() {
                    ErrorKind::Elsewhere => Err(Error::NotLeader(error.to_string())),
                    ErrorKind::Open => Err(Error::Open(error.to_string())),
                    _ => self.run_by_itself(&mut *work, now_ms, refusal, error).await,
                },
            };
            ended.extend(Ended::of(work, outcome));
        }
        ended
    }

    /// Runs and writes one pipeline of a group whose write failed, so that a pipeline that fits or frees room
    /// still succeeds. If the pipeline's own write fails too, runs it again with writes refused.
    ///
    /// # Errors
    /// `NotLeader` and `Open`. After another error of the write the pipeline's replies say so.
    async fn run_by_itself(
        &self,
        work: &mut dyn Work,
        now_ms: u64,
        refusal: &Option<Refusal>,
        group_error: &Error,
    ) -> Result<()> {
        let (shared, mut overlay) = (&*self.shared, Overlay::default());
        let mut error = None;
        if matches!(group_error.kind(), ErrorKind::NoSpace | ErrorKind::Retry) {
            match self.run_and_write(work, &mut overlay, (now_ms, refusal)).await {
                Ok(()) => {
                    shared.counters.pipelines.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(e) if matches!(e.kind(), ErrorKind::Elsewhere | ErrorKind::Open) => return Err(e),
                Err(e) => error = Some(e),
            }
        }
        let error = error.as_ref().unwrap_or(group_error);
        shared.counters.failed.fetch_add(1, Ordering::Relaxed);
        let text: Arc<str> = error.to_client().into();
        if !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Retry) {
            shared.refusals.lock().fail(error);
        }
        overlay.reset();
        let refused = Some(Refusal { text, growth_only: false });
        // Writes are refused, and what the pipeline reads counts like any other read.
        let view = shared.store.view()?;
        overlay.begin_pipeline();
        let expired = {
            let mut txn = self.txn(&mut overlay, now_ms, refused, view);
            work.run(&mut txn);
            txn.take_expired()
        };
        overlay.delete_unwritten(expired);
        if !overlay.is_empty()
            && let Err(error) = shared.store.write(&overlay, self.synced, view).await
            && matches!(error.kind(), ErrorKind::Elsewhere | ErrorKind::Open)
        {
            return Err(error);
        }
        match shared.store.confirm(view) {
            Some(confirming) => confirming.await,
            None => Ok(()),
        }
    }

    /// Runs and writes one pipeline, once the values that it reads are here. A value that no replica has makes the reply of its command an error.
    async fn run_and_write(
        &self,
        work: &mut dyn Work,
        overlay: &mut Overlay,
        (now_ms, refusal): (u64, &Option<Refusal>),
    ) -> Result<()> {
        let store = &*self.shared.store;
        loop {
            overlay.reset();
            let view = store.view()?;
            overlay.begin_pipeline();
            let (missing, expired) = {
                let mut txn = self.txn(overlay, now_ms, refusal.clone(), view);
                work.run(&mut txn);
                (txn.take_missing(), txn.take_expired())
            };
            overlay.delete_unwritten(expired);
            if !missing.is_empty() {
                match store.fetch(missing).await {
                    Ok(()) => continue,
                    Err(Error::Missing(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            if !overlay.is_empty() {
                store.write(overlay, self.synced, view).await?;
                self.count_batch(overlay.len(), overlay.byte_size());
            } else if let Some(confirming) = store.confirm(view) {
                confirming.await?;
            }
            return Ok(());
        }
    }

    fn txn<'a>(
        &'a self,
        overlay: &'a mut Overlay,
        now_ms: u64,
        refusal: Option<Refusal>,
        view: View,
    ) -> Txn<'a> {
        Txn::writing(&*self.shared.store, overlay, &self.shared.txns, now_ms, refusal).in_view(view)
    }

    fn count_batch(&self, keys: usize, bytes: usize) {
        if !self.synced {
            self.shared.unsynced.store(true, Ordering::Release);
        }
        let counters = &self.shared.counters;
        counters.groups.fetch_add(1, Ordering::Relaxed);
        counters.keys_written.fetch_add(keys as u64, Ordering::Relaxed);
        counters.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn fail_by_panic(&self) {
        let detail = "a command panicked; this is a bug".to_owned();
        self.shared.refusals.lock().fail(&Error::Store { doing: "running a group of commands", detail });
    }
}
