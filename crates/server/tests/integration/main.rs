//! Integration tests of the server. They are one program, because linking a program for each file takes longer than the
//! tests of most files.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests over real sockets and processes"
)]

mod common;

mod clients;
mod cluster;
mod differential;
mod metrics;
mod protocol;
mod signals;
mod tls;
mod tools;
mod transactions;
