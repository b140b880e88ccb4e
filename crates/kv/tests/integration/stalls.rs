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

/// Writers whose log is faster than a flush are slowed down before memtables are full, and only then.
#[test]
fn writers_of_a_parallel_log_are_slowed_before_memtables_are_full() {
    // 64 MB in memtables of 1 MiB; a few kB in one that is never full.
    assert!(slowed_writes(WalMode::Waltz, 100_000).unwrap() > 0);
    assert_eq!(slowed_writes(WalMode::Waltz, 10), Some(0));
    assert_eq!(slowed_writes(WalMode::Group, 10), None);
}

/// Eight clients, one SET after the other each. How many writes were slowed, as INFO says it.
fn slowed_writes(wal: WalMode, value: usize) -> Option<u64> {
    // A flush writes one piece after the other, the log has a record of each client in flight.
    let latency = Latency { write: Duration::from_millis(5), ..Latency::NONE };
    let device: Arc<dyn ZonedDevice> =
        Emu::memory(EmuOptions { latency, ..drive(64, 16) }, RealDriver::new());
    let fs = mount(device, true);
    let options = RocksStoreOptions { write_buffer: Some(1 << 20), wal, ..RocksStoreOptions::default() };
    let store = Arc::new(RocksStore::open(&fs, "/db", &options).unwrap());
    let store: Arc<dyn Store> = store;
    let engine = Engine::start(Arc::clone(&store), Arc::clone(fs.driver()), EngineOptions::default());
    let value = "v".repeat(value);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (engine, value) = (&engine, &value);
            scope.spawn(move || {
                for n in 0..80 {
                    assert_eq!(ask(engine, &[&format!("SET key{client}-{n} {value}")]), [ok()]);
                }
            });
        }
    });
    let described = store.describe();
    engine.close().unwrap();
    unmount(&fs);
    let slowed = described.into_iter().find(|(name, _)| name == "slowed_writes");
    slowed.map(|(_, count)| count.parse().unwrap())
}
