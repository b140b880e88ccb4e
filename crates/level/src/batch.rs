//! Write batches: several changes that are applied atomically.

use std::ptr::NonNull;

use crate::ffi::{self, RawBatch};

/// A batch of changes for [`Db::write`](crate::Db::write). Reusable after [`clear`](WriteBatch::clear).
#[derive(Debug)]
pub struct WriteBatch(NonNull<RawBatch>);

// SAFETY: the batch is owned, and LevelDB's WriteBatch may be used from any thread, one at a time.
unsafe impl Send for WriteBatch {}

impl WriteBatch {
    /// A write batch without changes.
    pub fn new() -> WriteBatch {
        // SAFETY: makes a new batch; `new` in C++ never gives null.
        let raw = unsafe { ffi::leveldb_writebatch_create() };
        WriteBatch(NonNull::new(raw).expect("C++'s new gives memory or ends the process"))
    }

    /// Adds a change that sets a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        let (raw, key_at, value_at) = (self.0.as_ptr(), key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: the batch is alive and owned by `self`; key and value live during the call, which copies them.
        unsafe { ffi::leveldb_writebatch_put(raw, key_at, key.len(), value_at, value.len()) };
    }

    /// Adds a change that removes a key. A missing key is no error.
    pub fn delete(&mut self, key: &[u8]) {
        // SAFETY: the batch is alive and owned by `self`; the key lives during the call, which copies it.
        unsafe { ffi::leveldb_writebatch_delete(self.0.as_ptr(), key.as_ptr().cast(), key.len()) };
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        // SAFETY: the batch is alive and owned by `self`.
        unsafe { ffi::leveldb_writebatch_clear(self.0.as_ptr()) };
    }

    /// The batch for LevelDB's Write, which numbers the batch but does not keep it.
    pub(crate) fn raw(&mut self) -> *mut RawBatch {
        self.0.as_ptr()
    }
}

impl Default for WriteBatch {
    fn default() -> WriteBatch {
        WriteBatch::new()
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        // SAFETY: the batch is freed once.
        unsafe { ffi::leveldb_writebatch_destroy(self.0.as_ptr()) };
    }
}
