//! Several changes that happen together or not at all.

use std::ptr::NonNull;

use crate::error::Result;
use crate::ffi::{self, RocksBatch, RocksSlice};

/// A batch of changes for [`Db::write`](crate::Db::write). Reusable after [`clear`](WriteBatch::clear).
pub struct WriteBatch(NonNull<RocksBatch>);

// SAFETY: the batch is owned, and RocksDB's WriteBatch may be used from any thread, one at a time.
unsafe impl Send for WriteBatch {}
// SAFETY: through a shared reference it is only read (const methods, which RocksDB declares thread-safe).
unsafe impl Sync for WriteBatch {}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> WriteBatch {
        // SAFETY: makes a new batch; `new` in C++ never gives null.
        let raw = unsafe { ffi::rocks_batch_new() };
        WriteBatch(NonNull::new(raw).expect("C++'s new gives memory or ends the process"))
    }

    /// A batch in RocksDB's serialisation, as [`data`](WriteBatch::data) gives it. Writing it fails where it is none.
    pub fn from_data(data: &[u8]) -> WriteBatch {
        // SAFETY: the bytes live during the call, which copies them; `new` in C++ never gives null.
        let raw = unsafe { ffi::rocks_batch_of(RocksSlice::of(data)) };
        WriteBatch(NonNull::new(raw).expect("C++'s new gives memory or ends the process"))
    }

    /// Sets a key. Keys and values are up to 4 GiB; a longer one is the caller's error, and panics.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: the batch is alive and ours; the slices live during the call, which copies them.
        let status = unsafe { ffi::rocks_batch_put(self.raw(), RocksSlice::of(key), RocksSlice::of(value)) };
        fits(status.check(|| String::from("adding a put to a batch")));
    }

    /// Removes a key, whether or not it is there.
    pub fn delete(&mut self, key: &[u8]) {
        // SAFETY: as for `put`.
        let status = unsafe { ffi::rocks_batch_delete(self.raw(), RocksSlice::of(key)) };
        fits(status.check(|| String::from("adding a delete to a batch")));
    }

    /// Removes the keys from `from` (included) to `to` (excluded); nothing if `to` is not above `from`.
    pub fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        if from >= to {
            return;
        }
        // SAFETY: as for `put`.
        let status =
            unsafe { ffi::rocks_batch_delete_range(self.raw(), RocksSlice::of(from), RocksSlice::of(to)) };
        fits(status.check(|| String::from("adding a range delete to a batch")));
    }

    /// Removes a key that was put once since it was removed last.
    pub fn single_delete(&mut self, key: &[u8]) {
        // SAFETY: as for `put`.
        let status = unsafe { ffi::rocks_batch_single_delete(self.raw(), RocksSlice::of(key)) };
        fits(status.check(|| String::from("adding a single delete to a batch")));
    }

    /// Adds to a key's value by the database's merge operator.
    pub fn merge(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: as for `put`.
        let status =
            unsafe { ffi::rocks_batch_merge(self.raw(), RocksSlice::of(key), RocksSlice::of(value)) };
        fits(status.check(|| String::from("adding a merge to a batch")));
    }

    /// Adds bytes that go to the log alone.
    pub fn log_data(&mut self, data: &[u8]) {
        // SAFETY: as for `put`.
        let status = unsafe { ffi::rocks_batch_log_data(self.raw(), RocksSlice::of(data)) };
        fits(status.check(|| String::from("adding log data to a batch")));
    }

    /// Remembers this state for [`rollback`](WriteBatch::rollback).
    pub fn set_save_point(&mut self) {
        // SAFETY: the batch is alive and ours.
        unsafe { ffi::rocks_batch_set_save_point(self.raw()) };
    }

    /// Goes back to the state that was remembered last, and forgets it. Fails where none was.
    pub fn rollback(&mut self) -> Result<()> {
        // SAFETY: the batch is alive and ours.
        unsafe { ffi::rocks_batch_rollback(self.raw()) }
            .check(|| String::from("going back to a batch's save point"))
    }

    /// The batch in RocksDB's serialisation, as its log has it.
    pub fn data(&mut self) -> &[u8] {
        // SAFETY: the bytes stay while the batch is borrowed exclusively: a change or a write needs it itself.
        unsafe { ffi::rocks_batch_data(self.raw()).bytes() }
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        // SAFETY: the batch is alive and ours.
        unsafe { ffi::rocks_batch_clear(self.raw()) };
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        // SAFETY: the batch is alive.
        unsafe { ffi::rocks_batch_count(self.raw()) }
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that the log will take.
    pub fn byte_size(&self) -> usize {
        // SAFETY: the batch is alive.
        unsafe { ffi::rocks_batch_bytes(self.raw()) }
    }

    pub(crate) fn raw(&self) -> *mut RocksBatch {
        self.0.as_ptr()
    }
}

/// A batch refuses only what is above 4 GiB.
fn fits(added: Result<()>) {
    added.expect("keys and values are below 4 GiB");
}

impl Default for WriteBatch {
    fn default() -> WriteBatch {
        WriteBatch::new()
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        // SAFETY: freed once.
        unsafe { ffi::rocks_batch_free(self.raw()) };
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} changes, {} bytes", self.len(), self.byte_size())
    }
}
