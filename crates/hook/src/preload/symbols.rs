//! The functions of the C library that ours stand before.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::c_void;

/// A function of the C library, looked up at its first call.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// The function of that name.
    pub const fn named(name: &'static CStr) -> Symbol {
        Symbol { name, address: AtomicPtr::new(null_mut()) }
    }

    /// The function's address; null if no library has it. Two threads may look it up at once, and find the same.
    pub fn address(&self) -> *mut c_void {
        let known = self.address.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with a zero byte, and RTLD_NEXT is a valid handle for a caller in a shared library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Relaxed);
        found
    }
}
