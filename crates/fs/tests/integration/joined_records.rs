//! Tests of the parallel log with `Batching::Auto`: records of concurrent writers share entries.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::common::parallel::{self, PATH, Records, all};
use crate::common::{Drive, bytes};
use fs::wal::LogStats;
use fs::{Batching, ErrorKind, FormatOptions, Fs, MountOptions, ParallelLog, ParallelOptions, Ticket};
use units::{Blocks, Driver, RealDriver, VirtualDriver, block_on, spawn};
use zoned::ZonedDevice;
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency};

fn options() -> EmuOptions {
    EmuOptions { zone_capacity: Blocks(59), max_append: Blocks(8), ..parallel::options() }
}

async fn open_joining_log(fs: &Fs, open: usize) -> Arc<ParallelLog> {
    let (log, _) = fs
        .parallel_log(PATH, &ParallelOptions { open, batching: Batching::Auto, ..ParallelOptions::default() })
        .await
        .unwrap();
    log.append(b"first", true).await.unwrap();
    Arc::new(log)
}

/// Appends records from several writers at once; returns the records in ticket order.
async fn write(fs: &Fs, log: &Arc<ParallelLog>, writers: usize, each: usize, len: usize) -> Records {
    let record = move |writer, n| [bytes(len, writer as u8), format!("{writer} {n}").into_bytes()].concat();
    parallel::append_all(fs, log, (writers, each), 3, record).await
}

/// Writes records, closes the log, and checks that a replay gives them; returns the log's counts.
fn round_trip(options: EmuOptions, open: usize, writers: usize, each: usize, len: usize) -> LogStats {
    let (drive, fs) = Drive::formatted(options);
    let stats = drive.run(async {
        let log = open_joining_log(&fs, open).await;
        let mut written = write(&fs, &log, writers, each, len).await;
        written.insert(0, (Ticket(0), b"first".to_vec()));
        log.close().await.unwrap();
        assert!(all(fs.read_parallel_log(PATH).await.unwrap()).await == written);
        fs.unmount().await.unwrap();
        log.stats()
    });
    drive.check();
    stats
}

#[test]
fn records_that_share_an_entry_are_replayed_one_by_one() {
    for volatile_cache in [false, true] {
        for (writers, each, len) in [(2, 200, 100), (16, 60, 3000), (40, 12, 7000), (3, 20, 90_000)] {
            let stats = round_trip(EmuOptions { volatile_cache, ..options() }, 4096, writers, each, len);
            assert_eq!(stats.records, 1 + (writers * each) as u64);
            assert!(
                len > 7000 || stats.operations() * 10 < stats.records * 7,
                "{writers} writers: {stats:?}"
            );
            assert!(len < 3000 || stats.replaced > 5, "{writers} writers: {stats:?}");
        }
    }
}

#[test]
fn an_entry_that_does_not_fit_fills_the_zone_and_continues_in_the_next_zone() {
    for open in [14, 4] {
        let options = EmuOptions { max_open: Some(open), max_active: Some(open), ..options() };
        let stats = round_trip(options, 4096, 1, 200, 9000);
        // The log writes three blocks for each record, and more only if an entry is split at the end of a
        // zone: no block is left unused.
        assert!(stats.replaced > 8 && stats.blocks <= 1 + 3 * 200 + stats.replaced, "{stats:?}");
    }
}

#[test]
fn a_record_too_long_for_an_entry_is_refused_and_a_long_one_waits_for_earlier_ones() {
    let (drive, fs) = Drive::formatted(EmuOptions { max_append: Blocks(1), ..options() });
    drive.run(async {
        let log = open_joining_log(&fs, 4096).await;
        // The memory of this record is never touched: the record is refused before it is copied.
        let refused = log.append(&vec![0; 300 << 20], true).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
        let written = write(&fs, &log, 3, 6, 40_000).await;
        log.close().await.unwrap();
        let found = all(fs.read_parallel_log(PATH).await.unwrap()).await;
        assert!(found[1..] == written[..], "{} of {} records", found.len(), written.len());
    });
}

#[test]
fn writers_beyond_the_open_tickets_wait_until_tickets_complete() {
    for open in [1, 2, 7] {
        assert_eq!(round_trip(options(), open, 24, 20, 600).records, 481);
    }
}

#[test]
fn a_lone_writer_writes_at_the_pointer_while_other_tasks_void_records_and_sync() {
    let driver = VirtualDriver::new(3);
    let dev = zoned::open("emu:mem?profile=zn540&zones=64&zone-size=256KiB", driver.clone()).unwrap();
    block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        let fs = Fs::mount(dev, &MountOptions::default()).await.unwrap();
        let log = open_joining_log(&fs, 4096).await;
        let writer = {
            let log = Arc::clone(&log);
            spawn(&*driver, "writer", async move {
                let mut kept = Vec::new();
                for n in 0..300_usize {
                    let record = bytes(3000, n as u8);
                    let ticket = log.append(&record, false).await.unwrap();
                    // The test does not wait for the void entry, so the log writes it beside the next
                    // records.
                    if n.is_multiple_of(5) {
                        let (log, own) = (Arc::clone(&log), ticket);
                        drop(spawn(&**fs.driver(), "voider", async move { log.void(own).await.unwrap() }));
                    } else {
                        kept.push((ticket, record));
                    }
                }
                (fs, kept)
            })
        };
        let (fs, mut kept) = writer.await;
        log.close().await.unwrap();
        let stats = log.stats();
        assert!(stats.writes > 200 && stats.voids == 60, "{stats:?}");
        kept.insert(0, (Ticket(0), b"first".to_vec()));
        assert!(all(fs.read_parallel_log(PATH).await.unwrap()).await == kept);
    });
}

#[test]
fn dropping_a_writer_loses_no_record_of_another_writer() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(async {
        let log = open_joining_log(&fs, 4096).await;
        // The first record is in flight; the second writer leads the batch of the later records.
        let mut cx = Context::from_waker(Waker::noop());
        let mut in_flight = pin!(log.append(b"in_flight", false));
        assert!(in_flight.as_mut().poll(&mut cx).is_pending());
        let mut leads = Box::pin(log.append(b"leads", false));
        assert!(leads.as_mut().poll(&mut cx).is_pending());
        let mut gone = Box::pin(log.append(b"gone", false));
        assert!(gone.as_mut().poll(&mut cx).is_pending());
        let mut follows = pin!(log.append(b"follows", false));
        assert!(follows.as_mut().poll(&mut cx).is_pending());
        drop((leads, gone));
        assert_eq!((in_flight.await.unwrap(), follows.await.unwrap()), (Ticket(1), Ticket(4)));
        assert_eq!((log.stats().operations(), log.acknowledged()), (3, Ticket(5)));
        log.close().await.unwrap();
        let found = all(fs.read_parallel_log(PATH).await.unwrap()).await;
        let found: Vec<&[u8]> = found.iter().map(|(_, record)| record.as_slice()).collect();
        assert_eq!(found, [&b"first"[..], b"in_flight", b"leads", b"gone", b"follows"]);
    });
}

#[test]
fn a_failed_entry_fails_all_its_records_and_none_is_replayed() {
    let (drive, fs) = Drive::formatted(options());
    drive.run(async {
        let log = open_joining_log(&fs, 4096).await;
        let mut cx = Context::from_waker(Waker::noop());
        let mut in_flight = pin!(log.append(b"in_flight", false));
        assert!(in_flight.as_mut().poll(&mut cx).is_pending());
        let lost: Vec<_> = (0..5_u8)
            .map(|n| {
                let log = Arc::clone(&log);
                spawn(&**fs.driver(), "writer", async move { log.append(&[n; 50], true).await })
            })
            .collect();
        drive.emu.fail(FaultSpec::next(FaultOp::Write).landed());
        in_flight.await.unwrap();
        let mut failed = 0;
        for task in lost {
            match task.await {
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Device(_)), "{error}");
                    failed += 1;
                }
                Ok(ticket) => assert!(ticket > Ticket(0)),
            }
        }
        let after = log.append(b"after", true).await.unwrap();
        assert!(failed > 1 && log.stats().voids == 1, "{failed} failed: {:?}", log.stats());
        assert_eq!(log.acknowledged(), Ticket(after.0 + 1), "the tickets of the lost are not open");
        log.close().await.unwrap();
        let found = all(fs.read_parallel_log(PATH).await.unwrap()).await;
        assert_eq!(found.len(), 3 + 5 - failed, "{found:?}");
    });
}

#[test]
fn records_of_threads_share_entries_on_the_real_clock() {
    let driver: Arc<dyn Driver> = RealDriver::new();
    let latency = Latency { write: Duration::from_micros(30), ..Latency::NONE };
    let emu = Emu::memory(EmuOptions { latency, zones: 400, ..options() }, Arc::clone(&driver));
    let dev: Arc<dyn ZonedDevice> = emu;
    let (fs, log) = block_on(&*driver, async {
        Fs::format(&dev, &FormatOptions::default()).await.unwrap();
        let fs = Fs::mount(Arc::clone(&dev), &MountOptions::default()).await.unwrap();
        let log = open_joining_log(&fs, 64).await;
        (fs, log)
    });
    let record = |thread, n| bytes(1 + (n * 379) % 9000, thread as u8);
    let mut written = parallel::append_all_from_threads(&driver, &log, (8, 250), usize::MAX, record);
    written.insert(0, (Ticket(0), b"first".to_vec()));
    block_on(&*driver, log.close()).unwrap();
    let found = block_on(&*driver, async { all(fs.read_parallel_log(PATH).await.unwrap()).await });
    assert!(found == written);
    block_on(&*driver, fs.unmount()).unwrap();
}
