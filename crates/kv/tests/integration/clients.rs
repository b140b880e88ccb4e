//! Tests with many clients at once, for each log: acknowledged writes survive power cuts and failures of the drive.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "tests with real threads and files"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::common::*;
use fs::Fs;
use kv::parallel_wal::WalMode;
use kv::*;
use parking_lot::Mutex;
use units::RealDriver;
use zoned::ZonedDevice;
use zoned::emu::{Emu, FaultOp, FaultSpec, Latency, Media, Seeded};

const COUNTERS: usize = 3;
const CLIENTS: usize = 6;

/// The increments that clients requested, and the replies.
#[derive(Default)]
struct IncrementLog {
    asked: [AtomicI64; COUNTERS],
    acknowledged: [AtomicI64; COUNTERS],
    /// The replies to the increments of each counter.
    replies: [Mutex<Vec<i64>>; COUNTERS],
    refused: AtomicI64,
    stop: AtomicBool,
}

impl IncrementLog {
    fn get(counts: &[AtomicI64; COUNTERS]) -> Vec<i64> {
        counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    }

    /// Runs one client: increments, and writes of two keys in one pipeline, until `stop` is set.
    fn run_client(&self, engine: &Engine, me: usize) {
        for n in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let counter = (n + me) % COUNTERS;
            let pair = format!("MSET left{me} {n} right{me} {n}");
            self.asked[counter].fetch_add(1, Ordering::SeqCst);
            let replies = match n % 3 {
                0 => ask(engine, &[&format!("INCR n{counter}"), &pair]),
                _ => ask(engine, &[&format!("INCR n{counter}")]),
            };
            match replies[0] {
                Reply::Integer(value) => {
                    self.acknowledged[counter].fetch_add(1, Ordering::SeqCst);
                    self.replies[counter].lock().push(value);
                }
                _ => drop(self.refused.fetch_add(1, Ordering::SeqCst)),
            }
        }
    }

    /// Runs the clients while `meanwhile` runs.
    fn run_clients<R>(&self, engine: &Engine, meanwhile: impl FnOnce() -> R) -> R {
        std::thread::scope(|scope| {
            for me in 0..CLIENTS {
                scope.spawn(move || self.run_client(engine, me));
            }
            let result = meanwhile();
            self.stop.store(true, Ordering::SeqCst);
            result
        })
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(std::time::Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn read_number(engine: &Engine, key: &str) -> i64 {
    let value = engine.read(|txn| txn.value(key.as_bytes())).unwrap();
    value.map_or(0, |record| parse_integer(&record.value).unwrap())
}

fn reopen(media: Media) -> Fs {
    mount(Emu::from_media(media, "after", Latency::default(), RealDriver::new()), false)
}

#[test]
fn counters_of_many_clients_are_exact_over_power_cuts_and_their_pairs_whole() {
    for (seed, wal) in (0..6).zip(WalMode::ALL.into_iter().cycle()) {
        let emu = Emu::memory(drive(64, 4), RealDriver::new());
        let fs = mount(Arc::clone(&emu) as Arc<dyn ZonedDevice>, true);
        let engine = engine(&fs, wal);
        let increments = IncrementLog::default();
        let (least, media, most) = increments.run_clients(&engine, || {
            wait_until("writes go on", || {
                IncrementLog::get(&increments.acknowledged).iter().sum::<i64>() > 300
            });
            let least = IncrementLog::get(&increments.acknowledged);
            let media = emu.media().cut(&mut Seeded::new(seed));
            (least, media, IncrementLog::get(&increments.asked))
        });
        for counter in 0..COUNTERS {
            // Each value of the counter was the reply to exactly one increment.
            let replies = increments.replies[counter].lock();
            let distinct: BTreeSet<i64> = replies.iter().copied().collect();
            assert_eq!(distinct, (1..=replies.len() as i64).collect(), "{wal}");
            assert_eq!(read_number(&engine, &format!("n{counter}")), replies.len() as i64, "{wal}");
        }
        assert_eq!(increments.refused.load(Ordering::SeqCst), 0, "{wal}");
        engine.close().unwrap();
        unmount(&fs);

        let fs = reopen(media);
        let engine = crate::common::engine(&fs, wal);
        for counter in 0..COUNTERS {
            let value = read_number(&engine, &format!("n{counter}"));
            let range = least[counter]..=most[counter];
            assert!(
                range.contains(&value),
                "{wal}, seed {seed}: counter {counter} is {value}, not in {range:?}"
            );
        }
        for me in 0..CLIENTS {
            let (left, right) =
                (read_number(&engine, &format!("left{me}")), read_number(&engine, &format!("right{me}")));
            assert_eq!(left, right, "{wal}, seed {seed}: a write of two keys is stored in part");
        }
        engine.close().unwrap();
        unmount(&fs);
    }
}

#[test]
fn flushall_under_load_leaves_no_earlier_key() {
    for wal in WalMode::ALL {
        let emu = Emu::memory(drive(64, 4), RealDriver::new());
        let fs = mount(emu, true);
        let engine = engine(&fs, wal);
        let increments = IncrementLog::default();
        increments.run_clients(&engine, || {
            for _ in 0..20 {
                let before = IncrementLog::get(&increments.acknowledged).iter().sum::<i64>();
                wait_until("writes go on", || {
                    IncrementLog::get(&increments.acknowledged).iter().sum::<i64>() > before + 10
                });
                assert_eq!(
                    ask(&engine, &["FLUSHALL", "DBSIZE", "GET n0"])[1..],
                    [Reply::Integer(0), Reply::Null]
                );
            }
        });
        for me in 0..CLIENTS {
            assert_eq!(
                read_number(&engine, &format!("left{me}")),
                read_number(&engine, &format!("right{me}")),
                "{wal}"
            );
        }
        assert_eq!(increments.refused.load(Ordering::SeqCst), 0, "{wal}");
        engine.close().unwrap();
        unmount(&fs);
    }
}

#[test]
fn a_failed_drive_gives_errors_and_no_false_reply() {
    for wal in WalMode::ALL {
        let emu = Emu::memory(drive(64, 4), RealDriver::new());
        let fs = mount(Arc::clone(&emu) as Arc<dyn ZonedDevice>, true);
        let engine = engine(&fs, wal);
        let increments = IncrementLog::default();
        increments.run_clients(&engine, || {
            wait_until("writes go on", || {
                IncrementLog::get(&increments.acknowledged).iter().sum::<i64>() > 100
            });
            emu.fail(FaultSpec::all(FaultOp::Write));
            wait_until("writes fail", || increments.refused.load(Ordering::SeqCst) > 50);
        });
        assert!(engine.failure().is_some(), "{wal}");
        let replies = ask(&engine, &["GET n0", "SET n0 0"]);
        let acknowledged = IncrementLog::get(&increments.acknowledged);
        assert_eq!(
            replies[0],
            bulk(&acknowledged[0].to_string()),
            "{wal}: a write that was not acknowledged is read"
        );
        assert!(
            matches!(&replies[1], Reply::Error(text) if text.starts_with("MISCONF")),
            "{wal}: {replies:?}"
        );
        let media = emu.media().cut(&mut Seeded::new(1));
        emu.clear_faults();
        let _poisoned = engine.close();
        let _poisoned = units::block_on(&**fs.driver(), fs.unmount());
        drop((engine, fs));

        let fs = reopen(media);
        let engine = crate::common::engine(&fs, wal);
        let most = IncrementLog::get(&increments.asked);
        for counter in 0..COUNTERS {
            let value = read_number(&engine, &format!("n{counter}"));
            assert!(
                (acknowledged[counter]..=most[counter]).contains(&value),
                "{wal}: counter {counter} is {value}"
            );
        }
        engine.close().unwrap();
        unmount(&fs);
    }
}

#[test]
fn a_parallel_log_goes_on_after_one_failed_append() {
    for wal in [WalMode::Waltz, WalMode::Auto] {
        let emu = Emu::memory(drive(64, 4), RealDriver::new());
        let fs = mount(Arc::clone(&emu) as Arc<dyn ZonedDevice>, true);
        let engine = engine(&fs, wal);
        assert_eq!(ask(&engine, &["SET a 1"]), [ok()]);
        emu.fail(FaultSpec::next(FaultOp::Write).landed());
        // The log's second attempt of the append goes to another zone.
        assert_eq!(ask(&engine, &["INCR a", "SET b 1"]), [Reply::Integer(2), ok()], "{wal}");
        assert_eq!((engine.failure(), engine.log().unwrap().log.voids), (None, 1), "{wal}");
        assert_eq!(ask(&engine, &["INCR a"]), [Reply::Integer(3)]);
        let media = emu.media().cut(&mut Seeded::new(1));
        engine.close().unwrap();
        unmount(&fs);
        let fs = reopen(media);
        let engine = crate::common::engine(&fs, wal);
        assert_eq!((read_number(&engine, "a"), read_number(&engine, "b")), (3, 1), "{wal}");
        engine.close().unwrap();
        unmount(&fs);
    }
}

#[test]
fn a_slow_drive_makes_writers_wait_and_loses_nothing() {
    let value = "x".repeat(4000);
    for wal in WalMode::ALL {
        let latency = Latency { write: Duration::from_micros(300), ..Latency::default() };
        let options = zoned::emu::EmuOptions { latency, ..drive(64, 4) };
        let emu = Emu::memory(options, RealDriver::new());
        let fs = mount(emu, true);
        // The memtables are so small that RocksDB makes writers wait for flushes.
        let options = RocksStoreOptions { wal, write_buffer: Some(64 << 10), ..RocksStoreOptions::default() };
        let store = RocksStore::open(&fs, "/db", &options).unwrap();
        let engine = Engine::start(Arc::new(store), Arc::clone(fs.driver()), EngineOptions::default());
        std::thread::scope(|scope| {
            for me in 0..CLIENTS {
                let (engine, value) = (&engine, &value);
                scope.spawn(move || {
                    for n in 0..60 {
                        assert_eq!(ask(engine, &[&format!("SET k{me}:{n} {value}")]), [ok()], "{wal}");
                    }
                });
            }
        });
        assert_eq!(ask(&engine, &["DBSIZE"]), [Reply::Integer(CLIENTS as i64 * 60)], "{wal}");
        engine.close().unwrap();
        unmount(&fs);
    }
}
