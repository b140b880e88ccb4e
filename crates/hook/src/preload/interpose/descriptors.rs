//! Functions that close and duplicate descriptors.

use libc::{c_int, c_uint};

use crate::preload::calls::{changed_flags, closing, closing_range, duplicated};

interpose! {
    fn close(fd: c_int) -> c_int = |real| {
        closing(fd);
        real()
    };
    fn dup(fd: c_int) -> c_int = |real| duplicated(fd, real());
    fn dup2(fd: c_int, to: c_int) -> c_int = |real| duplicated(fd, real());
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int = |real| duplicated(fd, real());
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =
        |real| after_fcntl(fd, command, argument, real());
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int =
        |real| after_fcntl(fd, command, argument, real());
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = |real| {
        // With flags the descriptors stay, or are closed in a table of their own.
        if flags == 0 {
            closing_range(first, last);
        }
        real()
    };
    fn closefrom(first: c_int) -> () = |real| {
        closing_range(first.max(0).cast_unsigned(), c_uint::MAX);
        real();
    };
}

fn after_fcntl(fd: c_int, command: c_int, argument: usize, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        libc::F_SETFL if result == 0 => {
            // The flags are a C int.
            changed_flags(fd, argument as c_int);
            result
        }
        _ => result,
    }
}
