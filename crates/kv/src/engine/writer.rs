//! A writer: runs groups of pipelines, and has their batches on their way side by side.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};

use super::schedule::{Group, Held};
use super::{Durability, Inner};
use crate::command::client_text;
use crate::{Error, ErrorKind, Overlay, Refusal, Result, Txn, Work, Writing};

/// A batch is written when it has about this much, though more pipelines could go with it.
const GROUP_BYTES: usize = 4 << 20;

/// A group that was run.
struct Run<'a> {
    works: Vec<Box<dyn Work>>,
    held: Held,
    /// Nothing where the pipelines changed nothing, or there are none.
    writing: Option<Writing<'a>>,
    keys: usize,
    bytes: usize,
    now_ms: u64,
    refusal: Option<Refusal>,
}

/// A group whose outcome is known.
struct Landed {
    works: Vec<Box<dyn Work>>,
    held: Held,
}

/// However a writer ends, what waits is dropped rather than left to wait for ever.
struct Closing<'a>(&'a Inner);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let left = state.schedule.drain();
        drop(state);
        drop(left);
    }
}

impl Inner {
    pub(super) async fn write_until_closed(&self, me: usize) {
        let _closing = Closing(self);
        let mut overlay = Overlay::default();
        let mut flying = FuturesUnordered::new();
        let mut over = Vec::new();
        loop {
            let (group, wake) = {
                let mut state = self.state.lock();
                let group = if self.is_worth_a_look(&state.schedule) { state.schedule.take() } else { None };
                // There is more than this writer can do at once.
                let more = group.is_some() && self.is_worth_a_look(&state.schedule);
                (group, if more { state.idle.take_one() } else { None })
            };
            if let Some(waker) = wake {
                waker.wake();
            }
            let took = group.is_some();
            if let Some(group) = group {
                flying.push(self.land(self.run_group(group, &mut overlay)));
            }
            // Also starts what was just added.
            let goes_on = poll_fn(|cx| {
                while let Poll::Ready(Some(landed)) = flying.poll_next_unpin(cx) {
                    let Landed { works, held } = landed;
                    self.state.lock().schedule.release(&held);
                    over.extend(works);
                }
                let mut state = self.state.lock();
                if took || !over.is_empty() || self.is_worth_a_look(&state.schedule) {
                    return Poll::Ready(true);
                }
                if state.closed && state.schedule.is_idle() {
                    return Poll::Ready(false);
                }
                state.idle.set(me, cx.waker());
                Poll::Pending
            })
            .await;
            self.state.lock().idle.clear(me);
            over.drain(..).for_each(Work::done);
            if !goes_on {
                // The others, if they wait for this.
                self.state.lock().idle.wake_all();
                return;
            }
        }
    }

    /// Runs a group over what is stored, and begins to write what it decided.
    fn run_group(&self, mut group: Group, overlay: &mut Overlay) -> Run<'_> {
        let now_ms = self.driver.unix_millis();
        let refusal = self.refusal(now_ms);
        overlay.reset();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            let mut done = 0;
            while overlay.byte_size() < GROUP_BYTES
                && let Some((work, _claims)) = group.member(done)
            {
                let mut txn = self.writing(overlay, now_ms, refusal.clone());
                #[cfg(debug_assertions)]
                txn.claim(_claims.clone());
                work.run(&mut txn);
                done += 1;
            }
            done
        }));
        match ran {
            Ok(done) if done < group.works.len() => self.state.lock().schedule.put_back(&mut group, done),
            Ok(_) => {}
            Err(_) => {
                // The works of this group are gone and their clients disconnected; nothing of it is written.
                self.fail_by_panic();
                group.works.clear();
                overlay.reset();
            }
        }
        let pipelines = group.works.len();
        let begin = || {
            self.room.lock().writes(overlay.byte_size());
            self.store.write(overlay, self.is_synced(), pipelines)
        };
        let begun = catch_unwind(AssertUnwindSafe(|| (!overlay.is_empty()).then(begin)));
        let writing = begun.unwrap_or_else(|_| {
            self.fail_by_panic();
            group.works.clear();
            None
        });
        let (works, held) = group.split();
        Run { works, held, writing, keys: overlay.len(), bytes: overlay.byte_size(), now_ms, refusal }
    }

    /// Waits until a group's batch is written, or its pipelines know that it is not.
    async fn land(&self, run: Run<'_>) -> Landed {
        let Run { mut works, held, writing, keys, bytes, now_ms, refusal } = run;
        let landing = async {
            let count = works.len() as u64;
            let outcome = match writing {
                Some(writing) => writing.await.map(|()| self.written(keys, bytes)),
                None => Ok(()),
            };
            match outcome {
                Ok(()) => {
                    self.counters.pipelines.fetch_add(count, Ordering::Relaxed);
                }
                Err(error) => {
                    for work in &mut works {
                        self.run_alone(&mut **work, now_ms, &refusal, &error).await;
                    }
                }
            }
        };
        if AssertUnwindSafe(landing).catch_unwind().await.is_err() {
            self.fail_by_panic();
            works.clear();
        }
        Landed { works, held }
    }

    /// After the group's write failed: each on its own, so that one that fits or frees room still succeeds, and
    /// at last with its writes refused.
    async fn run_alone(
        &self,
        work: &mut dyn Work,
        now_ms: u64,
        refusal: &Option<Refusal>,
        group_error: &Error,
    ) {
        let mut overlay = Overlay::default();
        let mut error = None;
        if matches!(group_error.kind(), ErrorKind::NoSpace | ErrorKind::Retry) {
            work.run(&mut self.writing(&mut overlay, now_ms, refusal.clone()));
            match self.commit(&overlay).await {
                Ok(()) => {
                    self.counters.pipelines.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(e) => error = Some(e),
            }
        }
        let error = error.as_ref().unwrap_or(group_error);
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        let text: Arc<str> = client_text(error).into();
        if !matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Retry) {
            self.fail(error);
        }
        overlay.reset();
        let refused = Some(Refusal { text, growth_only: false });
        work.run(&mut self.writing(&mut overlay, now_ms, refused));
    }

    async fn commit(&self, overlay: &Overlay) -> Result<()> {
        if overlay.is_empty() {
            return Ok(());
        }
        self.store.write(overlay, self.is_synced(), 1).await?;
        self.written(overlay.len(), overlay.byte_size());
        Ok(())
    }

    fn written(&self, keys: usize, bytes: usize) {
        if !self.is_synced() {
            self.unsynced.store(true, Ordering::Release);
        }
        let c = &self.counters;
        c.groups.fetch_add(1, Ordering::Relaxed);
        c.keys_written.fetch_add(keys as u64, Ordering::Relaxed);
        c.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn is_synced(&self) -> bool {
        self.options.durability == Durability::Sync
    }

    fn writing<'a>(&'a self, overlay: &'a mut Overlay, now_ms: u64, refusal: Option<Refusal>) -> Txn<'a> {
        Txn::writing(&*self.store, overlay, &self.txns, now_ms, refusal)
    }

    fn refusal(&self, now_ms: u64) -> Option<Refusal> {
        if let Some(refusal) = &*self.failed.lock() {
            return Some(refusal.clone());
        }
        self.room.lock().look(&*self.store, now_ms)
    }

    fn fail_by_panic(&self) {
        let detail = "a command panicked; this is a bug".to_owned();
        self.fail(&Error::Store { doing: "running a group of commands", detail });
    }

    pub(super) fn fail(&self, error: &Error) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            tracing::error!(%error, "the engine takes no writes any more; reads go on; restart the server");
            *failed = Some(Refusal { text: client_text(error).into(), growth_only: false });
        }
    }
}
