//! `errno`, which calls of ours must leave as it is.

use libc::c_int;

/// The calling thread's `errno`.
pub fn get() -> c_int {
    // SAFETY: the C library gives each thread a valid address for its errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub fn set(value: c_int) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value }
}
