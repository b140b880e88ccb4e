//! The database of a YCSB load: RocksDB or LevelDB on the file system.

use std::time::Duration;

use fs::Fs;
use units::{block_on, sleep_until};

use super::engine::Engine;
use super::load::{Memory, YcsbLoad};
use crate::load::scan;
use crate::{Error, Result};

/// Compactions have ended once no file of the database has changed for this time.
const QUIET: Duration = Duration::from_millis(500);

/// An open database.
#[derive(Debug)]
pub(super) enum Database {
    RocksDb(rocks::Db),
    LevelDb(level::Db),
}

/// A write batch of the database's engine.
pub(super) enum Batch {
    RocksDb(rocks::WriteBatch),
    LevelDb(level::WriteBatch),
}

impl Batch {
    pub(super) fn new(engine: Engine) -> Batch {
        match engine {
            Engine::RocksDb => Batch::RocksDb(rocks::WriteBatch::new()),
            Engine::LevelDb => Batch::LevelDb(level::WriteBatch::new()),
        }
    }
}

impl Database {
    /// Opens the database with its share of the load's memory.
    pub(super) fn open(fs: &Fs, load: &YcsbLoad, memory: &Memory, create: bool) -> Result<Database> {
        let bytes = |size: units::Bytes| usize::try_from(size.0).unwrap_or(usize::MAX);
        let (write_buffer, block_cache) = (bytes(memory.write_buffer), bytes(memory.block_cache));
        Ok(match load.engine {
            Engine::RocksDb => {
                let prepopulate = load.cache_mode.prepopulates();
                let options = rocks::DbOptions {
                    write_buffer,
                    block_cache,
                    prepopulate,
                    table_size: load.table_size.map(|size| size.0),
                    create,
                    ..rocks::DbOptions::default()
                };
                Database::RocksDb(rocks::Db::open(fs, load.engine.path(), &options)?)
            }
            Engine::LevelDb => {
                let defaults = level::DbOptions::default();
                let table_size = load.table_size.map_or(defaults.table_size, bytes);
                let options = level::DbOptions { write_buffer, block_cache, table_size, create, ..defaults };
                Database::LevelDb(level::Db::open(fs, load.engine.path(), &options)?)
            }
        })
    }

    /// Whether the key exists.
    pub(super) fn has(&self, key: &[u8]) -> Result<bool> {
        Ok(match self {
            Database::RocksDb(db) => db.get(key)?.is_some(),
            Database::LevelDb(db) => db.get(key)?.is_some(),
        })
    }

    /// Writes one record by `batch`, which is a batch of this database's engine.
    pub(super) fn put(&self, batch: &mut Batch, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        match (self, batch) {
            (Database::RocksDb(db), Batch::RocksDb(batch)) => {
                batch.clear();
                batch.put(key, value);
                db.write(batch, sync)?;
            }
            (Database::LevelDb(db), Batch::LevelDb(batch)) => {
                batch.clear();
                batch.put(key, value);
                db.write(batch, sync)?;
            }
            _ => return Err(Error::settings("the batch is of another engine than the database")),
        }
        Ok(())
    }

    /// Reads up to `length` records in order of keys. Returns 1 if the first record is missing, else 0.
    pub(super) fn scan(&self, from: &[u8], length: u64) -> Result<u64> {
        match self {
            Database::RocksDb(db) => scan(db.iter(from)?, from, length),
            Database::LevelDb(db) => scan(db.iter(from), from, length),
        }
    }

    /// Closes the database.
    pub(super) fn close(self) -> Result<()> {
        match self {
            Database::RocksDb(db) => db.close()?,
            Database::LevelDb(db) => drop(db),
        }
        Ok(())
    }
}

/// Waits until the engine's background threads change no file of the database any more. Neither engine says that its compactions have ended.
pub(super) fn wait_for_compactions(fs: &Fs, engine: Engine, dilation: u32) -> Result<()> {
    let driver = &**fs.driver();
    let mut before = file_sizes(fs, engine.path())?;
    loop {
        block_on(driver, sleep_until(driver, driver.now().after(QUIET * dilation.max(1))));
        let now = file_sizes(fs, engine.path())?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

/// The names and sizes of the files of the database in the directory `path`, but its text log.
fn file_sizes(fs: &Fs, path: &str) -> Result<Vec<(String, u64)>> {
    let mut sizes = Vec::new();
    for entry in fs.read_dir(path)? {
        // A file may be removed meanwhile.
        if entry.name != "LOG"
            && let Ok(stat) = fs.stat(&format!("{path}/{}", entry.name))
        {
            sizes.push((entry.name, stat.size.0));
        }
    }
    sizes.sort();
    Ok(sizes)
}
