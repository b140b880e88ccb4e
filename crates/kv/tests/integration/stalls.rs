//! A write stall delays batches, and does not block the thread that has them in flight.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests with real threads and files"
)]

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::*;
use kv::parallel_wal::WalMode;
use kv::*;
use units::RealDriver;
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, Latency};

const PIPELINES: usize = 240;
const VALUE_LEN: usize = 200_000;

/// The engine's only writer has batches in flight that wait for a flush of the drive, and comes to a batch whose
/// memtable is full. RocksDB's flush of that memtable waits for the same flush of the drive.
#[test]
fn a_write_stall_and_the_flush_that_ends_it_do_not_wait_for_each_other() {
    for wal in [WalMode::Waltz, WalMode::Auto] {
        let (to, done) = mpsc::channel();
        // Run the test in a separate thread, so that a hang makes it fail.
        std::thread::spawn(move || {
            run_stall(wal);
            to.send(()).unwrap();
        });
        let ended = done.recv_timeout(TEST_TIMEOUT);
        assert!(ended.is_ok(), "{wal}: the writer and RocksDB's flush wait for each other");
    }
}

fn run_stall(wal: WalMode) {
    let latency =
        Latency { write: Duration::from_micros(200), flush: Duration::from_millis(3), ..Latency::NONE };
    let device = Emu::memory(EmuOptions { volatile_cache: true, latency, ..drive(64, 4) }, RealDriver::new());
    let device: Arc<dyn ZonedDevice> = device;
    let fs = mount(device, true);
    let options = RocksStoreOptions { write_buffer: Some(1 << 20), wal, ..RocksStoreOptions::default() };
    let store = Arc::new(RocksStore::open(&fs, "/db", &options).unwrap());
    let options = EngineOptions { writers: Some(1), ..EngineOptions::default() };
    let engine = Engine::start(store, Arc::clone(fs.driver()), options);
    let value = |n: usize| format!("{n:08}").repeat(VALUE_LEN / 8);
    let waiting: Vec<_> =
        (0..PIPELINES).map(|n| send(&engine, &[&format!("SET key{n} {}", value(n))])).collect();
    for replies in waiting {
        assert_eq!(replies.recv_timeout(TEST_TIMEOUT).unwrap(), [ok()]);
    }
    for n in (0..PIPELINES).step_by(17) {
        assert_eq!(ask(&engine, &[&format!("GET key{n}")]), [bulk(&value(n))]);
    }
    engine.close().unwrap();
    unmount(&fs);
}
