//! The engine's handle, and the state that its writers and background tasks share.

use std::fmt;
use std::hash::RandomState;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, Spawned, block_on};

use super::claims::Claims;
use super::options::{Durability, EngineOptions};
use super::refusals::Refusals;
use super::schedule::{Schedule, WaitingPipeline};
use super::stats::{Counters, KeyCount, KeyspaceCounts, Stats};
use super::work::Work;
use crate::error::{Error, Result};
use crate::store::{LogReport, Room, Store};
use crate::txn::{Txn, TxnShared};

/// Largest number of pipelines that wait for a writer.
const QUEUE_LIMIT: usize = 16_384;

/// How often a sleeping background task checks whether the engine is closed.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A database of at most this many keys is counted at each request for the number: that takes some tens of
/// milliseconds.
const KEYS_COUNTED_AT_ONCE: u64 = 100_000;

/// The engine. Cheap to clone; [`close`](Engine::close) it before the last clone is dropped.
///
/// Pipelines that share no key run and are written side by side. Of two pipelines that share a key, the one
/// that came first runs first, and the other sees its writes. The pipelines that wait when a writer is free
/// become a group, and one batch: one append to a parallel log, or one turn of RocksDB's log
/// ([`WalMode`](crate::parallel_wal::WalMode) decides which go together). A read-modify-write holds its keys
/// from the read until the write is acknowledged. Reads run on the caller's thread beside the writers, and
/// see what is written.
///
/// # Transactions
/// MULTI queues commands at the connection; the engine needs three things of it:
/// - WATCH is a [`Work`] that claims the keys and calls [`Txn::watch`] for each when it runs. The connection keeps the
///   [`Watch`](crate::Watch)es; dropping them is UNWATCH.
/// - EXEC is one [`Work`], submitted even if its commands only read. Its claims are the keys of all queued commands and
///   [`Watch::key`](crate::Watch::key) of every watch. When it runs, it first asks [`Txn::has_changed`] of every watch: if any
///   has, it runs nothing (the null reply). Otherwise it [executes](crate::execute) the queued commands in order.
/// - [`Txn::refusal`] says whether commands that write (or only those that grow the data) are refused at the moment: an EXEC
///   with such a command is aborted as a whole.
///
/// All writes of a work reach the store in one batch: after a crash all of them are there or none, readers see all or none,
/// and no other work writes to its keys between its first command and its acknowledgement.
#[derive(Clone)]
pub struct Engine(pub(super) Arc<Shared>);

/// The state of an engine.
pub(super) struct Shared {
    pub store: Arc<dyn Store>,
    pub driver: Arc<dyn Driver>,
    pub options: EngineOptions,
    pub txns: TxnShared,
    /// Hashes keys to the stripes of claims.
    hash: RandomState,
    pub queue: Mutex<Queue>,
    pub refusals: Mutex<Refusals>,
    /// Whether some acknowledged writes are not covered by a sync.
    pub unsynced: AtomicBool,
    pub counters: Counters,
    /// The last count of all keys, and when it was made (milliseconds since 1970).
    pub counted: Mutex<Option<(KeyspaceCounts, u64)>>,
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

impl Engine {
    /// Queues a pipeline that may write; it answers through [`Work::writes_are_durable`], or is dropped if the engine fails.
    ///
    /// # Errors
    /// `Closed` or `Busy`, with the work given back.
    pub fn submit(&self, work: Box<dyn Work>) -> Result<(), (Error, Box<dyn Work>)> {
        let mut claims = Claims::new(&self.0.hash);
        work.claims(&mut claims);
        let mut queue = self.0.queue.lock();
        if queue.closed {
            return Err((Error::Closed, work));
        }
        let waiting = queue.schedule.len();
        if waiting >= QUEUE_LIMIT {
            return Err((Error::Busy(waiting), work));
        }
        queue.schedule.push(WaitingPipeline { work, claims });
        let may_take = queue.schedule.may_take(|| self.0.store.takes_more_batches());
        let wake = if may_take { queue.idle.take_one() } else { None };
        drop(queue);
        if let Some(waker) = wake {
            waker.wake();
        }
        Ok(())
    }

    /// Calls `run` with a read-only transaction, on the calling thread; it may wait for the drive.
    pub fn read<R>(&self, run: impl FnOnce(&mut Txn<'_>) -> R) -> R {
        self.0.counters.reads.fetch_add(1, Ordering::Relaxed);
        run(&mut self.0.reading())
    }

    /// What an acknowledgement of a write promises.
    pub fn durability(&self) -> Durability {
        self.0.options.durability
    }

    /// The driver whose clock the engine uses.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.0.driver
    }

    /// The engine's counters since its start.
    pub fn stats(&self) -> Stats {
        self.0.counters.stats()
    }

    /// The failure after which the engine takes no writes.
    pub fn failure(&self) -> Option<String> {
        self.0.refusals.lock().failure().map(|refusal| refusal.text.to_string())
    }

    /// The room left on the drive, where the store knows it.
    pub fn room(&self) -> Option<Room> {
        self.0.store.room()
    }

    /// State of the store's parallel log, if the store has one.
    pub fn log(&self) -> Option<LogReport> {
        self.0.store.log()
    }

    /// Bytes of memory that the store's data takes: memtables, block cache, indexes and filters of open tables.
    pub fn used_memory(&self) -> u64 {
        self.0.store.used_memory()
    }

    /// The keys of the database. A database of up to about 100,000 keys is counted now, as DBSIZE counts. For
    /// a larger one the result is the count of the last whole walk of the background task that deletes
    /// expired keys; [`KeyspaceCounts::age_ms`] tells how old.
    pub fn keyspace_counts(&self) -> Result<KeyspaceCounts> {
        let (estimate, now_ms) = (self.0.store.key_estimate(), self.0.driver.unix_millis());
        if estimate > KEYS_COUNTED_AT_ONCE {
            let counted = *self.0.counted.lock();
            return Ok(match counted {
                Some((count, at)) => KeyspaceCounts { age_ms: Some(now_ms.saturating_sub(at)), ..count },
                None => KeyspaceCounts { keys: estimate, ..KeyspaceCounts::default() },
            });
        }
        let mut count = KeyCount::default();
        self.0.reading().scan(b"", |_, record| {
            count.add(record, now_ms);
            ControlFlow::Continue(())
        })?;
        Ok(KeyspaceCounts { age_ms: Some(0), ..count.keyspace_counts() })
    }

    /// Lines of `name:value` about the store, for INFO.
    pub fn describe_store(&self) -> Vec<(String, String)> {
        self.0.store.describe()
    }

    /// Runs the queued pipelines, makes every write durable and closes the store. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        {
            let mut queue = self.0.queue.lock();
            queue.closed = true;
            queue.idle.wake_all();
        }
        let tasks = std::mem::take(&mut *self.0.tasks.lock());
        if tasks.is_empty() {
            return Ok(());
        }
        block_on(&*self.0.driver, async {
            for task in tasks {
                task.await;
            }
        });
        let synced = if self.failure().is_none() { self.0.store.sync() } else { Ok(()) };
        self.0.store.close()?;
        synced
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
            refusals: Mutex::default(),
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

    /// Sleeps for `how_long`, or until the engine is closed. Gives false if the engine is closed.
    pub async fn pause(&self, how_long: Duration) -> bool {
        let until = self.driver.now().after(how_long);
        while self.driver.now() < until && !self.queue.lock().closed {
            let next = self.driver.now().after(CLOSE_CHECK_INTERVAL).min(until);
            units::sleep_until(&*self.driver, next).await;
        }
        !self.queue.lock().closed
    }

    /// Makes the acknowledged writes durable that no sync covers yet.
    pub fn sync(&self) {
        if self.unsynced.swap(false, Ordering::AcqRel)
            && let Err(error) = self.store.sync()
        {
            self.refusals.lock().fail(&error);
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", &self.0.store).field("stats", &self.stats()).finish()
    }
}
