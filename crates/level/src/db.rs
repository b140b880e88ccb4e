//! A LevelDB database on a mounted file system.

use std::ffi::{CString, c_int};
use std::ptr;

use abi::{FurrowFs, Replays};
use fs::Fs;

use crate::batch::WriteBatch;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::ffi::{self, RawCache, RawDb, RawEnv, RawFilter, RawOptions, RawReadOptions, RawWriteOptions};
use crate::options::DbOptions;

/// An open LevelDB database. All methods may be called from any thread. Dropping it waits for compactions that run, and closes the
/// database; unsynced writes are then in the file system's buffers, which its unmount makes durable.
#[derive(Debug)]
pub struct Db {
    path: String,
    raw: *mut RawDb,
    synced: *mut RawWriteOptions,
    unsynced: *mut RawWriteOptions,
    reads: *mut RawReadOptions,
    _parts: Parts,
}

/// The options, block cache, filter policy and Env of an open database. LevelDB uses them until the database is closed: a [`Db`] closes the
/// database first, and its fields are dropped afterwards.
#[derive(Debug)]
struct Parts {
    options: *mut RawOptions,
    cache: *mut RawCache,
    filter: *mut RawFilter,
    env: *mut RawEnv,
}

// SAFETY: leveldb::DB may be used from any thread, by many threads at once; the options are only read.
unsafe impl Send for Db {}
// SAFETY: leveldb::DB may be used by many threads at once; the options are only read.
unsafe impl Sync for Db {}

impl Drop for Parts {
    fn drop(&mut self) {
        // SAFETY: each part was made by `Parts::new` and is freed once, after the database that used it. A null filter was never
        // made.
        unsafe {
            ffi::leveldb_options_destroy(self.options);
            ffi::leveldb_cache_destroy(self.cache);
            if !self.filter.is_null() {
                ffi::leveldb_filterpolicy_destroy(self.filter);
            }
            ffi::leveldb_env_destroy(self.env);
        }
    }
}

impl Parts {
    /// Options for a database with the files of `env`, with a block cache and a filter policy of their own.
    fn new(env: *mut RawEnv, given: &DbOptions) -> Parts {
        // SAFETY: each call makes an object; `new` in C++ never gives null.
        unsafe {
            let options = ffi::leveldb_options_create();
            let cache = ffi::leveldb_cache_create_lru(given.block_cache);
            let filter = match given.bloom_bits {
                0 => ptr::null_mut(),
                bits => ffi::leveldb_filterpolicy_create_bloom(c_int::from(bits)),
            };
            ffi::leveldb_options_set_env(options, env);
            ffi::leveldb_options_set_create_if_missing(options, u8::from(given.create));
            // A log that ends within a record is no damage for LevelDB. Everything else is reported.
            ffi::leveldb_options_set_paranoid_checks(options, 1);
            ffi::leveldb_options_set_write_buffer_size(options, given.write_buffer);
            ffi::leveldb_options_set_max_file_size(options, given.table_size);
            let compression = if given.compression { ffi::SNAPPY } else { ffi::NO_COMPRESSION };
            ffi::leveldb_options_set_compression(options, compression);
            ffi::leveldb_options_set_cache(options, cache);
            ffi::leveldb_options_set_filter_policy(options, filter);
            Parts { options, cache, filter, env }
        }
    }
}

impl Db {
    /// Opens the database in the directory `path` of the file system `fs`, or creates it. LevelDB writes what its log holds to tables.
    ///
    /// # Errors
    /// LevelDB's, among them that of a database that somebody has open.
    pub fn open(fs: &Fs, path: &str, options: &DbOptions) -> Result<Db> {
        let fs = FurrowFs::borrowed(fs.clone(), Replays::default());
        // SAFETY: C++ owns the handle from here on.
        let env = unsafe { ffi::furrow_level_env(fs, options.table_size as u64) };
        Db::open_with(env, path, options)
    }

    /// Opens or creates a database in the host's own directory `path`, with the same settings, as a baseline for measurements.
    ///
    /// # Errors
    /// As [`open`](Db::open).
    pub fn open_on_host(path: &str, options: &DbOptions) -> Result<Db> {
        // SAFETY: makes an Env that names LevelDB's own.
        Db::open_with(unsafe { ffi::furrow_level_host_env() }, path, options)
    }

    fn open_with(env: *mut RawEnv, path: &str, options: &DbOptions) -> Result<Db> {
        let parts = Parts::new(env, options);
        let name = CString::new(path).map_err(|_| Error::Path(path.to_owned()))?;
        // SAFETY: options and name live during the call; what the options name outlives the database.
        let open = |error| unsafe { ffi::leveldb_open(parts.options, name.as_ptr(), error) };
        let raw = ffi::check(|| format!("opening the database in {path}"), open)?;
        // SAFETY: each call makes an object; `new` in C++ never gives null.
        let (synced, unsynced, reads) = unsafe {
            let synced = ffi::leveldb_writeoptions_create();
            ffi::leveldb_writeoptions_set_sync(synced, 1);
            let reads = ffi::leveldb_readoptions_create();
            ffi::leveldb_readoptions_set_verify_checksums(reads, u8::from(options.verify_checksums));
            (synced, ffi::leveldb_writeoptions_create(), reads)
        };
        Ok(Db { path: path.to_owned(), raw, synced, unsynced, reads, _parts: parts })
    }

    /// Applies a batch atomically. With `sync`, the batch and every earlier write are durable on return. A power cut leaves a prefix of the
    /// writes.
    ///
    /// # Errors
    /// LevelDB's. After a write whose append to the log failed, every later one fails too until the database is opened again.
    pub fn write(&self, batch: &mut WriteBatch, sync: bool) -> Result<()> {
        let options = if sync { self.synced } else { self.unsynced };
        let doing = || format!("writing to {}", self.path);
        // SAFETY: the database, its options and the batch are alive; Write does not keep the batch.
        ffi::check(doing, |error| unsafe { ffi::leveldb_write(self.raw, options, batch.raw(), error) })
    }

    /// The value of a key, or `None` if the key does not exist.
    ///
    /// # Errors
    /// LevelDB's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (at, mut len) = (key.as_ptr().cast(), 0);
        // SAFETY: the database and its options are alive; the key lives during the call.
        let get =
            |error| unsafe { ffi::leveldb_get(self.raw, self.reads, at, key.len(), &raw mut len, error) };
        let value = ffi::check(|| format!("reading a key of {}", self.path), get)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: LevelDB wrote `len` bytes at `value`, which live until they are freed below.
        let copy = unsafe { ffi::bytes(value, len) }.to_vec();
        // SAFETY: the value came from LevelDB and is freed once.
        unsafe { ffi::leveldb_free(value.cast()) };
        Ok(Some(copy))
    }

    /// A cursor at the first key that is not below `from`, over a snapshot of the database as it is now.
    pub fn iter(&self, from: &[u8]) -> Cursor<'_> {
        // SAFETY: the database and its options are alive.
        let raw = unsafe { ffi::leveldb_create_iterator(self.raw, self.reads) };
        // SAFETY: the iterator is alive, and the key lives during the call.
        unsafe { ffi::leveldb_iter_seek(raw, from.as_ptr().cast(), from.len()) };
        Cursor::new(raw)
    }

    /// Writes the memtable to a table and merges all levels that hold anything. Makes nothing durable for sure: LevelDB skips the memtable of
    /// a call that meets a write of another thread.
    pub fn compact(&self) {
        // SAFETY: the database is alive; null stands for the first and the last key.
        unsafe { ffi::leveldb_compact_range(self.raw, ptr::null(), 0, ptr::null(), 0) };
    }

    /// The value of a property of LevelDB, such as `leveldb.stats`; `None` if LevelDB has no such property.
    pub fn property(&self, name: &str) -> Option<String> {
        let name = CString::new(name).ok()?;
        // SAFETY: the database is alive; the name lives during the call.
        let text = unsafe { ffi::leveldb_property_value(self.raw, name.as_ptr()) };
        if text.is_null() {
            return None;
        }
        // SAFETY: LevelDB wrote a C string, which lives until it is freed below.
        let copy = unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: the text came from LevelDB and is freed once.
        unsafe { ffi::leveldb_free(text.cast()) };
        Some(copy)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: the database is freed once, after its cursors, which borrow it, and before what it uses.
        unsafe {
            ffi::leveldb_close(self.raw);
            ffi::leveldb_writeoptions_destroy(self.synced);
            ffi::leveldb_writeoptions_destroy(self.unsynced);
            ffi::leveldb_readoptions_destroy(self.reads);
        }
    }
}
