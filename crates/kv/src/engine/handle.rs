//! The public handle of the engine.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use units::{Driver, block_on, spawn};

use super::expiry;
use super::options::{Durability, EngineOptions};
use super::shared::Shared;
use super::stats::{Keyspace, Stats};
use super::work::Work;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::store::{LogReport, Room, Store};
use crate::txn::Txn;

/// Interval between the syncs of acknowledged writes, in mode `async`.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

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

impl Engine {
    /// Starts the engine's threads over a store.
    pub fn start(store: Arc<dyn Store>, driver: Arc<dyn Driver>, options: EngineOptions) -> Engine {
        let writers = if store.wal().is_parallel() { options.parallel_writers() } else { 1 };
        let shared = Arc::new(Shared::new(store, driver, options, writers));
        let mut tasks = Vec::new();
        for n in 0..writers {
            let writer = Writer::new(Arc::clone(&shared), n);
            let task = spawn(&*shared.driver, "kv-writer", async move { writer.run().await });
            tasks.push(task);
        }
        let expired = expiry::delete_expired(Arc::clone(&shared));
        tasks.push(spawn(&*shared.driver, "kv-expiry", expired));
        if options.durability == Durability::Async {
            let syncs = Arc::clone(&shared);
            let sync = async move {
                while syncs.pause(SYNC_INTERVAL).await {
                    syncs.sync();
                }
            };
            tasks.push(spawn(&*shared.driver, "kv-sync", sync));
        }
        *shared.tasks.lock() = tasks;
        Engine(shared)
    }

    /// Queues a pipeline that may write; it answers through [`Work::writes_are_durable`], or is dropped if the engine fails.
    ///
    /// # Errors
    /// `Closed` or `Busy`, with the work given back.
    pub fn submit(&self, work: Box<dyn Work>) -> Result<(), (Error, Box<dyn Work>)> {
        self.0.submit(work)
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
        self.0.failure().map(|refusal| refusal.text.to_string())
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
    /// expired keys; [`Keyspace::age_ms`] tells how old.
    pub fn keyspace(&self) -> Result<Keyspace> {
        let (estimate, now_ms) = (self.0.store.key_estimate(), self.0.driver.unix_millis());
        if estimate > KEYS_COUNTED_AT_ONCE {
            let counted = *self.0.counted.lock();
            return Ok(match counted {
                Some((count, at)) => Keyspace { age_ms: Some(now_ms.saturating_sub(at)), ..count },
                None => Keyspace { keys: estimate, ..Keyspace::default() },
            });
        }
        let mut count = expiry::KeyCount::default();
        self.0.reading().scan(b"", |_, record| {
            count.add(record, now_ms);
            ControlFlow::Continue(())
        })?;
        Ok(Keyspace { age_ms: Some(0), ..count.keyspace() })
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

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", &self.0.store).field("stats", &self.stats()).finish()
    }
}
