//! Integration tests of the program `furrow`. They are one test program, because linking a program for each file takes longer
//! than the tests of most files.

mod array;
mod bench;
mod bench_shared_drive;
mod cli;
mod common;
mod export;
mod figures;
mod leveldb;
mod prio;
mod scripts;
mod serve_tls;
