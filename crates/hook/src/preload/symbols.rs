//! The functions of the C library that ours stand before.
//!
//! All are resolved by this library's constructor, whether they are there or not: `dlsym` takes the loader's lock, which another thread may hold for long or wait under,
//! and changes what `dlerror` says.

use std::ffi::CStr;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::c_void;

/// The address in a [`Symbol`] whose function no library has.
const MISSING: *mut c_void = without_provenance_mut(1);

/// A function of the C library.
pub struct Symbol {
    name: &'static CStr,
    /// Null until the function is resolved.
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// The function of that name.
    pub const fn named(name: &'static CStr) -> Symbol {
        Symbol { name, address: AtomicPtr::new(null_mut()) }
    }

    /// The function's address; null if no library has it. Only calls before this library's constructor find it unresolved.
    pub fn address(&self) -> *mut c_void {
        let mut address = self.address.load(Relaxed);
        if address.is_null() {
            address = self.resolve();
        }
        if address == MISSING { null_mut() } else { address }
    }

    /// Two threads may resolve a function at once, to the same address.
    fn resolve(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero byte, and RTLD_NEXT is a valid handle for a caller in a shared library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() { MISSING } else { found };
        self.address.store(address, Relaxed);
        address
    }
}

/// Looks functions up, and takes back what that changed of `dlerror`.
pub fn resolve_all<'a>(symbols: impl IntoIterator<Item = &'a Symbol>) {
    for symbol in symbols {
        symbol.resolve();
    }
    // SAFETY: the function takes no arguments. The message is not read.
    unsafe { libc::dlerror() };
}
