//! The state that the engine's writers and background tasks share.

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, Spawned};

use super::claims::Claims;
use super::options::{Durability, EngineOptions};
use super::room::RoomWatch;
use super::schedule::{Schedule, WaitingPipeline};
use super::stats::{Counters, Keyspace};
use super::work::Work;
use crate::error::{Error, Result};
use crate::overlay::Overlay;
use crate::store::Store;
use crate::txn::{Refusal, Txn, TxnShared};

/// Largest number of pipelines that wait for a writer.
const QUEUE_LIMIT: usize = 16_384;

/// How often a sleeping background task checks whether the engine is closed.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The state of an engine, shared by its handle, writers and background tasks.
pub(super) struct Shared {
    pub store: Arc<dyn Store>,
    pub driver: Arc<dyn Driver>,
    pub options: EngineOptions,
    pub txns: TxnShared,
    /// Hashes keys to the stripes of claims.
    hash: RandomState,
    pub queue: Mutex<Queue>,
    pub room: Mutex<RoomWatch>,
    /// Why the engine takes no more writes; `None` while it takes them.
    failed: Mutex<Option<Refusal>>,
    /// Whether some acknowledged writes are not covered by a sync.
    pub unsynced: AtomicBool,
    pub counters: Counters,
    /// The last count of all keys, and when it was made (milliseconds since 1970).
    pub counted: Mutex<Option<(Keyspace, u64)>>,
    pub tasks: Mutex<Vec<Spawned<()>>>,
}

/// The waiting pipelines, and the sleeping writers.
pub(super) struct Queue {
    pub schedule: Schedule,
    pub idle: IdleWriters,
    pub closed: bool,
}

/// The wakers of the writers that have no pipeline to run; their batches may be in flight.
#[derive(Default)]
pub(super) struct IdleWriters(Vec<Option<Waker>>);

impl IdleWriters {
    /// Notes that `writer` sleeps.
    pub fn set(&mut self, writer: usize, waker: &Waker) {
        if let Some(slot) = self.0.get_mut(writer) {
            *slot = Some(waker.clone());
        }
    }

    /// Notes that `writer` is awake.
    pub fn clear(&mut self, writer: usize) {
        if let Some(slot) = self.0.get_mut(writer) {
            *slot = None;
        }
    }

    /// Takes the waker of the first sleeping writer. It is always the first, so that a light load keeps one
    /// writer busy.
    pub fn take_one(&mut self) -> Option<Waker> {
        self.0.iter_mut().find_map(Option::take)
    }

    /// Wakes every sleeping writer.
    pub fn wake_all(&mut self) {
        self.0.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

impl Shared {
    /// The state of an engine with `writers` writers.
    pub fn new(
        store: Arc<dyn Store>,
        driver: Arc<dyn Driver>,
        options: EngineOptions,
        writers: usize,
    ) -> Shared {
        let schedule = Schedule::new(store.wal());
        Shared {
            store,
            driver,
            options,
            txns: TxnShared { limits: options.limits, ..TxnShared::default() },
            hash: RandomState::new(),
            queue: Mutex::new(Queue { schedule, idle: IdleWriters(vec![None; writers]), closed: false }),
            room: Mutex::default(),
            failed: Mutex::new(None),
            unsynced: AtomicBool::new(false),
            counters: Counters::default(),
            counted: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    /// A transaction that reads the stored keys.
    pub fn reading(&self) -> Txn<'_> {
        Txn::reading(&*self.store, &self.txns, self.driver.unix_millis())
    }

    /// A transaction whose writes go to `overlay`.
    pub fn writing<'a>(&'a self, overlay: &'a mut Overlay, now_ms: u64, refusal: Option<Refusal>) -> Txn<'a> {
        Txn::writing(&*self.store, overlay, &self.txns, now_ms, refusal)
    }

    /// Whether the engine takes no more pipelines.
    pub fn is_closed(&self) -> bool {
        self.queue.lock().closed
    }

    /// Whether a write is durable when it is acknowledged.
    pub fn is_synced(&self) -> bool {
        self.options.durability == Durability::Sync
    }

    /// Sleeps for `how_long`, or until the engine is closed. Gives false if the engine is closed.
    pub async fn pause(&self, how_long: Duration) -> bool {
        let until = self.driver.now().after(how_long);
        while self.driver.now() < until && !self.is_closed() {
            let next = self.driver.now().after(CLOSE_CHECK_INTERVAL).min(until);
            units::sleep_until(&*self.driver, next).await;
        }
        !self.is_closed()
    }

    /// Queues a pipeline.
    ///
    /// # Errors
    /// `Closed` or `Busy`, with the pipeline given back.
    pub fn submit(&self, work: Box<dyn Work>) -> Result<(), (Error, Box<dyn Work>)> {
        let mut claims = Claims::new(&self.hash);
        work.claims(&mut claims);
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err((Error::Closed, work));
        }
        let waiting = queue.schedule.len();
        if waiting >= QUEUE_LIMIT {
            return Err((Error::Busy(waiting), work));
        }
        queue.schedule.push(WaitingPipeline { work, claims });
        let wake = if self.may_take(&queue.schedule) { queue.idle.take_one() } else { None };
        drop(queue);
        if let Some(waker) = wake {
            waker.wake();
        }
        Ok(())
    }

    /// Whether the schedule may give a group, and the store takes one more batch in flight.
    pub fn may_take(&self, schedule: &Schedule) -> bool {
        // A batch that lands between the two checks leaves the schedule later, and then its writer calls
        // `may_take` again.
        schedule.may_take() && (schedule.in_flight() == 0 || self.store.takes_more_batches())
    }

    /// Why writes are refused, if they are: the engine has failed, or the drive has no room.
    pub fn refusal(&self, now_ms: u64) -> Option<Refusal> {
        if let Some(refusal) = &*self.failed.lock() {
            return Some(refusal.clone());
        }
        self.room.lock().refusal(&*self.store, now_ms)
    }

    /// The failure after which the engine takes no writes.
    pub fn failure(&self) -> Option<Refusal> {
        self.failed.lock().clone()
    }

    /// Ends all writes with `error`; reads go on.
    pub fn fail(&self, error: &Error) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            tracing::error!(%error, "the engine takes no writes any more; reads go on; restart the server");
            *failed = Some(Refusal { text: error.to_client().into(), growth_only: false });
        }
    }

    /// Makes the acknowledged writes durable that no sync covers yet.
    pub fn sync(&self) {
        if self.unsynced.swap(false, Ordering::AcqRel)
            && let Err(error) = self.store.sync()
        {
            self.fail(&error);
        }
    }
}
