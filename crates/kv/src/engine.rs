//! The threads of the engine: one writer with natural group commit, and its helpers.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use units::{Driver, Spawned, block_on, spawn};

use crate::command::client_text;
use crate::{Cursors, Error, ErrorKind, Limits, Overlay, Refusal, Result, Room, Store, Txn, expiry};

/// Pipelines that may wait for the writer.
const QUEUE_LIMIT: usize = 16_384;

/// A group is written when it has about this much, though more pipelines wait.
const GROUP_BYTES: usize = 4 << 20;

/// How old the writer's knowledge of the room on the drive may be.
const ROOM_AGE_MS: u64 = 100;

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
}

/// One pipeline of one client: commands that run in order, and whose writes become durable together.
pub trait Work: Send {
    /// Runs the commands and keeps the replies. When the write of a group fails this is called again, with
    /// nothing of the first run in effect: it starts from the same state each time.
    fn run(&mut self, txn: &mut Txn<'_>);

    /// The replies hold: send them.
    fn done(self: Box<Self>);
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
/// Writes run one after another on one thread, over what the ones before them decided, so that no read-modify-write
/// needs a lock; everything that waited meanwhile becomes one batch with one sync. Reads run wherever they are
/// asked for, beside it.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

pub(crate) struct Inner {
    pub store: Arc<dyn Store>,
    pub driver: Arc<dyn Driver>,
    options: EngineOptions,
    cursors: Cursors,
    queue: Mutex<Queue>,
    waiting: Condvar,
    /// Why the engine takes no writes any more.
    failed: Mutex<Option<Refusal>>,
    unsynced: AtomicBool,
    counters: Counters,
    helpers: Mutex<Vec<Spawned<()>>>,
}

#[derive(Default)]
struct Queue {
    works: VecDeque<Box<dyn Work>>,
    closed: bool,
}

impl Engine {
    /// Starts the engine's threads over a store.
    pub fn start(store: Arc<dyn Store>, driver: Arc<dyn Driver>, options: EngineOptions) -> Engine {
        let inner = Arc::new(Inner {
            store,
            driver,
            options,
            cursors: Cursors::new(),
            queue: Mutex::default(),
            waiting: Condvar::new(),
            failed: Mutex::new(None),
            unsynced: AtomicBool::new(false),
            counters: Counters::default(),
            helpers: Mutex::default(),
        });
        let mut helpers = Vec::new();
        let mine = Arc::clone(&inner);
        helpers.push(spawn(&*inner.driver, "kv-writer", async move { mine.write_until_closed() }));
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
        let mut queue = self.0.queue.lock();
        if queue.closed {
            return Err((Error::Closed, work));
        }
        if queue.works.len() >= QUEUE_LIMIT {
            return Err((Error::Busy(queue.works.len()), work));
        }
        queue.works.push_back(work);
        if queue.works.len() == 1 {
            self.0.waiting.notify_one();
        }
        Ok(())
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

    /// Lines of `name:value` about the store.
    pub fn describe_store(&self) -> Vec<(String, String)> {
        self.0.store.describe()
    }

    /// Runs what is queued, makes everything durable and closes the store. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        self.0.queue.lock().closed = true;
        self.0.waiting.notify_all();
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
        Txn::reading(&*self.store, &self.cursors, self.options.limits, self.driver.unix_millis())
    }

    pub fn is_closed(&self) -> bool {
        self.queue.lock().closed
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

    /// Queues a pipeline of the engine's own.
    pub fn enqueue(&self, work: Box<dyn Work>) -> bool {
        let mut queue = self.queue.lock();
        if queue.closed || queue.works.len() >= QUEUE_LIMIT {
            return false;
        }
        queue.works.push_back(work);
        self.waiting.notify_one();
        true
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

    fn write_until_closed(&self) {
        // However this ends, what waits is dropped rather than left to wait for ever.
        struct Closing<'a>(&'a Inner);
        impl Drop for Closing<'_> {
            fn drop(&mut self) {
                let mut queue = self.0.queue.lock();
                queue.closed = true;
                let left = std::mem::take(&mut queue.works);
                drop(queue);
                drop(left);
            }
        }
        let _closing = Closing(self);
        let mut overlay = Overlay::default();
        let mut room = RoomWatch::default();
        let mut group: Vec<Box<dyn Work>> = Vec::new();
        loop {
            let mut waiting = {
                let mut queue = self.queue.lock();
                while queue.works.is_empty() && !queue.closed {
                    self.waiting.wait(&mut queue);
                }
                if queue.works.is_empty() {
                    return;
                }
                std::mem::take(&mut queue.works)
            };
            while !waiting.is_empty() {
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    self.run_group(&mut waiting, &mut group, &mut overlay, &mut room);
                }));
                if ran.is_err() {
                    // The works of this group are gone and their clients disconnected; nothing of it was written.
                    let detail = "a command panicked; this is a bug".to_owned();
                    self.fail(&Error::Store { doing: "running a group of commands", detail });
                    group.clear();
                    overlay.reset();
                }
            }
        }
    }

    fn run_group(
        &self,
        waiting: &mut VecDeque<Box<dyn Work>>,
        group: &mut Vec<Box<dyn Work>>,
        overlay: &mut Overlay,
        room: &mut RoomWatch,
    ) {
        let now_ms = self.driver.unix_millis();
        let refusal = self.refusal(room, now_ms);
        overlay.reset();
        while overlay.byte_size() < GROUP_BYTES
            && let Some(work) = waiting.pop_front()
        {
            group.push(work);
            let work = group.last_mut().expect("one was pushed");
            let mut txn = self.writing(overlay, now_ms, refusal.clone());
            work.run(&mut txn);
        }
        match self.commit(overlay) {
            Ok(()) => {
                self.counters.pipelines.fetch_add(group.len() as u64, Ordering::Relaxed);
                group.drain(..).for_each(Work::done);
            }
            Err(error) => {
                for work in group.drain(..) {
                    self.run_alone(work, overlay, now_ms, &refusal, &error);
                }
            }
        }
        overlay.reset();
    }

    /// After the group's write failed: each on its own, so that one that fits or frees room still succeeds, and
    /// at last with its writes refused.
    fn run_alone(
        &self,
        mut work: Box<dyn Work>,
        overlay: &mut Overlay,
        now_ms: u64,
        refusal: &Option<Refusal>,
        group_error: &Error,
    ) {
        let mut error = None;
        if group_error.kind() == ErrorKind::NoSpace {
            overlay.reset();
            work.run(&mut self.writing(overlay, now_ms, refusal.clone()));
            match self.commit(overlay) {
                Ok(()) => return work.done(),
                Err(e) => error = Some(e),
            }
        }
        let error = error.as_ref().unwrap_or(group_error);
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        let text: Arc<str> = client_text(error).into();
        if error.kind() != ErrorKind::NoSpace {
            self.fail(error);
        }
        overlay.reset();
        let refused = Some(Refusal { text, growth_only: false });
        work.run(&mut self.writing(overlay, now_ms, refused));
        overlay.reset();
        work.done();
    }

    fn writing<'a>(&'a self, overlay: &'a mut Overlay, now_ms: u64, refusal: Option<Refusal>) -> Txn<'a> {
        Txn::writing(&*self.store, overlay, &self.cursors, self.options.limits, now_ms, refusal)
    }

    fn commit(&self, overlay: &Overlay) -> Result<()> {
        if overlay.is_empty() {
            return Ok(());
        }
        let sync = self.options.durability == Durability::Sync;
        self.store.write(overlay, sync)?;
        if !sync {
            self.unsynced.store(true, Ordering::Release);
        }
        let c = &self.counters;
        c.groups.fetch_add(1, Ordering::Relaxed);
        c.keys_written.fetch_add(overlay.len() as u64, Ordering::Relaxed);
        c.bytes_written.fetch_add(overlay.byte_size() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn refusal(&self, room: &mut RoomWatch, now_ms: u64) -> Option<Refusal> {
        if let Some(refusal) = &*self.failed.lock() {
            return Some(refusal.clone());
        }
        room.look(&*self.store, now_ms);
        room.refusal.clone()
    }

    fn fail(&self, error: &Error) {
        let mut failed = self.failed.lock();
        if failed.is_none() {
            tracing::error!(%error, "the engine takes no writes any more; reads go on; restart the server");
            *failed = Some(Refusal { text: client_text(error).into(), growth_only: false });
        }
    }
}

/// The writer's knowledge of the room on the drive.
#[derive(Default)]
struct RoomWatch {
    looked_ms: u64,
    refusal: Option<Refusal>,
}

impl RoomWatch {
    fn look(&mut self, store: &dyn Store, now_ms: u64) {
        if now_ms.abs_diff(self.looked_ms) < ROOM_AGE_MS {
            return;
        }
        self.looked_ms = now_ms;
        let short = store.room().filter(Room::is_short);
        if short.is_some() != self.refusal.is_some() {
            match &short {
                Some(room) => {
                    tracing::warn!(free = room.free.0, reserve = room.reserve.0, "the drive is full")
                }
                None => tracing::info!("the drive has room again"),
            }
        }
        self.refusal = short.map(|room| {
            let error =
                Error::NoSpace(format!("{} bytes are free, {} are kept back", room.free.0, room.reserve.0));
            Refusal { text: client_text(&error).into(), growth_only: true }
        });
    }
}

#[cfg(test)]
mod tests;
