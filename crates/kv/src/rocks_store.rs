//! The store on RocksDB on the zoned file system.
//!
//! | first byte of a key | what follows |
//! |---|---|
//! | `d` | a client's key; the value is a [record](crate::Record) |
//! | `m` | a name of the engine's own: `format` has the version of this table |
//!
//! The first byte keeps the clients' keys within one range, which one range delete clears.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs::Fs;
use parking_lot::Mutex;
use rocks::{DbOptions, WriteBatch};
use units::{Bytes, Driver, Spawned, block_on, spawn};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::overlay::Overlay;
use crate::parallel_wal::{Database, DatabaseOptions, LOG_ZONES, WalMode, WriteOptions, log_limits};
use crate::record::HEADER_LEN;
use crate::retry::Retry;
use crate::store::{LogReport, Room, Store, Visit, Writing};

/// First byte of the stored keys of clients, and the next byte in order.
const CLIENT_KEY_PREFIX: u8 = b'd';
const CLIENT_KEYS_END: u8 = b'e';

/// The stored key of the layout's version. Its value begins with a record's header, which the compaction filter reads.
const FORMAT_KEY: &[u8] = b"mformat";

/// The version of the layout of stored keys.
const FORMAT_VERSION: u32 = 1;

/// Bounds of the default memtable size in bytes; the size is one part in `WRITE_BUFFER_SHARE` of the drive.
const WRITE_BUFFER_MIN: u64 = 1 << 20;
const WRITE_BUFFER_MAX: u64 = 64 << 20;
const WRITE_BUFFER_SHARE: u64 = 64;

/// Number of memtables of the database.
const WRITE_BUFFERS: i32 = 4;

/// The reserve of free room on the drive is the sum of three parts, and at most a third of the drive:
/// - every memtable as a table;
/// - the logs: every memtable once more, or the limit of a parallel log;
/// - half the output of one compaction. A compaction has about 12 tables as input and keeps them until its end; a compaction
///   for room drops about half of its input.
const COMPACTION_TABLES: u64 = 12;
const RESERVE_SHARE: u64 = 3;

/// Size of level 1, counted in tables or in memtables, whichever are larger (`rocks` sets the size).
const LEVEL1_TABLES: u64 = 4;

/// A compaction to gain room waits until the deletes are one part in `COMPACT_SHARE` of the remaining keys.
const COMPACT_SHARE: u64 = 3;

/// Number of deletes that a FLUSHALL counts as: more than any drive has keys.
const DELETES_OF_A_CLEAR: u64 = 1 << 48;

/// Number of empty `WriteBatch` objects kept for reuse, and the largest size in bytes of one that is kept.
const SPARE_BATCHES: usize = 64;
const SPARE_BATCH_BYTES: usize = 256 << 10;

/// Bounds of the table size, which is otherwise a zone's capacity (`rocks` sets the size).
const TABLE_MIN: u64 = 2 << 20;
const TABLE_MAX: u64 = 64 << 20;

/// Keys up to this length are prefixed with their first byte on the stack.
const STACK_KEY_LEN: usize = 128;

/// Settings with which a [`RocksStore`] is opened.
#[derive(Clone, Copy, Debug)]
pub struct RocksStoreOptions {
    /// Bytes of a memtable; `None`: a 64th of the drive, within 1 and 64 MiB.
    pub write_buffer: Option<usize>,
    /// Bytes of the block cache. Default: 64 MiB.
    pub block_cache: usize,
    /// The database's log, which may change at every opening. Default: `auto`.
    pub wal: WalMode,
}

impl Default for RocksStoreOptions {
    fn default() -> RocksStoreOptions {
        RocksStoreOptions { write_buffer: None, block_cache: 64 << 20, wal: WalMode::Auto }
    }
}

/// A RocksDB database in a directory of a mounted file system, as the engine's store. The caller unmounts the file
/// system.
#[derive(Debug)]
pub struct RocksStore {
    database: Arc<Database>,
    fs: Fs,
    reserve: Bytes,
    /// Empty `WriteBatch` objects, kept for reuse.
    batches: Mutex<Vec<WriteBatch>>,
    /// Number of deletes since the last compaction to gain room.
    deletes: Arc<AtomicU64>,
    /// Value of `deletes` when the drive's room was last read.
    deletes_seen: AtomicU64,
    compacting: Arc<AtomicBool>,
    /// Decides when a compaction that failed for lack of room is tried again.
    retry: Arc<Mutex<Retry>>,
    compacting_task: Mutex<Option<Spawned<()>>>,
    /// Sizes of a memtable, of a table, and of a zone, in bytes.
    write_buffer: u64,
    table: u64,
    zone: u64,
}

impl RocksStore {
    /// Opens the database in `path`, or creates it.
    ///
    /// # Errors
    /// Errors of RocksDB; `Version` for a database with another layout; `Store` for a database of another program.
    pub fn open(fs: &Fs, path: &str, options: &RocksStoreOptions) -> Result<RocksStore> {
        let capacity = fs.statfs().capacity.0;
        let picked = (capacity / WRITE_BUFFER_SHARE).clamp(WRITE_BUFFER_MIN, WRITE_BUFFER_MAX);
        let write_buffer = options.write_buffer.unwrap_or(usize::try_from(picked).unwrap_or(usize::MAX));
        let settings = DbOptions {
            write_buffer,
            write_buffers: WRITE_BUFFERS,
            block_cache: options.block_cache,
            expiry: true,
            ..DbOptions::default()
        };
        let geometry = fs.device().geometry();
        let zone = geometry.zone_capacity.bytes(geometry.block_size).0;
        let table = zone.clamp(TABLE_MIN, TABLE_MAX);
        let memtables = write_buffer as u64 * u64::from(WRITE_BUFFERS.unsigned_abs());
        let parallel_wal = log_limits(fs);
        let logs = match options.wal {
            WalMode::Group => memtables,
            WalMode::Waltz | WalMode::Auto => parallel_wal.log_limit,
        };
        let reserve = memtables
            .saturating_add(logs)
            .saturating_add(table * COMPACTION_TABLES / 2)
            .min(capacity / RESERVE_SHARE);
        let database = Database::open(
            fs,
            path,
            &DatabaseOptions { wal: options.wal, db: settings, parallel_wal: Some(parallel_wal) },
        )?;
        let store = RocksStore {
            database: Arc::new(database),
            fs: fs.clone(),
            reserve: Bytes(reserve),
            batches: Mutex::default(),
            deletes: Arc::default(),
            deletes_seen: AtomicU64::new(0),
            compacting: Arc::new(AtomicBool::new(false)),
            retry: Arc::default(),
            compacting_task: Mutex::new(None),
            write_buffer: write_buffer as u64,
            table,
            zone,
        };
        if let Err(error) = store.check_format() {
            // The close removes the parallel log that this failed opening created.
            if let Err(error) = store.close() {
                tracing::warn!(%error, "closing a database of another program failed");
            }
            return Err(error);
        }
        Ok(store)
    }

    fn check_format(&self) -> Result<()> {
        const DOING: &str = "reading the database's format";
        let stored = self.database.db().get(FORMAT_KEY).map_err(|e| store_error(DOING, &e))?;
        if let Some(stored) = stored {
            let version = stored.get(HEADER_LEN..).and_then(|v| v.try_into().ok()).map(u32::from_le_bytes);
            return match version {
                Some(FORMAT_VERSION) => Ok(()),
                Some(found) => Err(Error::Version { found, known: FORMAT_VERSION }),
                None => Err(Error::corrupt(FORMAT_KEY, format!("{} bytes", stored.len()))),
            };
        }
        let cursor = self.database.db().iter(b"").map_err(|e| store_error(DOING, &e))?;
        cursor.status().map_err(|e| store_error(DOING, &e))?;
        if cursor.valid() {
            let detail = "it holds keys of another program: give another directory with --db-path".to_owned();
            return Err(Error::Store { doing: DOING, detail });
        }
        let mut batch = WriteBatch::new();
        let mut value = vec![0; HEADER_LEN];
        value.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        batch.put(FORMAT_KEY, &value);
        self.database.write(&mut batch, true)
    }

    /// A numeric property of RocksDB; 0 if it is unknown.
    fn numeric_property(&self, property: &str) -> u64 {
        self.database.db().property(property).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// Starts a compaction in the background, to turn deletes into room. The compaction writes live data anew and needs room for
    /// that, so it starts only once enough keys were deleted and the deletes pause. One compaction runs at a time.
    fn compact_for_room(&self) {
        let deletes = self.deletes.load(Ordering::Relaxed);
        let paused = self.deletes_seen.swap(deletes, Ordering::Relaxed) == deletes;
        if deletes == 0 || !paused {
            return;
        }
        let keys = self.numeric_property("rocksdb.estimate-num-keys");
        let enough = deletes >= DELETES_OF_A_CLEAR || deletes >= keys / COMPACT_SHARE;
        // A compaction writes the live part of its input before the input is deleted, and the log needs its next zone
        // meanwhile: so take less input when less room is free. The smallest compaction of level 0 takes all of level 0
        // and of level 1.
        let free = self.fs.statfs().free.0.saturating_sub(LOG_ZONES / 2 * self.zone);
        let all = keys.saturating_add(deletes).max(1);
        let step = u64::try_from(u128::from(free) * u128::from(all) / u128::from(keys.max(1)));
        let step = step.unwrap_or(u64::MAX).min(self.table.saturating_mul(COMPACTION_TABLES));
        let level0 = self.numeric_property("rocksdb.num-files-at-level0").saturating_mul(self.write_buffer);
        let level1 = LEVEL1_TABLES * self.table.max(self.write_buffer);
        let least = if level0 == 0 { 2 * self.table } else { level0.saturating_add(level1) };
        let fits = step >= least;
        // Deletes do not fill a memtable, so that a parallel log would keep its zones without this flush.
        let held = self.database.held_records().is_some_and(|held| held.bytes > 0);
        if !enough || !(fits || held) {
            return;
        }
        let (database, counted) = (Arc::clone(&self.database), Arc::clone(&self.deletes));
        self.in_background(free, move || {
            if !fits {
                return database.flush();
            }
            counted.fetch_sub(deletes, Ordering::Relaxed);
            let done = database.db().compact_within(step).map_err(|e| store_error("compacting", &e));
            if done.is_err() {
                counted.fetch_add(deletes, Ordering::Relaxed);
            }
            done
        });
    }

    /// Restores the default limit of compactions' input, if an earlier attempt to restore it failed for lack of room.
    fn restore_compaction_limit(&self) {
        let database = Arc::clone(&self.database);
        self.in_background(self.fs.statfs().free.0, move || {
            database.db().unbound().map_err(|e| store_error("setting back the bound of compactions", &e))
        });
    }

    /// Runs a task that frees room in the background, unless such a task runs already or failed a short time ago.
    /// `free`: bytes free now.
    fn in_background(&self, free: u64, work: impl FnOnce() -> Result<()> + Send + 'static) {
        if self.compacting.load(Ordering::Acquire)
            || !self.retry.lock().is_due(self.driver().now(), free)
            || self.compacting.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let (compacting, retry) = (Arc::clone(&self.compacting), Arc::clone(&self.retry));
        let driver = Arc::clone(self.driver());
        let task = spawn(&**self.driver(), "kv-compact", async move {
            let done = work();
            retry.lock().ended(driver.now(), free, done.is_ok());
            if let Err(error) = done {
                tracing::warn!(%error, "a background task for room failed");
            }
            compacting.store(false, Ordering::Release);
        });
        *self.compacting_task.lock() = Some(task);
    }

    /// The writes of `overlay` as a `WriteBatch` of RocksDB.
    fn to_write_batch(&self, overlay: &Overlay) -> WriteBatch {
        let mut batch = self.batches.lock().pop().unwrap_or_default();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        batch.clear();
        if overlay.is_cleared() {
            batch.delete_range(&[CLIENT_KEY_PREFIX], &[CLIENT_KEYS_END]);
            self.deletes.fetch_add(DELETES_OF_A_CLEAR, Ordering::Relaxed);
        }
        for (name, record) in overlay.entries() {
            key.clear();
            key.push(CLIENT_KEY_PREFIX);
            key.extend_from_slice(name);
            match record {
                Some(record) => {
                    value.clear();
                    value.extend_from_slice(record.header().as_bytes());
                    value.extend_from_slice(&record.value);
                    batch.put(&key, &value);
                }
                None => {
                    batch.delete(&key);
                    self.deletes.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        batch
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.fs.driver()
    }
}

impl Store for RocksStore {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let value = with_prefix(key, |key| self.database.db().get(key))
            .map_err(|e| store_error("reading a key", &e))?;
        found(value.as_deref());
        Ok(())
    }

    fn multi_get(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut all = Vec::with_capacity(keys.iter().map(|k| k.len() + 1).sum());
        for key in keys {
            all.push(CLIENT_KEY_PREFIX);
            all.extend_from_slice(key);
        }
        let mut rest = &all[..];
        let mut names = Vec::with_capacity(keys.len());
        for key in keys {
            let (name, tail) = rest.split_at(key.len() + 1);
            names.push(name);
            rest = tail;
        }
        let values = self.database.db().multi_get(&names).map_err(|e| store_error("reading keys", &e))?;
        for (n, value) in values.iter().enumerate() {
            found(n, value.as_deref());
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        const DOING: &str = "scanning the keys";
        let mut cursor =
            with_prefix(from, |from| self.database.db().iter(from)).map_err(|e| store_error(DOING, &e))?;
        while let Some((&CLIENT_KEY_PREFIX, key)) =
            cursor.valid().then(|| cursor.key().split_first()).flatten()
        {
            if visit(key, cursor.value()) == ControlFlow::Break(()) {
                break;
            }
            cursor.next();
        }
        cursor.status().map_err(|e| store_error(DOING, &e))
    }

    fn write(&self, overlay: &Overlay, sync: bool) -> Writing<'_> {
        let mut batch = self.to_write_batch(overlay);
        let options = WriteOptions { synced: sync, writers: overlay.pipelines(), ..WriteOptions::UNSYNCED };
        Box::pin(async move {
            let written = self.database.write_ordered(&mut batch, options).await;
            let small = batch.byte_size() <= SPARE_BATCH_BYTES;
            let mut batches = self.batches.lock();
            if small && batches.len() < SPARE_BATCHES {
                batches.push(batch);
            }
            written
        })
    }

    fn wal(&self) -> WalMode {
        self.database.wal()
    }

    fn takes_more_batches(&self) -> bool {
        self.database.takes_more_batches()
    }

    fn log(&self) -> Option<LogReport> {
        Some(LogReport { log: self.database.log_stats()?, held: self.database.held_records()? })
    }

    fn key_estimate(&self) -> u64 {
        // The stored key of the layout's version is not a key of a client.
        self.numeric_property("rocksdb.estimate-num-keys").saturating_sub(1)
    }

    fn used_memory(&self) -> u64 {
        let parts = [
            "rocksdb.cur-size-all-mem-tables",
            "rocksdb.block-cache-usage",
            "rocksdb.estimate-table-readers-mem",
        ];
        parts.into_iter().map(|part| self.numeric_property(part)).sum()
    }

    fn sync(&self) -> Result<()> {
        self.database.sync()
    }

    fn room(&self) -> Option<Room> {
        let room = Room { free: self.fs.statfs().free, reserve: self.reserve };
        if room.is_short() {
            self.compact_for_room();
        }
        if self.database.db().is_bound() {
            self.restore_compaction_limit();
        }
        Some(room)
    }

    fn describe(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("wal".to_owned(), self.database.wal().to_string()),
            ("keys_estimate".to_owned(), self.key_estimate().to_string()),
        ];
        for (name, property) in [
            ("memtable_bytes", "rocksdb.cur-size-all-mem-tables"),
            ("table_bytes", "rocksdb.total-sst-files-size"),
            ("block_cache_bytes", "rocksdb.block-cache-usage"),
            ("running_flushes", "rocksdb.num-running-flushes"),
            ("running_compactions", "rocksdb.num-running-compactions"),
            ("background_errors", "rocksdb.background-errors"),
        ] {
            if let Some(value) = self.database.db().property(property) {
                lines.push((name.to_owned(), value));
            }
        }
        let stat = self.fs.statfs();
        let mut put = |name: &str, value: u64| lines.push((name.to_owned(), value.to_string()));
        put("drive_capacity_bytes", stat.capacity.0);
        put("drive_used_bytes", stat.used.0);
        put("drive_garbage_bytes", stat.garbage.0);
        put("drive_files", stat.files);
        put("zones_metadata", u64::from(stat.zones.metadata));
        put("zones_log", u64::from(stat.zones.log));
        put("zones_data", u64::from(stat.zones.data));
        put("zones_free", u64::from(stat.zones.free));
        put("zones_worn", u64::from(stat.zones.worn));
        put("zones_open", u64::from(stat.zones.open));
        lines
    }

    fn close(&self) -> Result<()> {
        if let Some(task) = self.compacting_task.lock().take() {
            block_on(&**self.driver(), task);
        }
        self.database.close()
    }
}

/// Calls `then` with `key` prefixed by the first byte of clients' keys.
fn with_prefix<R>(key: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
    let mut short = [CLIENT_KEY_PREFIX; STACK_KEY_LEN];
    match short.get_mut(1..=key.len()) {
        Some(tail) => {
            tail.copy_from_slice(key);
            then(short.get(..=key.len()).unwrap_or_default())
        }
        None => {
            let mut long = Vec::with_capacity(key.len() + 1);
            long.push(CLIENT_KEY_PREFIX);
            long.extend_from_slice(key);
            then(&long)
        }
    }
}

fn store_error(doing: &'static str, error: &rocks::Error) -> Error {
    Error::rocks(doing, error)
}
