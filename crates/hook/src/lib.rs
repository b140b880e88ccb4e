//! The shared library `libfurrow_prio.so`.
//!
//! `preload`: functions of the C library, interposed: files of unmodified programs get an I/O priority by their paths (`furrow prio run`).
//!
//! No crate may link this one: a program that does has its own `open` and `write` interposed. The rules are in `pathprio`.
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "the exported functions, which call the rest, are not those of the test's program"
    )
)]

mod preload;
