//! Integration tests of the engine. They are one program, because linking a program for each file takes longer than the
//! tests of most files.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]
#![allow(clippy::disallowed_methods, reason = "RocksDB's own threads run on the real clock")]

mod clients;
mod common;
mod cut;
mod database;
mod marks;
mod parallel_wal;
mod parallel_wal_defects;
mod rocks_store;
mod stalls;
