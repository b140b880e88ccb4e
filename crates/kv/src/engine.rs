//! The threads of the engine: writers, and their helpers.

mod claims;
mod room;
mod schedule;
mod writer;

use std::fmt;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use units::{Driver, Spawned, block_on, spawn};

use crate::txn::TxnShared;
use crate::{Batching, Error, Limits, LogStats, Refusal, Result, Room, Store, Txn, expiry};

pub use claims::Claims;
use room::RoomWatch;
use schedule::{Schedule, Waiting};

/// Pipelines that may wait for a writer.
const QUEUE_LIMIT: usize = 16_384;

/// How long unsynced writes wait in `async`.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// How often helpers look whether the engine stops.
const TICK: Duration = Duration::from_millis(50);

/// What an acknowledgement promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The write is durable before it is acknowledged.
    #[default]
    Sync,
    /// The write is in memory; once a second everything is made durable.
    Async,
}

/// How the engine works.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineOptions {
    /// What an acknowledgement promises.
    pub durability: Durability,
    /// Bounds on keys and values.
    pub limits: Limits,
    /// Threads that write, where batches go side by side. Default: half the processors, within 1 and 4: each has many
    /// batches on their way.
    pub writers: Option<usize>,
}

/// One pipeline of one client: commands that run in order, and whose writes become durable together.
pub trait Work: Send {
    /// Says which keys the commands read or write. Asked once, before the first run; what the commands touch beyond that may
    /// change under them.
    fn claims(&self, claims: &mut Claims);

    /// Runs the commands and keeps the replies. When the write of a group fails this is called again, with
    /// nothing of the first run in effect: it starts from the same state each time.
    fn run(&mut self, txn: &mut Txn<'_>);

    /// The replies hold: send them.
    fn done(self: Box<Self>);
}

/// Writers where nothing else was said.
fn usual_writers() -> usize {
    (std::thread::available_parallelism().map_or(1, usize::from) / 2).clamp(1, 4)
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches written.
    pub groups: u64,
    /// Pipelines that those batches held.
    pub pipelines: u64,
    /// Keys put and deleted.
    pub keys_written: u64,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Pipelines whose write failed.
    pub failed: u64,
    /// Expired keys that were deleted in the background.
    pub expired: u64,
    /// Read-only pipelines.
    pub reads: u64,
}

#[derive(Default)]
struct Counters {
    groups: AtomicU64,
    pipelines: AtomicU64,
    keys_written: AtomicU64,
    bytes_written: AtomicU64,
    failed: AtomicU64,
    expired: AtomicU64,
    reads: AtomicU64,
}

/// The engine. Cheap to clone; [`close`](Engine::close) it before the last one goes.
///
/// Pipelines that share no key run and are written side by side; of those that do, the first to come goes first, and the
/// others see what it wrote. Whatever waits when a writer is free goes together, as one batch: one append, or one turn
/// of RocksDB's log, for all of them ([`Batching`] says whose). A read-modify-write holds its keys from the read until the write is acknowledged.
/// Reads run wherever they are asked for, beside it, over what is written.
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
pub struct Engine(Arc<Inner>);

pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub driver: Arc<dyn Driver>,
    options: EngineOptions,
    txns: TxnShared,
    /// Of the claims.
    hash: RandomState,
    state: Mutex<State>,
    room: Mutex<RoomWatch>,
    /// Why the engine takes no writes any more.
    failed: Mutex<Option<Refusal>>,
    unsynced: AtomicBool,
    counters: Counters,
    helpers: Mutex<Vec<Spawned<()>>>,
}

/// What the writers share.
struct State {
    schedule: Schedule,
    idle: Idle,
    closed: bool,
}

/// Writers that have nothing to run; their batches may be on their way.
#[derive(Default)]
struct Idle(Vec<Option<Waker>>);

impl Idle {
    fn set(&mut self, writer: usize, waker: &Waker) {
        if let Some(slot) = self.0.get_mut(writer) {
            *slot = Some(waker.clone());
        }
    }

    fn clear(&mut self, writer: usize) {
        if let Some(slot) = self.0.get_mut(writer) {
            *slot = None;
        }
    }

    /// One of them, to be woken: the one that is used most, so that the others sleep.
    fn take_one(&mut self) -> Option<Waker> {
        self.0.iter_mut().find_map(Option::take)
    }

    fn wake_all(&mut self) {
        self.0.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

impl Engine {
    /// Starts the engine's threads over a store.
    pub fn start(store: Arc<dyn Store>, driver: Arc<dyn Driver>, options: EngineOptions) -> Engine {
        let batching = store.batching();
        let writers = match batching {
            Batching::OneAtATime => 1,
            Batching::Alone | Batching::Together => options.writers.unwrap_or_else(usual_writers).max(1),
        };
        let idle = Idle(vec![None; writers]);
        let inner = Arc::new(Inner {
            store,
            driver,
            options,
            txns: TxnShared { limits: options.limits, ..TxnShared::default() },
            hash: RandomState::new(),
            state: Mutex::new(State { schedule: Schedule::new(batching), idle, closed: false }),
            room: Mutex::default(),
            failed: Mutex::new(None),
            unsynced: AtomicBool::new(false),
            counters: Counters::default(),
            helpers: Mutex::default(),
        });
        let mut helpers = Vec::new();
        for writer in 0..writers {
            let mine = Arc::clone(&inner);
            helpers.push(spawn(
                &*inner.driver,
                "kv-writer",
                async move { mine.write_until_closed(writer).await },
            ));
        }
        let mine = Arc::clone(&inner);
        helpers.push(spawn(&*inner.driver, "kv-expiry", expiry::delete_expired(mine)));
        if options.durability == Durability::Async {
            let mine = Arc::clone(&inner);
            helpers.push(spawn(&*inner.driver, "kv-sync", async move { mine.sync_until_closed().await }));
        }
        *inner.helpers.lock() = helpers;
        Engine(inner)
    }

    /// Queues a pipeline that may write; it answers through [`Work::done`], or is dropped if the engine dies.
    ///
    /// # Errors
    /// `Closed` or `Busy`, with the work given back.
    pub fn submit(&self, work: Box<dyn Work>) -> Result<(), (Error, Box<dyn Work>)> {
        self.0.submit(work)
    }

    /// Runs something that only reads on this thread; it may wait for the drive.
    pub fn read<R>(&self, run: impl FnOnce(&mut Txn<'_>) -> R) -> R {
        let inner = &*self.0;
        inner.counters.reads.fetch_add(1, Ordering::Relaxed);
        run(&mut inner.reading())
    }

    /// What an acknowledgement promises.
    pub fn durability(&self) -> Durability {
        self.0.options.durability
    }

    /// The driver whose clock the engine keeps.
    pub fn driver(&self) -> &Arc<dyn Driver> {
        &self.0.driver
    }

    /// Counts since the start.
    pub fn stats(&self) -> Stats {
        let c = &self.0.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            groups: get(&c.groups),
            pipelines: get(&c.pipelines),
            keys_written: get(&c.keys_written),
            bytes_written: get(&c.bytes_written),
            failed: get(&c.failed),
            expired: get(&c.expired),
            reads: get(&c.reads),
        }
    }

    /// Why the engine takes no writes, if it does not.
    pub fn failure(&self) -> Option<String> {
        self.0.failed.lock().as_ref().map(|refusal| refusal.text.to_string())
    }

    /// The room left on the drive, where the store knows it.
    pub fn room(&self) -> Option<Room> {
        self.0.store.room()
    }

    /// The parallel log, where the store has one.
    pub fn log(&self) -> Option<LogStats> {
        self.0.store.log()
    }

    /// Lines of `name:value` about the store.
    pub fn describe_store(&self) -> Vec<(String, String)> {
        self.0.store.describe()
    }

    /// Runs what is queued, makes everything durable and closes the store. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        {
            let mut state = self.0.state.lock();
            state.closed = true;
            state.idle.wake_all();
        }
        let helpers = std::mem::take(&mut *self.0.helpers.lock());
        if helpers.is_empty() {
            return Ok(());
        }
        block_on(&*self.0.driver, async {
            for helper in helpers {
                helper.await;
            }
        });
        let synced = if self.failure().is_none() { self.0.store.sync() } else { Ok(()) };
        self.0.store.close()?;
        synced
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", &self.0.store).field("stats", &self.stats()).finish()
    }
}

impl Inner {
    pub fn reading(&self) -> Txn<'_> {
        Txn::reading(&*self.store, &self.txns, self.driver.unix_millis())
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub fn count_expired(&self, n: u64) {
        self.counters.expired.fetch_add(n, Ordering::Relaxed);
    }

    /// Sleeps, but not past the close. Whether to go on.
    pub async fn pause(&self, how_long: Duration) -> bool {
        let until = self.driver.now().after(how_long);
        while self.driver.now() < until && !self.is_closed() {
            let next = self.driver.now().after(TICK).min(until);
            units::sleep_until(&*self.driver, next).await;
        }
        !self.is_closed()
    }

    /// Queues a pipeline; gives it back where that cannot be.
    pub fn submit(&self, work: Box<dyn Work>) -> Result<(), (Error, Box<dyn Work>)> {
        let mut claims = Claims::new(&self.hash);
        work.claims(&mut claims);
        let mut state = self.state.lock();
        if state.closed {
            return Err((Error::Closed, work));
        }
        let waiting = state.schedule.len();
        if waiting >= QUEUE_LIMIT {
            return Err((Error::Busy(waiting), work));
        }
        state.schedule.push(Waiting { work, claims });
        let wake = if self.is_worth_a_look(&state.schedule) { state.idle.take_one() } else { None };
        drop(state);
        if let Some(waker) = wake {
            waker.wake();
        }
        Ok(())
    }

    /// Whether there may be a group to take, and the store wants one more on its way.
    fn is_worth_a_look(&self, schedule: &Schedule) -> bool {
        // One that lands while this is asked leaves the schedule after that, and then its writer looks.
        schedule.is_worth_a_look() && (schedule.flying() == 0 || self.store.takes_more())
    }

    async fn sync_until_closed(&self) {
        while self.pause(SYNC_EVERY).await {
            if self.unsynced.swap(false, Ordering::AcqRel)
                && let Err(error) = self.store.sync()
            {
                self.fail(&error);
            }
        }
    }
}

#[cfg(test)]
mod tests;
