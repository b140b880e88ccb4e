//! Values that stay in RocksDB's own memory.

use std::ops::Deref;
use std::ptr::NonNull;

use crate::ffi::{self, RocksPin, RocksSlice};

/// A database's value, borrowed from the block cache without a copy where possible. A `Pinned` holds its block until
/// dropped, and may outlive the database.
pub struct Pinned {
    pin: NonNull<RocksPin>,
    value: RocksSlice,
}

// SAFETY: a pin is owned, its bytes never change, and a block may be released by any thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access to a pin only reads bytes that never change.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Wraps the result of a get: `None` for a missing key.
    ///
    /// # Safety
    /// `pin` is null or a pin that nothing else frees, and `value` is its value.
    pub(crate) unsafe fn from_raw(pin: *mut RocksPin, value: RocksSlice) -> Option<Pinned> {
        NonNull::new(pin).map(|pin| Pinned { pin, value })
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pin keeps the bytes alive and unchanged as long as `self`.
        unsafe { self.value.bytes() }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the pin is freed once, and its value is not used afterwards.
        unsafe { ffi::rocks_pin_free(self.pin.as_ptr()) };
    }
}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", &**self)
    }
}
