//! The start of an engine: its writer threads and background tasks.

use std::sync::Arc;
use std::time::Duration;

use units::{Driver, spawn};

use super::expiry;
use super::handle::{Engine, Shared};
use super::options::{Durability, EngineOptions};
use super::writer::Writer;
use crate::store::Store;

/// Interval between the syncs of acknowledged writes, in mode `async`.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

impl Engine {
    /// Starts the engine's threads over a store.
    pub fn start(store: Arc<dyn Store>, driver: Arc<dyn Driver>, options: EngineOptions) -> Engine {
        let writers = if store.wal().is_parallel() { options.parallel_writers() } else { 1 };
        let engine = Engine(Arc::new(Shared::new(store, Arc::clone(&driver), options, writers)));
        let mut tasks = Vec::new();
        for n in 0..writers {
            let writer = Writer::new(Arc::clone(&engine.0), n);
            tasks.push(spawn(&*driver, "kv-writer", async move { writer.run().await }));
        }
        tasks.push(spawn(&*driver, "kv-expiry", expiry::delete_expired(engine.clone())));
        if options.durability == Durability::Async {
            let shared = Arc::clone(&engine.0);
            let sync = async move {
                while shared.pause(SYNC_INTERVAL).await {
                    shared.sync();
                }
            };
            tasks.push(spawn(&*driver, "kv-sync", sync));
        }
        *engine.0.tasks.lock() = tasks;
        engine
    }

    /// An engine without threads, which reads only: it refuses pipelines that may write as a closed engine does.
    pub fn without_writers(store: Arc<dyn Store>, driver: Arc<dyn Driver>) -> Engine {
        let engine = Engine(Arc::new(Shared::new(store, driver, EngineOptions::default(), 0)));
        engine.0.queue.lock().closed = true;
        engine
    }
}
