//! Write batches: several changes that are applied atomically.

use std::ptr::NonNull;

use crate::error::Result;
use crate::ffi::{self, RocksBatch, RocksSlice};

/// A batch of changes for [`Db::write`](crate::Db::write). Reusable after [`clear`](WriteBatch::clear).
pub struct WriteBatch(NonNull<RocksBatch>);

// SAFETY: the batch is owned, and RocksDB's WriteBatch may be used from any thread, one at a time.
unsafe impl Send for WriteBatch {}
// SAFETY: a shared reference allows only const methods, which RocksDB declares thread-safe.
unsafe impl Sync for WriteBatch {}

impl WriteBatch {
    /// A write batch without changes.
    pub fn new() -> WriteBatch {
        // SAFETY: makes a new batch; `new` in C++ never gives null.
        let raw = unsafe { ffi::rocks_batch_new() };
        WriteBatch(NonNull::new(raw).expect("C++'s new gives memory or ends the process"))
    }

    /// A batch from RocksDB's serialisation, as [`data`](WriteBatch::data) returns it. If `data` is not a serialised
    /// batch, the later write fails.
    pub fn from_data(data: &[u8]) -> WriteBatch {
        // SAFETY: the bytes live during the call, which copies them; `new` in C++ never gives null.
        let raw = unsafe { ffi::rocks_batch_of(RocksSlice::of(data)) };
        WriteBatch(NonNull::new(raw).expect("C++'s new gives memory or ends the process"))
    }

    /// Adds a change that sets a key. Panics if the key or the value is above 4 GiB.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: the batch is alive and owned by `self`; the slices live during the call, which copies them.
        let status = unsafe { ffi::rocks_batch_put(self.raw(), RocksSlice::of(key), RocksSlice::of(value)) };
        assert_fits(status.check(|| String::from("adding a put to a batch")));
    }

    /// Adds a change that removes a key. A missing key is no error.
    pub fn delete(&mut self, key: &[u8]) {
        // SAFETY: the batch is alive and owned by `self`; the slice lives during the call, which copies it.
        let status = unsafe { ffi::rocks_batch_delete(self.raw(), RocksSlice::of(key)) };
        assert_fits(status.check(|| String::from("adding a delete to a batch")));
    }

    /// Adds a change that removes the keys from `from` (included) to `to` (excluded). Adds nothing if `to` is not above
    /// `from`.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        if from >= to {
            return;
        }
        // SAFETY: the batch is alive and owned by `self`; the slices live during the call, which copies them.
        let status =
            unsafe { ffi::rocks_batch_delete_range(self.raw(), RocksSlice::of(from), RocksSlice::of(to)) };
        assert_fits(status.check(|| String::from("adding a range delete to a batch")));
    }

    /// Adds a change that removes a key that was put exactly once since its last removal (RocksDB's SingleDelete).
    pub fn single_delete(&mut self, key: &[u8]) {
        // SAFETY: the batch is alive and owned by `self`; the slice lives during the call, which copies it.
        let status = unsafe { ffi::rocks_batch_single_delete(self.raw(), RocksSlice::of(key)) };
        assert_fits(status.check(|| String::from("adding a single delete to a batch")));
    }

    /// Adds a change that merges an operand into a key's value by the database's merge operator.
    pub fn merge(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: the batch is alive and owned by `self`; the slices live during the call, which copies them.
        let status =
            unsafe { ffi::rocks_batch_merge(self.raw(), RocksSlice::of(key), RocksSlice::of(value)) };
        assert_fits(status.check(|| String::from("adding a merge to a batch")));
    }

    /// Adds bytes that go to RocksDB's log and are not applied to the database.
    pub fn log_data(&mut self, data: &[u8]) {
        // SAFETY: the batch is alive and owned by `self`; the slice lives during the call, which copies it.
        let status = unsafe { ffi::rocks_batch_log_data(self.raw(), RocksSlice::of(data)) };
        assert_fits(status.check(|| String::from("adding log data to a batch")));
    }

    /// Saves the batch's present state for [`rollback`](WriteBatch::rollback).
    pub fn set_save_point(&mut self) {
        // SAFETY: the batch is alive and owned by `self`.
        unsafe { ffi::rocks_batch_set_save_point(self.raw()) };
    }

    /// Returns the batch to the state that was saved last, and removes that save point. Fails if there is no save
    /// point.
    pub fn rollback(&mut self) -> Result<()> {
        // SAFETY: the batch is alive and owned by `self`.
        unsafe { ffi::rocks_batch_rollback(self.raw()) }
            .check(|| String::from("going back to a batch's save point"))
    }

    /// The batch in RocksDB's serialisation, as RocksDB's log stores it.
    pub fn data(&mut self) -> &[u8] {
        // SAFETY: the batch's bytes live while it is borrowed exclusively, because every change and every write needs a
        // borrow.
        unsafe { ffi::rocks_batch_data(self.raw()).bytes() }
    }

    /// Removes all changes from the batch.
    pub fn clear(&mut self) {
        // SAFETY: the batch is alive and owned by `self`.
        unsafe { ffi::rocks_batch_clear(self.raw()) };
    }

    /// The number of changes in the batch.
    pub fn len(&self) -> usize {
        // SAFETY: the batch is alive.
        unsafe { ffi::rocks_batch_count(self.raw()) }
    }

    /// True if the batch has no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size in bytes of the batch's record in the log.
    pub fn byte_size(&self) -> usize {
        // SAFETY: the batch is alive.
        unsafe { ffi::rocks_batch_bytes(self.raw()) }
    }

    pub(crate) fn raw(&self) -> *mut RocksBatch {
        self.0.as_ptr()
    }
}

/// Panics if a batch refused a change: a batch refuses only keys and values above 4 GiB.
fn assert_fits(added: Result<()>) {
    added.expect("keys and values are below 4 GiB");
}

impl Default for WriteBatch {
    fn default() -> WriteBatch {
        WriteBatch::new()
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        // SAFETY: the batch is freed once, by its owner.
        unsafe { ffi::rocks_batch_free(self.raw()) };
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} changes, {} bytes", self.len(), self.byte_size())
    }
}
