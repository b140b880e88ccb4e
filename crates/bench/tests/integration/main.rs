//! Integration tests of the measurements, in one program: linking takes longer than the tests.

mod auto;
mod cluster;
mod share;
mod turns;
mod wal;
