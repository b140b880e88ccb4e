//! Functions that close and duplicate descriptors.

use libc::{c_int, c_uint};

use crate::preload::calls::{closing, duplicated};

/// Most descriptors of a range that are looked at.
const DESCRIPTORS: c_uint = 1 << 16;

interpose! {
    fn close(fd: c_int) -> c_int = |real| {
        closing(fd);
        real()
    };
    fn dup(fd: c_int) -> c_int = |real| duplicated(fd, real());
    fn dup2(fd: c_int, to: c_int) -> c_int = |real| duplicated(fd, real());
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = |real| duplicated(fd, real());
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =
        |real| after_fcntl(fd, command, real());
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int =
        |real| after_fcntl(fd, command, real());
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = |real| {
        // With flags the descriptors stay, or are closed in a table of their own.
        if flags == 0 {
            closing_range(first, last);
        }
        real()
    };
}

fn after_fcntl(fd: c_int, command: c_int, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        _ => result,
    }
}

fn closing_range(first: c_uint, last: c_uint) {
    for fd in first..=last.min(DESCRIPTORS) {
        closing(fd.cast_signed());
    }
}

/// `closefrom`, which has no result.
///
/// # Safety
/// As the C library's.
// SAFETY: the name is the C library's, and the function does what it does.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    let first = first.max(0).cast_unsigned();
    // SAFETY: the function has the arguments of the C library's.
    unsafe { close_range(first, c_uint::MAX, 0) };
}
