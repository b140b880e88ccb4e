//! Rust declarations of the functions of LevelDB's C interface that this crate calls, and of `cpp/mounted_env.cc`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};
use std::ptr;

use abi::FurrowFs;

use crate::error::{Error, Result};

macro_rules! opaque {
    ($($name:ident),*) => {
        $(#[repr(C)]
        pub(crate) struct $name {
            data: [u8; 0],
            marker: PhantomData<(*mut u8, PhantomPinned)>,
        })*
    };
}
opaque!(
    RawDb,
    RawEnv,
    RawOptions,
    RawReadOptions,
    RawWriteOptions,
    RawCache,
    RawFilter,
    RawIterator,
    RawBatch
);

pub(crate) const NO_COMPRESSION: c_int = 0;
pub(crate) const SNAPPY: c_int = 1;

#[expect(improper_ctypes, reason = "C++ only hands a FurrowFs back")]
unsafe extern "C" {
    pub(crate) fn furrow_level_env(fs: *mut FurrowFs, table_size: u64) -> *mut RawEnv;
    pub(crate) fn furrow_level_host_env() -> *mut RawEnv;
}

unsafe extern "C" {
    pub(crate) fn leveldb_env_destroy(env: *mut RawEnv);
    pub(crate) fn leveldb_options_create() -> *mut RawOptions;
    pub(crate) fn leveldb_options_destroy(options: *mut RawOptions);
    pub(crate) fn leveldb_options_set_env(options: *mut RawOptions, env: *mut RawEnv);
    pub(crate) fn leveldb_options_set_create_if_missing(options: *mut RawOptions, on: u8);
    pub(crate) fn leveldb_options_set_paranoid_checks(options: *mut RawOptions, on: u8);
    pub(crate) fn leveldb_options_set_write_buffer_size(options: *mut RawOptions, bytes: usize);
    pub(crate) fn leveldb_options_set_max_file_size(options: *mut RawOptions, bytes: usize);
    pub(crate) fn leveldb_options_set_compression(options: *mut RawOptions, kind: c_int);
    pub(crate) fn leveldb_options_set_cache(options: *mut RawOptions, cache: *mut RawCache);
    pub(crate) fn leveldb_options_set_filter_policy(options: *mut RawOptions, filter: *mut RawFilter);
    pub(crate) fn leveldb_cache_create_lru(bytes: usize) -> *mut RawCache;
    pub(crate) fn leveldb_cache_destroy(cache: *mut RawCache);
    pub(crate) fn leveldb_filterpolicy_create_bloom(bits: c_int) -> *mut RawFilter;
    pub(crate) fn leveldb_filterpolicy_destroy(filter: *mut RawFilter);
    pub(crate) fn leveldb_readoptions_create() -> *mut RawReadOptions;
    pub(crate) fn leveldb_readoptions_destroy(options: *mut RawReadOptions);
    pub(crate) fn leveldb_readoptions_set_verify_checksums(options: *mut RawReadOptions, on: u8);
    pub(crate) fn leveldb_writeoptions_create() -> *mut RawWriteOptions;
    pub(crate) fn leveldb_writeoptions_destroy(options: *mut RawWriteOptions);
    pub(crate) fn leveldb_writeoptions_set_sync(options: *mut RawWriteOptions, on: u8);
    pub(crate) fn leveldb_open(
        options: *const RawOptions,
        name: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut RawDb;
    pub(crate) fn leveldb_close(db: *mut RawDb);
    pub(crate) fn leveldb_write(
        db: *mut RawDb,
        options: *const RawWriteOptions,
        batch: *mut RawBatch,
        error: *mut *mut c_char,
    );
    pub(crate) fn leveldb_get(
        db: *mut RawDb,
        options: *const RawReadOptions,
        key: *const c_char,
        key_len: usize,
        len: *mut usize,
        error: *mut *mut c_char,
    ) -> *mut c_char;
    pub(crate) fn leveldb_compact_range(
        db: *mut RawDb,
        from: *const c_char,
        from_len: usize,
        to: *const c_char,
        to_len: usize,
    );
    pub(crate) fn leveldb_property_value(db: *mut RawDb, name: *const c_char) -> *mut c_char;
    pub(crate) fn leveldb_create_iterator(db: *mut RawDb, options: *const RawReadOptions)
    -> *mut RawIterator;
    pub(crate) fn leveldb_iter_destroy(iterator: *mut RawIterator);
    pub(crate) fn leveldb_iter_valid(iterator: *const RawIterator) -> u8;
    pub(crate) fn leveldb_iter_seek(iterator: *mut RawIterator, key: *const c_char, len: usize);
    pub(crate) fn leveldb_iter_next(iterator: *mut RawIterator);
    pub(crate) fn leveldb_iter_key(iterator: *const RawIterator, len: *mut usize) -> *const c_char;
    pub(crate) fn leveldb_iter_value(iterator: *const RawIterator, len: *mut usize) -> *const c_char;
    pub(crate) fn leveldb_iter_get_error(iterator: *const RawIterator, error: *mut *mut c_char);
    pub(crate) fn leveldb_writebatch_create() -> *mut RawBatch;
    pub(crate) fn leveldb_writebatch_destroy(batch: *mut RawBatch);
    pub(crate) fn leveldb_writebatch_clear(batch: *mut RawBatch);
    pub(crate) fn leveldb_writebatch_put(
        batch: *mut RawBatch,
        key: *const c_char,
        key_len: usize,
        value: *const c_char,
        value_len: usize,
    );
    pub(crate) fn leveldb_writebatch_delete(batch: *mut RawBatch, key: *const c_char, key_len: usize);
    pub(crate) fn leveldb_free(memory: *mut c_void);
}

/// Calls LevelDB with a place for its error; `doing` names the operation in the error's message.
pub(crate) fn check<T>(
    doing: impl FnOnce() -> String,
    call: impl FnOnce(*mut *mut c_char) -> T,
) -> Result<T> {
    let mut error: *mut c_char = ptr::null_mut();
    let result = call(&raw mut error);
    if error.is_null() {
        return Ok(result);
    }
    // SAFETY: LevelDB wrote a C string, which lives until it is freed below.
    let message = unsafe { CStr::from_ptr(error) }.to_string_lossy().into_owned();
    // SAFETY: the message came from LevelDB and is freed once.
    unsafe { leveldb_free(error.cast()) };
    Err(Error::LevelDb { doing: doing(), message })
}

/// The bytes at `data`; none where `len` is 0.
///
/// # Safety
/// `len` bytes at `data` live, unchanged, as long as `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_char, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees that the bytes at `data` live unchanged during `'a`.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}
