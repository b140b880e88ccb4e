//! Rust declarations of the functions and structs in `cpp/db.h`.

use std::ffi::{c_char, c_void};
use std::marker::{PhantomData, PhantomPinned};
use std::ptr;
use std::slice;

use abi::FurrowFs;

use crate::error::{Error, ErrorKind, Result};

macro_rules! opaque {
    ($($name:ident),*) => {
        $(#[repr(C)]
        pub(crate) struct $name {
            data: [u8; 0],
            marker: PhantomData<(*mut u8, PhantomPinned)>,
        })*
    };
}
opaque!(RocksDb, RocksPin, RocksCursor, RocksBatch);

#[repr(C)]
pub(crate) struct RocksStatus {
    code: i32,
    retryable: u8,
    reserved: [u8; 3],
    message: *mut c_char,
    message_len: usize,
}

#[repr(C)]
pub(crate) struct RocksOptions {
    pub write_buffer: u64,
    pub block_cache: u64,
    pub table_size: u64,
    pub compaction_read: u64,
    pub write_buffers: i32,
    pub background_jobs: i32,
    pub compression: u8,
    pub expiry: u8,
    pub create: u8,
    pub keep_recovered: u8,
    pub unlogged: u8,
    pub adds: u8,
    pub families: u8,
    pub prepopulate: u8,
    pub events: FlushCalls,
}

/// Rust side of `FurrowFlushEvents` in `cpp/unlogged.h`.
#[repr(C)]
pub(crate) struct FlushCalls {
    pub context: *mut c_void,
    pub begins: extern "C" fn(*mut c_void),
    pub family_flushed: extern "C" fn(*mut c_void, u32, u64),
    pub stalls: extern "C" fn(*mut c_void, i32),
    pub fails: extern "C" fn(*mut c_void),
}

/// Flags of `rocks_apply`: skip records of families that do not exist; fail with busy instead of waiting in a write
/// stall.
pub(crate) const ROCKS_IGNORE_MISSING: u8 = 1;
pub(crate) const ROCKS_NO_WAIT: u8 = 2;

/// Rust side of `FurrowMark` in `cpp/unlogged.h`.
#[repr(C)]
pub(crate) struct RocksMark {
    pub ticket: u64,
    pub floor: u64,
    pub raise: u8,
    pub reserved: [u8; 7],
}

/// Rust side of `RocksWriteTimes` in `cpp/perf.h`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct WriteNanos {
    pub wait: u64,
    pub log: u64,
    pub memtable: u64,
    pub delay: u64,
    pub schedule: u64,
    pub rest: u64,
}

/// A borrowed byte string that crosses to C++. Valid as long as the bytes it was made from, or as `db.h` says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RocksSlice {
    pub data: *const c_char,
    pub len: usize,
}

impl RocksSlice {
    pub const EMPTY: RocksSlice = RocksSlice { data: ptr::null(), len: 0 };

    pub fn of(bytes: &[u8]) -> RocksSlice {
        RocksSlice { data: bytes.as_ptr().cast(), len: bytes.len() }
    }

    /// The slice's bytes.
    ///
    /// # Safety
    /// The bytes that the slice was made from live, unchanged, as long as `'a`.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the caller guarantees that the bytes at `data` live unchanged during `'a`.
        unsafe { slice::from_raw_parts(self.data.cast(), self.len) }
    }
}

#[expect(improper_ctypes, reason = "C++ only hands a FurrowFs back")]
unsafe extern "C" {
    pub(crate) fn rocks_free(message: *mut c_char);
    pub(crate) fn rocks_open(
        fs: *mut FurrowFs,
        path: RocksSlice,
        options: *const RocksOptions,
        out: *mut *mut RocksDb,
    ) -> RocksStatus;
    pub(crate) fn rocks_open_host(
        path: RocksSlice,
        options: *const RocksOptions,
        out: *mut *mut RocksDb,
    ) -> RocksStatus;
    pub(crate) fn rocks_host_replay(db: *const RocksDb, nanos: *mut u64, bytes: *mut u64);
    pub(crate) fn rocks_close(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_write(db: *mut RocksDb, batch: *mut RocksBatch, sync: u8) -> RocksStatus;
    pub(crate) fn rocks_apply(
        db: *mut RocksDb,
        batch: RocksSlice,
        flags: u8,
        mark: *const RocksMark,
        last: *mut u64,
    ) -> RocksStatus;
    pub(crate) fn rocks_flush_all(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_empty_memtables(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_marks_floor(db: *mut RocksDb, has: *mut u8, floor: *mut u64) -> RocksStatus;
    pub(crate) fn rocks_is_marked(db: *mut RocksDb, ticket: u64, marked: *mut u8) -> RocksStatus;
    pub(crate) fn rocks_set_marks_floor(db: *mut RocksDb, floor: u64) -> RocksStatus;
    pub(crate) fn rocks_drop_marks(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_get(
        db: *mut RocksDb,
        key: RocksSlice,
        pin: *mut *mut RocksPin,
        value: *mut RocksSlice,
    ) -> RocksStatus;
    pub(crate) fn rocks_multi_get(
        db: *mut RocksDb,
        keys: *const RocksSlice,
        n: usize,
        pins: *mut *mut RocksPin,
        values: *mut RocksSlice,
    ) -> RocksStatus;
    pub(crate) fn rocks_pin_free(pin: *mut RocksPin);
    pub(crate) fn rocks_cursor(db: *mut RocksDb, family: u32, from: RocksSlice) -> *mut RocksCursor;
    pub(crate) fn rocks_cursor_free(cursor: *mut RocksCursor);
    pub(crate) fn rocks_cursor_seek(cursor: *mut RocksCursor, key: RocksSlice);
    pub(crate) fn rocks_cursor_next(cursor: *mut RocksCursor);
    pub(crate) fn rocks_cursor_entry(
        cursor: *const RocksCursor,
        key: *mut RocksSlice,
        value: *mut RocksSlice,
    ) -> u8;
    pub(crate) fn rocks_cursor_status(cursor: *const RocksCursor) -> RocksStatus;
    pub(crate) fn rocks_property(db: *mut RocksDb, name: RocksSlice, len: *mut usize) -> *mut c_char;
    pub(crate) fn rocks_time_writes(on: u8);
    pub(crate) fn rocks_take_write_times(out: *mut WriteNanos);
    pub(crate) fn rocks_flush(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_sync_wal(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_compact(db: *mut RocksDb, most: u64) -> RocksStatus;
    pub(crate) fn rocks_is_bound(db: *mut RocksDb) -> u8;
    pub(crate) fn rocks_unbound(db: *mut RocksDb) -> RocksStatus;
    pub(crate) fn rocks_batch_new() -> *mut RocksBatch;
    pub(crate) fn rocks_batch_of(data: RocksSlice) -> *mut RocksBatch;
    pub(crate) fn rocks_batch_free(batch: *mut RocksBatch);
    pub(crate) fn rocks_batch_put(batch: *mut RocksBatch, key: RocksSlice, value: RocksSlice) -> RocksStatus;
    pub(crate) fn rocks_batch_delete(batch: *mut RocksBatch, key: RocksSlice) -> RocksStatus;
    pub(crate) fn rocks_batch_delete_range(
        batch: *mut RocksBatch,
        from: RocksSlice,
        to: RocksSlice,
    ) -> RocksStatus;
    pub(crate) fn rocks_batch_single_delete(batch: *mut RocksBatch, key: RocksSlice) -> RocksStatus;
    pub(crate) fn rocks_batch_merge(
        batch: *mut RocksBatch,
        key: RocksSlice,
        value: RocksSlice,
    ) -> RocksStatus;
    pub(crate) fn rocks_batch_log_data(batch: *mut RocksBatch, data: RocksSlice) -> RocksStatus;
    pub(crate) fn rocks_batch_set_save_point(batch: *mut RocksBatch);
    pub(crate) fn rocks_batch_rollback(batch: *mut RocksBatch) -> RocksStatus;
    pub(crate) fn rocks_batch_data(batch: *const RocksBatch) -> RocksSlice;
    pub(crate) fn rocks_batch_clear(batch: *mut RocksBatch);
    pub(crate) fn rocks_batch_count(batch: *const RocksBatch) -> usize;
    pub(crate) fn rocks_batch_bytes(batch: *const RocksBatch) -> usize;
}

impl RocksStatus {
    /// Converts a status to a result; `doing` names the operation in the error's message.
    pub fn check(self, doing: impl FnOnce() -> String) -> Result<()> {
        if self.code == 0 {
            return Ok(());
        }
        let kind = match self.code {
            2 => ErrorKind::Corrupt,
            3 => ErrorKind::Invalid,
            4 => ErrorKind::Io,
            5 => ErrorKind::NoSpace,
            6 => ErrorKind::Busy,
            _ => ErrorKind::Other,
        };
        let message = RocksSlice { data: self.message, len: self.message_len };
        // SAFETY: a status's message lives until it is freed below.
        let message = String::from_utf8_lossy(unsafe { message.bytes() }).into_owned();
        // SAFETY: the status's message is freed once; null is allowed.
        unsafe { rocks_free(self.message) };
        Err(Error::rocksdb(&doing(), kind, self.retryable != 0, &message))
    }
}
