//! Database cursors: iteration over keys in order.

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::error::Result;
use crate::ffi::{self, RawIterator};

/// A position in the database, in key order, over a snapshot taken when the cursor was made (LevelDB's Iterator).
///
/// A cursor that is not [`valid`](Cursor::valid) is past the end or has failed: [`status`](Cursor::status) returns the error.
#[derive(Debug)]
pub struct Cursor<'a> {
    raw: NonNull<RawIterator>,
    /// The borrow of the database: LevelDB's iterators must be freed before it.
    db: PhantomData<&'a ()>,
}

impl<'a> Cursor<'a> {
    /// Takes over `raw`, an iterator of a database that is borrowed as long as `'a`.
    pub(crate) fn new(raw: *mut RawIterator) -> Cursor<'a> {
        let raw = NonNull::new(raw).expect("C++'s new gives memory or ends the process");
        Cursor { raw, db: PhantomData }
    }

    /// Whether the cursor is at an entry.
    pub fn valid(&self) -> bool {
        // SAFETY: the iterator is alive; the call only reads.
        unsafe { ffi::leveldb_iter_valid(self.raw.as_ptr()) != 0 }
    }

    /// The key of the cursor's entry; empty if the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        self.part(ffi::leveldb_iter_key)
    }

    /// The value of the cursor's entry; empty if the cursor is not valid.
    pub fn value(&self) -> &[u8] {
        self.part(ffi::leveldb_iter_value)
    }

    fn part(
        &self,
        read: unsafe extern "C" fn(*const RawIterator, *mut usize) -> *const std::ffi::c_char,
    ) -> &[u8] {
        if !self.valid() {
            return &[];
        }
        let mut len = 0;
        // SAFETY: the iterator is alive and at an entry, as LevelDB wants it.
        let data = unsafe { read(self.raw.as_ptr(), &raw mut len) };
        // SAFETY: the entry's bytes live until the iterator moves, and a move needs a mutable borrow of the cursor.
        unsafe { ffi::bytes(data, len) }
    }

    /// Moves the cursor to the next entry. Does nothing at a cursor that is not valid.
    pub fn next(&mut self) {
        if self.valid() {
            // SAFETY: the iterator is alive, borrowed exclusively and at an entry, as LevelDB wants it.
            unsafe { ffi::leveldb_iter_next(self.raw.as_ptr()) };
        }
    }

    /// The first error that the cursor met while reading, if any.
    pub fn status(&self) -> Result<()> {
        let doing = || String::from("reading in key order");
        // SAFETY: the iterator is alive; the call only reads.
        ffi::check(doing, |error| unsafe { ffi::leveldb_iter_get_error(self.raw.as_ptr(), error) })
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator is freed once, before its database.
        unsafe { ffi::leveldb_iter_destroy(self.raw.as_ptr()) };
    }
}
