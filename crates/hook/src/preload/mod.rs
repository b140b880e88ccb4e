//! Functions of the C library, interposed by LD_PRELOAD. Without the variables of [`pathprio::settings`] each calls the C library's function and does
//! nothing else.
//!
//! ```text
//!   interpose/     the exported functions: names and arguments
//!   calls          what comes before and after a call
//!   requests       the same for requests of libaio
//!   process        what a process has: rules, drives, counters; its start, its forks and its end
//!   drive          a drive: its page, the admission of bulk
//!   table          the class of each descriptor
//!   kernel         system calls
//!   memory         allocations
//!   symbols errno  the C library's own functions; errno
//! ```
//!
//! Guarantees to the program that is preloaded:
//!
//! - A function does what the C library's does, with the same result and `errno`. A failure of ours is never an error of the call: the call goes without a class.
//! - Errors of write-back are the program's. No call of ours takes them from the kernel, which reports each once: write-behind begins write-back, and looks at its progress by `cachestat`.
//! - Calls before this library's constructor, and in a child of `vfork`, go through untouched; but the counters have a log's writes and syncs of such a child as its parent's.
//! - No call takes a lock, the loader's included, or calls `malloc`: a signal handler or the child of a fork may make them. The functions of the C library are resolved by the constructor.
//! - Our own writes raise no signal and do not wait: counters go to a file, or to stderr where it has room.
//! - A thread that leaves a call by `siglongjmp` has its own priority again at its next call of a file with a class that is not deeper on the stack. Its bulk call counts as in flight for
//!   two minutes after the process's last bulk. One that is cancelled within a call keeps the call's priority until it ends. If either used the admission of bulk, the process's bulk waits 1 ms a write from then on,
//!   and is held no more.
//!
//! Not interposed: system calls without the C library (static programs, Go, `syscall`), io_uring, `mmap`, and what the C library does within itself. Of a stream's functions `fwrite` counts, and has
//! the class; bytes by `fprintf`, `fputs` or `putc` are not counted, and go to the file at the thread's own priority, by `fflush` and `fclose` too.

mod calls;
mod drive;
mod errno;
mod interpose;
mod kernel;
mod memory;
mod process;
mod requests;
mod symbols;
mod table;

/// Runs before the program's `main`, and after calls that other libraries' constructors make.
extern "C" fn start() {
    let errno = errno::get();
    interpose::resolve_symbols();
    errno::set(errno);
    process::start();
}

/// Runs at the process's end.
extern "C" fn end() {
    process::finish();
}

#[cfg(not(test))]
#[used]
// SAFETY: the section holds functions without arguments, which the dynamic loader calls once.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(not(test))]
#[used]
// SAFETY: as for `.init_array`, at the process's end.
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

#[cfg(test)]
const _: [extern "C" fn(); 2] = [start, end];
