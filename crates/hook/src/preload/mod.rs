//! Functions of the C library, interposed by LD_PRELOAD. Without the variables of [`pathprio::settings`] each calls the C library's function and does
//! nothing else.
//!
//! ```text
//!   interpose/     the exported functions: names and arguments
//!   calls          what comes before and after a call
//!   process        what a process has: rules, drives, counters; its start, its forks and its end
//!   drive          a drive: its page, the admission of bulk
//!   table          the class of each descriptor
//!   kernel         system calls
//!   symbols errno  the C library's own functions; errno
//! ```
//!
//! Guarantees to the program that is preloaded:
//!
//! - A function does what the C library's does, with the same result and `errno`. A failure of ours is never an error of the call: the call goes without a class.
//! - Calls before this library's constructor, and in a child of `vfork`, go through untouched.
//! - Calls for files without a class, and all calls for logs, take no lock and allocate nothing: a signal handler or the child of a fork may make
//!   them. A bulk write allocates, unless no log is active, so it must not come from a signal handler that interrupted `malloc`.
//! - A thread that is cancelled within a call keeps the call's priority until it ends.
//!
//! Not interposed: system calls without the C library (static programs, Go, `syscall`), io_uring, libaio, `mmap`, and what the C library does within itself
//! but for `fwrite`, `fflush` and `fclose`.

mod calls;
mod drive;
mod errno;
mod interpose;
mod kernel;
mod process;
mod symbols;
mod table;
