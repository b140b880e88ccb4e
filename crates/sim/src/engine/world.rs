//! RocksDB on a mounted file system, with its own WAL or under a parallel WAL.

use std::collections::BTreeMap;
use std::sync::Arc;

use fs::wal::LogOptions;
use fs::{Batching, Fs, MountOptions, ParallelOptions};
use futures_util::FutureExt as _;
use kv::parallel_wal::{
    Family, FamilyInfo, FsLog, LOG_FILE, ParallelWal, ParallelWalOptions, RocksTables, Tables, TicketLog,
    WriteError, WriteOptions,
};
use rocks::{Db, DbOptions, WriteBatch};
use units::{block_on, spawn};
use zoned::ZonedDevice;

use super::order::Order;
use super::plan::{FAMILIES, Mode, Shape};
use crate::BrokenRules;

const DIRECTORY: &str = "/db";
/// Most records in flight: more than the number of writers.
const OPEN: usize = 64;

/// The content of a database, by family and key.
pub(super) type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// An open database.
pub(super) struct World {
    fs: Fs,
    db: Arc<Db>,
    engine: Option<(Arc<ParallelWal>, Arc<RocksTables>)>,
    /// Keeps the order of batches, as the server does; `None` where the parallel WAL keeps the order.
    order: Option<Order>,
    broken: BrokenRules,
}

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Written,
    /// The tables refused the batch, as the step asked, and the log voided the record.
    Refused,
}

pub(crate) fn mount_options(broken: BrokenRules) -> MountOptions {
    broken.of_mount(MountOptions {
        log: LogOptions { buffer: 8 << 10, ..LogOptions::default() },
        write_buffer: 32 << 10,
        ..MountOptions::default()
    })
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl World {
    /// Mounts, opens, recovers; in any mode, as [`Database`](kv::parallel_wal::Database) does.
    pub(super) fn open(
        device: &Arc<dyn ZonedDevice>,
        shape: &Shape,
        broken: BrokenRules,
    ) -> Result<World, String> {
        let options = mount_options(broken);
        let mount = Fs::mount(Arc::clone(device), &options);
        let fs = block_on(&**device.driver(), mount).map_err(|e| format!("mount: {e}"))?;
        if shape.mode == Mode::Group && fs.stat(&format!("{DIRECTORY}/{LOG_FILE}")).is_ok() {
            let parallel = Shape { mode: Mode::Waltz, ..*shape };
            World::open_on(&fs, &parallel, broken)?.close_database(true)?;
        }
        World::open_on(&fs, shape, broken)
    }

    fn open_on(fs: &Fs, shape: &Shape, broken: BrokenRules) -> Result<World, String> {
        let fs = fs.clone();
        let options = DbOptions {
            write_buffer: 64 << 10,
            background_jobs: 2,
            block_cache: 1 << 20,
            unlogged: shape.mode != Mode::Group,
            adds: true,
            families: FAMILIES,
            ..DbOptions::default()
        };
        let db = Arc::new(Db::open(&fs, DIRECTORY, &options).map_err(words)?);
        if shape.mode == Mode::Group {
            return Ok(World { fs, db, engine: None, order: None, broken });
        }
        let tables = Arc::new(RocksTables::new(Arc::clone(&db), Arc::clone(fs.driver())));
        let log = {
            let batching = if shape.mode == Mode::Auto { Batching::Auto } else { Batching::Each };
            ParallelOptions { open: OPEN, batching, spare: true, zones: shape.zones }
        };
        let log = FsLog::open(&fs, DIRECTORY, &log).map_err(words)?;
        let info = FamilyInfo { merges: true, one_stripe: false };
        let families = (0..=u32::from(FAMILIES)).map(|n| (Family(n), info));
        let options = ParallelWalOptions { log_limit: shape.log_limit, ..ParallelWalOptions::default() };
        let options = broken.of_parallel_wal(options);
        let parallel_wal = ParallelWal::open(
            Arc::new(log) as Arc<dyn TicketLog>,
            Arc::clone(&tables) as Arc<dyn Tables>,
            families,
            options,
        );
        let parallel_wal = Arc::new(parallel_wal.map_err(words)?);
        tables.report_flushes_to(&parallel_wal);
        let order = shape.ordered.then(Order::default);
        Ok(World { fs, db, engine: Some((parallel_wal, tables)), order, broken })
    }

    /// Writes a batch. `refused`: the tables refuse the batch after the log has it.
    pub(super) async fn write(&self, batch: &[u8], sync: bool, refused: bool) -> Result<Outcome, String> {
        let Some((parallel_wal, tables)) = &self.engine else {
            self.db.write(&WriteBatch::from_data(batch), sync).map_err(words)?;
            return Ok(Outcome::Written);
        };
        let how = if sync { WriteOptions::SYNCED } else { WriteOptions::UNSYNCED };
        let written = match &self.order {
            None => parallel_wal.write(batch, how, |mark| {
                if refused { Err(None) } else { tables.apply(batch, mark).map_err(Some) }
            }),
            Some(order) => {
                // The order stands in for the parallel WAL's key locks.
                let _turn = if self.broken.keeps_key_order() {
                    Some(order.turn(batch).await.map_err(words)?)
                } else {
                    None
                };
                tables.ready().await;
                let apply = |mark| async move {
                    if refused { Err(None) } else { tables.apply_soon(batch, mark).await.map_err(Some) }
                };
                parallel_wal.write_ordered(batch, how, apply).await
            }
        };
        match written {
            Ok(()) => Ok(Outcome::Written),
            Err(WriteError::Apply(None)) => Ok(Outcome::Refused),
            Err(WriteError::Apply(Some(error))) => Err(words(error)),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    /// The value of a key of the default family.
    pub(super) fn read(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.db.get(key.as_bytes()).map_err(words)?.map(|value| value.to_vec()))
    }

    /// Runs a future to its end on this thread. Where [`Order`] keeps the order the thread blocks; else the future must never
    /// wait.
    pub(super) fn finish<T>(&self, what: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        if self.order.is_some() {
            return block_on(&**self.fs.driver(), what);
        }
        what.now_or_never().unwrap_or_else(|| Err("it was left waiting".into()))
    }

    /// Runs a blocking call, on a thread of its own where this thread serves other writes too.
    async fn apart(&self, run: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
        if self.order.is_none() {
            return run();
        }
        spawn(&**self.fs.driver(), "sim-apart", async move { run() }).await
    }

    pub(super) async fn sync(&self) -> Result<(), String> {
        match &self.engine {
            Some((parallel_wal, _)) => {
                let parallel_wal = Arc::clone(parallel_wal);
                self.apart(move || parallel_wal.sync().map_err(words)).await
            }
            None => self.db.sync_wal().map_err(words),
        }
    }

    /// Writes memtables to tables. `alone`: no ordered write runs during the flush.
    pub(super) async fn flush(&self, alone: bool) -> Result<(), String> {
        match &self.engine {
            Some((parallel_wal, tables)) => {
                let (parallel_wal, tables) = (Arc::clone(parallel_wal), Arc::clone(tables));
                let alone = alone && self.order.is_some();
                let flush =
                    move || if alone { parallel_wal.exclusive(|| tables.flush()) } else { tables.flush() };
                self.apart(move || flush().map_err(words)).await
            }
            None => self.db.flush().map_err(words),
        }
    }

    /// A flush of the default family that bypasses the engine, concurrent with writes.
    pub(super) async fn flush_past(&self) -> Result<(), String> {
        let db = Arc::clone(&self.db);
        self.apart(move || db.flush().map_err(words)).await
    }

    pub(super) fn content(&self) -> Result<Content, String> {
        let mut content = Content::new();
        for family in 0..=u32::from(FAMILIES) {
            let mut cursor = self.db.iter_in(family, &[]).map_err(words)?;
            while cursor.valid() {
                content.insert((family, cursor.key().to_vec()), cursor.value().to_vec());
                cursor.next();
            }
            cursor.status().map_err(words)?;
        }
        Ok(content)
    }

    /// Closes the database and unmounts. Without `cleanly` a parallel log keeps its records.
    pub(super) fn close(self, cleanly: bool) -> Result<(), String> {
        let fs = self.fs.clone();
        self.close_database(cleanly)?;
        block_on(&**fs.driver(), fs.unmount()).map_err(|e| format!("unmount: {e}"))
    }

    fn close_database(self, cleanly: bool) -> Result<(), String> {
        let World { db, engine, .. } = self;
        if let Some((parallel_wal, tables)) = engine {
            if cleanly {
                parallel_wal.close().map_err(|e| format!("closing the engine: {e}"))?;
            }
            tables.settle();
        }
        db.close().map_err(|e| format!("closing the database: {e}"))?;
        Ok(())
    }
}
