//! The RocksDB database with the tables of all groups of a process.

use std::sync::Arc;
use std::time::Duration;

use fs::Fs;
use parking_lot::{Condvar, Mutex};
use rocks::{Db, DbOptions, FlushEvents, WriteBatch};

use crate::rules::Rules;

/// The longest wait between the end of a flush and RocksDB's report of it.
const REPORT_WAIT: Duration = Duration::from_secs(60);

/// RocksDB's result, with the error's text.
pub(super) type Outcome<T> = std::result::Result<T, String>;

/// The settings of a process's tables.
#[derive(Clone, Debug)]
pub struct TablesOptions {
    /// Bytes of a memtable. Default: 64 MiB.
    pub write_buffer: usize,
    /// Bytes of the block cache. Default: 64 MiB.
    pub block_cache: usize,
    /// The safety rule that is broken.
    #[cfg(feature = "broken-rules")]
    pub broken_rule: Option<crate::BrokenRule>,
}

impl Default for TablesOptions {
    fn default() -> TablesOptions {
        TablesOptions {
            write_buffer: 64 << 20,
            block_cache: 64 << 20,
            #[cfg(feature = "broken-rules")]
            broken_rule: None,
        }
    }
}

impl TablesOptions {
    /// The settings with a memtable and a block cache of these numbers of bytes.
    pub fn new(write_buffer: usize, block_cache: usize) -> TablesOptions {
        let mut options = TablesOptions::default();
        (options.write_buffer, options.block_cache) = (write_buffer, block_cache);
        options
    }

    fn rules(&self) -> Rules {
        Rules {
            #[cfg(feature = "broken-rules")]
            broken: self.broken_rule,
        }
    }
}

/// The sequence number up to which RocksDB has reported the records as durable.
#[derive(Default)]
struct Durable {
    upto: Mutex<u64>,
    raised: Condvar,
}

impl FlushEvents for Durable {
    fn begins(&self) {}

    fn family_flushed(&self, family: Option<u32>, largest: u64) {
        if family == Some(0) {
            let mut upto = self.upto.lock();
            *upto = largest.max(*upto);
            self.raised.notify_all();
        }
    }
}

/// One RocksDB database without a log of its own: the groups' log has the entries until a flush has made them durable here.
///
/// Crash safety: a crash leaves the batches up to one of them, each wholly, and at least those that a finished [`flush`](TablesDb::flush) covered.
pub struct TablesDb {
    db: Db,
    pub(super) rules: Rules,
    durable: Arc<Durable>,
}

impl TablesDb {
    /// Opens the database in the directory `path`, or creates it.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn open(fs: &Fs, path: &str, options: &TablesOptions) -> crate::Result<Arc<TablesDb>> {
        let settings = DbOptions {
            write_buffer: options.write_buffer,
            block_cache: options.block_cache,
            unlogged: true,
            ..DbOptions::default()
        };
        let opened = Db::open(fs, path, &settings);
        let db =
            opened.map_err(|error| crate::Error::TablesDb { path: path.into(), why: error.to_string() })?;
        let durable = Arc::new(Durable::default());
        db.set_flush_events(Arc::clone(&durable) as Arc<dyn FlushEvents>);
        Ok(Arc::new(TablesDb { db, rules: options.rules(), durable }))
    }

    /// Closes the database. What no flush has made durable is in the groups' log.
    ///
    /// # Errors
    /// RocksDB's.
    pub fn close(&self) -> crate::Result<()> {
        let closed = self.db.close();
        closed.map_err(|error| crate::Error::TablesDb {
            path: "the process's tables".into(),
            why: error.to_string(),
        })
    }

    /// Bytes of memtables, block cache, indexes and filters.
    pub fn used_memory(&self) -> u64 {
        let names = [
            "rocksdb.cur-size-all-mem-tables",
            "rocksdb.estimate-table-readers-mem",
            "rocksdb.block-cache-usage",
        ];
        names.iter().filter_map(|name| self.db.property(name)?.parse::<u64>().ok()).sum()
    }

    /// Estimated number of keys of all groups.
    pub(super) fn key_estimate(&self) -> u64 {
        self.db.property("rocksdb.estimate-num-keys").and_then(|keys| keys.parse().ok()).unwrap_or(0)
    }

    pub(super) fn rocks(&self) -> &Db {
        &self.db
    }

    /// Applies a batch whose last change is a put. Returns that change's sequence number.
    pub(super) fn apply(&self, batch: &mut WriteBatch) -> Outcome<u64> {
        self.db.apply(batch.data(), false, None).map_err(|error| error.to_string())
    }

    /// Flushes the memtables of all groups, and waits until RocksDB has reported every record up to a sequence number as durable.
    pub(super) fn flush(&self, upto: u64) -> Outcome<()> {
        if self.rules.trusts_memtables() || *self.durable.upto.lock() >= upto {
            return Ok(());
        }
        self.db.flush_all().map_err(|error| error.to_string())?;
        let mut durable = self.durable.upto.lock();
        while *durable < upto {
            if self.durable.raised.wait_for(&mut durable, REPORT_WAIT).timed_out() {
                return Err(format!(
                    "RocksDB ended a flush, and has reported records up to {} of {upto} as durable",
                    *durable
                ));
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for TablesDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tables of all groups, durable up to {}", self.durable.upto.lock())
    }
}
