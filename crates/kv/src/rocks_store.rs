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

use fs::Fs;
use parking_lot::Mutex;
use rocks::{DbOptions, WriteBatch};
use units::Bytes;
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::overlay::Overlay;
use crate::parallel_wal::{Database, DatabaseOptions, OpenParallelWal, WalMode, WriteOptions, log_limits};
use crate::record::HEADER_LEN;
use crate::room_compaction::{COMPACTION_TABLES, DELETES_OF_A_CLEAR, RoomCompaction};
use crate::store::{LogReport, Room, Store, View, Visit, Writing};

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
/// - half the output of one compaction. A compaction has `COMPACTION_TABLES` tables as input and keeps them until its end; a
///   compaction for room drops about half of its input.
const RESERVE_SHARE: u64 = 3;

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
    compaction: RoomCompaction,
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
        let database = Arc::new(database);
        let store = RocksStore {
            compaction: RoomCompaction::new(&database, fs, write_buffer as u64, table, zone),
            database,
            fs: fs.clone(),
            reserve: Bytes(reserve),
            batches: Mutex::default(),
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
        let stored = self.database.db().get(FORMAT_KEY).map_err(|e| Error::rocks(DOING, &e))?;
        if let Some(stored) = stored {
            let version = stored.get(HEADER_LEN..).and_then(|v| v.try_into().ok()).map(u32::from_le_bytes);
            return match version {
                Some(FORMAT_VERSION) => Ok(()),
                Some(found) => Err(Error::Version { found, known: FORMAT_VERSION }),
                None => Err(Error::corrupt(FORMAT_KEY, format!("{} bytes", stored.len()))),
            };
        }
        let cursor = self.database.db().iter(b"").map_err(|e| Error::rocks(DOING, &e))?;
        cursor.status().map_err(|e| Error::rocks(DOING, &e))?;
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

    /// The writes of `overlay` as a `WriteBatch` of RocksDB.
    fn to_write_batch(&self, overlay: &Overlay) -> WriteBatch {
        let mut batch = self.batches.lock().pop().unwrap_or_default();
        let (mut key, mut value, mut deletes) = (Vec::new(), Vec::new(), 0);
        batch.clear();
        if overlay.is_cleared() {
            batch.delete_range(&[CLIENT_KEY_PREFIX], &[CLIENT_KEYS_END]);
            deletes += DELETES_OF_A_CLEAR;
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
                    deletes += 1;
                }
            }
        }
        if deletes > 0 {
            self.compaction.note_deletes(deletes);
        }
        batch
    }

    /// Writes a batch that shares no key with the other batches in flight. With a parallel log, any number of batches may
    /// be in flight from one thread, and a write stall delays them without blocking the thread. RocksDB's own log blocks
    /// the thread that polls.
    ///
    /// # Errors
    /// After any error but [`Error::Unknown`], the batch never happened and never will have. If the future is dropped, the
    /// batch is written or not.
    async fn write_batch(&self, batch: &mut WriteBatch, options: WriteOptions) -> Result<()> {
        const DOING: &str = "writing a batch";
        let Some(OpenParallelWal { parallel_wal, tables, .. }) = self.database.parallel() else {
            return self.database.db().write(batch, options.synced).map_err(|e| Error::rocks(DOING, &e));
        };
        let batch = batch.data();
        tables.ready(batch.len()).await;
        let written = parallel_wal.write_ordered(batch, options, |mark| tables.apply_soon(batch, mark)).await;
        written.map_err(|e| Error::write(DOING, e))
    }
}

impl Store for RocksStore {
    fn get(&self, key: &[u8], found: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        let value = with_prefix(key, |key| self.database.db().get(key))
            .map_err(|e| Error::rocks("reading a key", &e))?;
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
        let values = self.database.db().multi_get(&names).map_err(|e| Error::rocks("reading keys", &e))?;
        for (n, value) in values.iter().enumerate() {
            found(n, value.as_deref());
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], visit: &mut Visit<'_>) -> Result<()> {
        const DOING: &str = "scanning the keys";
        let mut cursor =
            with_prefix(from, |from| self.database.db().iter(from)).map_err(|e| Error::rocks(DOING, &e))?;
        while let Some((&CLIENT_KEY_PREFIX, key)) =
            cursor.valid().then(|| cursor.key().split_first()).flatten()
        {
            if visit(key, cursor.value()) == ControlFlow::Break(()) {
                break;
            }
            cursor.next();
        }
        cursor.status().map_err(|e| Error::rocks(DOING, &e))
    }

    fn write(&self, overlay: &Overlay, sync: bool, _view: View) -> Writing<'_> {
        let mut batch = self.to_write_batch(overlay);
        let options = WriteOptions { synced: sync, writers: overlay.pipelines(), ..WriteOptions::UNSYNCED };
        Box::pin(async move {
            let written = self.write_batch(&mut batch, options).await;
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
        self.database.parallel().is_none_or(|parallel| parallel.log.appends_at_once())
    }

    fn log(&self) -> Option<LogReport> {
        Some(LogReport { log: self.database.log_stats()?, held: self.database.held_records()? })
    }

    fn key_estimate(&self) -> u64 {
        // The stored key of the layout's version is not a key of a client.
        self.database.numeric_property("rocksdb.estimate-num-keys").saturating_sub(1)
    }

    fn used_memory(&self) -> u64 {
        let parts = [
            "rocksdb.cur-size-all-mem-tables",
            "rocksdb.block-cache-usage",
            "rocksdb.estimate-table-readers-mem",
        ];
        parts.into_iter().map(|part| self.database.numeric_property(part)).sum()
    }

    fn sync(&self) -> Result<()> {
        self.database.sync()
    }

    fn room(&self) -> Option<Room> {
        let room = Room { free: self.fs.statfs().free, reserve: self.reserve };
        if room.is_short() {
            self.compaction.start_if_due();
        }
        self.compaction.restore_limit();
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
        if let Some(parallel) = self.database.parallel() {
            lines.push(("slowed_writes".to_owned(), parallel.tables.slowed().to_string()));
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
        self.compaction.wait();
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
