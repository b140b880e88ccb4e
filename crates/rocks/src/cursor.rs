//! Database cursors: iteration over keys in order.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::db::{Db, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::{self, RocksCursor, RocksSlice};

/// A position in the database, in key order, over a snapshot taken when the cursor was made (RocksDB's Iterator).
///
/// While a cursor lives its database cannot be closed. A cursor that is not [`valid`](Cursor::valid) is past the end
/// or has failed: [`status`](Cursor::status) returns the error.
pub struct Cursor {
    raw: NonNull<RocksCursor>,
    entry: Option<(RocksSlice, RocksSlice)>,
    db: Arc<Inner>,
}

// SAFETY: the cursor is owned, and RocksDB's iterators may be used from any thread, one at a time.
unsafe impl Send for Cursor {}
// SAFETY: shared access to a cursor reads only the status and the bytes of the entry, which live until the cursor
// moves.
unsafe impl Sync for Cursor {}

impl Db {
    /// A cursor at the first key that is not below `from`, over a snapshot of the database as it is now.
    pub fn iter(&self, from: &[u8]) -> Result<Cursor> {
        self.iter_in(0, from)
    }

    /// Like [`iter`](Db::iter), in a column family: 0 is the default one, the numbers above are those of
    /// [`DbOptions::families`](crate::DbOptions::families).
    pub fn iter_in(&self, family: u32, from: &[u8]) -> Result<Cursor> {
        let handle = self.inner.open_handle()?;
        self.inner.cursors.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the database is open while the guard lives, and afterwards because the cursor is counted.
        let raw = unsafe { ffi::rocks_cursor(handle.0, family, RocksSlice::of(from)) };
        if raw.is_null() {
            self.inner.cursors.fetch_sub(1, Ordering::Release);
            let text = format!("reading column family {family} of {}: it was not opened", self.inner.path);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(Cursor::from_raw(raw, Arc::clone(&self.inner)))
    }
}

impl Cursor {
    /// Wraps a C++ cursor that `db.cursors` counts already.
    fn from_raw(raw: *mut RocksCursor, db: Arc<Inner>) -> Cursor {
        let raw = NonNull::new(raw).expect("C++'s new gives memory or ends the process");
        let mut cursor = Cursor { raw, entry: None, db };
        cursor.load_entry();
        cursor
    }

    /// Whether the cursor is at an entry.
    pub fn valid(&self) -> bool {
        self.entry.is_some()
    }

    /// The key of the cursor's entry; empty if the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        // SAFETY: the key's bytes live until the cursor moves, and a move needs a mutable borrow of the cursor.
        self.entry.map_or(&[], |(key, _)| unsafe { key.bytes() })
    }

    /// The value of the cursor's entry; empty if the cursor is not valid.
    pub fn value(&self) -> &[u8] {
        // SAFETY: the value's bytes live until the cursor moves, and a move needs a mutable borrow of the cursor.
        self.entry.map_or(&[], |(_, value)| unsafe { value.bytes() })
    }

    /// Moves the cursor to the next entry.
    pub fn next(&mut self) {
        // SAFETY: the cursor is alive and borrowed exclusively.
        unsafe { ffi::rocks_cursor_next(self.raw.as_ptr()) };
        self.load_entry();
    }

    /// Moves the cursor to the first key that is not below `key`.
    pub fn seek(&mut self, key: &[u8]) {
        // SAFETY: the cursor is alive and borrowed exclusively; the key lives during the call.
        unsafe { ffi::rocks_cursor_seek(self.raw.as_ptr(), RocksSlice::of(key)) };
        self.load_entry();
    }

    /// The first error that the cursor met while reading, if any.
    pub fn status(&self) -> Result<()> {
        // SAFETY: the cursor is alive; the call only reads.
        let status = unsafe { ffi::rocks_cursor_status(self.raw.as_ptr()) };
        status.check(|| String::from("reading in key order"))
    }

    fn load_entry(&mut self) {
        let (mut key, mut value) = (RocksSlice::EMPTY, RocksSlice::EMPTY);
        // SAFETY: the cursor is alive and borrowed exclusively.
        let valid = unsafe { ffi::rocks_cursor_entry(self.raw.as_ptr(), &raw mut key, &raw mut value) };
        self.entry = (valid != 0).then_some((key, value));
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: the cursor is freed once, before the database may close.
        unsafe { ffi::rocks_cursor_free(self.raw.as_ptr()) };
        self.db.cursors.fetch_sub(1, Ordering::Release);
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cursor in {:?}, {}", self.db, if self.valid() { "at an entry" } else { "at no entry" })
    }
}
