//! Appends, syncs, reads and failures of the ordered log's writer.

use std::time::Duration;

use proptest::prelude::*;
use units::{sleep_until, spawn};
use zoned::emu::{FaultOp, FaultSpec, Latency};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    Flush,
    Sync,
    Read(usize, usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3 * BLOCK).prop_map(Step::Append),
        1 => (0..40 * BLOCK).prop_map(Step::Append),
        1 => Just(Step::Flush),
        2 => Just(Step::Sync),
        2 => (0..60 * BLOCK, 0..30 * BLOCK).prop_map(|(at, len)| Step::Read(at, len)),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn appended_bytes_are_read_and_recovered(steps in steps(), buffer in 1..20_usize, transfer in 1..16_u64) {
        let bench = Bench::new(EmuOptions { zones: 200, max_open: None, max_active: None, ..EmuOptions::tiny() }, transfer);
        let mut writer = bench.writer(buffer);
        let mut cuts = FIRST.to_vec();
        let mut model = Vec::new();
        bench.run(async {
            for step in steps {
                match step {
                    Step::Append(len) => {
                        let data = pattern(model.len(), len);
                        writer.append(&data).await.expect("there is room");
                        model.extend(data);
                    }
                    Step::Flush => writer.flush().await.expect("flushes"),
                    Step::Sync => {
                        writer.sync().await.expect("syncs");
                        assert_eq!(writer.durable().0, model.len() as u64);
                    }
                    Step::Read(at, len) => {
                        let mut into = vec![0; len];
                        let got = writer.read_at(Bytes(at as u64), &mut into).await.expect("reads");
                        let expected = &model[at.min(model.len())..(at + len).min(model.len())];
                        assert_eq!((got, &into[..got]), (expected.len(), expected));
                    }
                    Step::Reopen => {
                        let index = writer.close().await.expect("closes");
                        let segments = bench.source.given.lock().clone();
                        let found = recover(&bench.dev(), uuid(), LOG, &cuts, &segments).await.expect("recovers");
                        assert_eq!((&found.index, found.next_sequence), (&index, writer.next_sequence()));
                        if let Some(rest) = writer.unused() {
                            bench.source.given.lock().last_mut().expect("it has a rest").end = rest.start;
                            bench.source.left.lock().push_front(rest);
                        }
                        let epoch = cuts.last().expect("the first one").epoch + 1;
                        cuts.push(Cut { epoch, first_sequence: found.next_sequence });
                        let options = LogOptions { buffer: buffer * BLOCK, ..LogOptions::default() };
                        let (dev, source) = (bench.dev(), bench.source.clone());
                        let at = found.next_sequence;
                        writer = LogWriter::new(dev, identity(epoch), at, found.index, options, source);
                    }
                }
                assert_eq!(writer.size().0, model.len() as u64);
            }
            writer.close().await.expect("closes");
        });
        let found = bench.recover(&cuts);
        prop_assert_eq!((found.dropped, found.missing, &found.index), (0, None, &writer.index()));
        prop_assert_eq!(bench.content(&found), model);
    }
}

#[test]
fn small_records_share_an_entry() {
    let bench = Bench::tiny();
    let writer = bench.writer(8);
    bench.run(async {
        for n in 0..300 {
            writer.append(&pattern(n * 100, 100)).await.expect("room");
        }
        writer.sync().await.expect("syncs");
    });
    assert_eq!((bench.pointer(1), writer.index().len()), (8, 1));
}

#[test]
fn a_reopened_log_continues_in_its_partly_filled_segment() {
    let bench = Bench::tiny();
    let writer = bench.writer(8);
    bench.run(async {
        for n in 0..14 {
            writer.append(&pattern(n, 1)).await.expect("room");
            writer.sync().await.expect("syncs");
        }
    });
    assert_eq!((bench.pointer(1), bench.source.given.lock().len()), (14, 1));
    assert_eq!(writer.unused(), None);
}

fn slow_drive(flush_us: u64, write_us: u64) -> EmuOptions {
    let latency = Latency {
        flush: Duration::from_micros(flush_us),
        write: Duration::from_micros(write_us),
        ..Latency::NONE
    };
    EmuOptions { latency, ..EmuOptions::tiny() }
}

#[test]
fn concurrent_syncs_share_one_flush() {
    let bench = Bench::new(slow_drive(100, 10), 64);
    let writer = Arc::new(bench.writer(8));
    let tasks: Vec<_> = (0..32)
        .map(|n| {
            let writer = writer.clone();
            spawn(&*bench.driver, "syncer", async move {
                writer.append(&pattern(n * 10, 10)).await.expect("room");
                writer.sync().await.expect("syncs");
                assert!(writer.durable().0 >= 10);
            })
        })
        .collect();
    bench.run(async {
        for task in tasks {
            task.await;
        }
    });
    // One device flush serves all callers of `sync` that came before it was submitted.
    assert_eq!((bench.drive.flushes.load(Ordering::Relaxed), writer.durable().0), (1, 320));
    assert!(bench.drive.writes.load(Ordering::Relaxed) <= 2);
}

#[test]
fn a_sync_that_comes_during_a_flush_waits_for_the_next_flush() {
    let bench = Bench::new(slow_drive(100, 10), 64);
    let writer = Arc::new(bench.writer(8));
    let (driver, drive) = (bench.driver.clone(), bench.drive.clone());
    let late: Vec<_> = [50_u64, 60, 70]
        .into_iter()
        .map(|us| {
            let (writer, driver, drive) = (writer.clone(), driver.clone(), drive.clone());
            spawn(&*bench.driver, "late", async move {
                sleep_until(&*driver, units::Instant::ORIGIN.after(Duration::from_micros(us))).await;
                assert_eq!(drive.flushes.load(Ordering::Relaxed), 1, "the first flush is in flight");
                writer.append(b"late").await.expect("room");
                writer.sync().await.expect("syncs");
                driver.now()
            })
        })
        .collect();
    bench.run(async {
        writer.append(b"early").await.expect("room");
        writer.sync().await.expect("syncs");
        assert_eq!((writer.durable().0, writer.size().0), (5, 17), "the flush covers the bytes before it");
        assert_eq!(driver.now(), units::Instant::ORIGIN.after(Duration::from_micros(110)));
        for task in late {
            assert_eq!(task.await, units::Instant::ORIGIN.after(Duration::from_micros(210)));
        }
    });
    assert_eq!((writer.durable().0, bench.drive.flushes.load(Ordering::Relaxed)), (17, 2));
}

#[test]
fn a_sync_without_new_bytes_submits_no_operation() {
    let bench = Bench::tiny();
    let writer = bench.writer(8);
    bench.run(async {
        writer.sync().await.expect("nothing to do");
        writer.append(b"x").await.expect("room");
        writer.sync().await.expect("syncs");
        writer.sync().await.expect("nothing to do");
    });
    assert_eq!(bench.drive.flushes.load(Ordering::Relaxed), 1);
}

#[test]
fn a_drive_without_a_volatile_cache_is_not_flushed() {
    let bench = Bench::new(EmuOptions { volatile_cache: false, ..EmuOptions::tiny() }, 64);
    let writer = bench.writer(8);
    bench.run(async {
        writer.append(b"x").await.expect("room");
        writer.sync().await.expect("syncs");
    });
    let counts = (bench.drive.flushes.load(Ordering::Relaxed), bench.drive.writes.load(Ordering::Relaxed));
    assert_eq!((counts, writer.durable().0), ((0, 1), 1));
}

#[test]
fn records_of_concurrent_appenders_never_mix() {
    let bench =
        Bench::new(EmuOptions { max_open: None, max_active: None, zones: 200, ..slow_drive(100, 10) }, 5);
    let writer = Arc::new(bench.writer(3));
    let tasks: Vec<_> = (0..8_u8)
        .map(|n| {
            let writer = writer.clone();
            spawn(&*bench.driver, "appender", async move {
                for round in 0..6 {
                    let len = 1000 * (usize::from(n) + 1) + round;
                    let mut record = vec![n; len];
                    record[..8].copy_from_slice(&(len as u64).to_le_bytes());
                    writer.append(&record).await.expect("room");
                    if round % 2 == 0 {
                        writer.sync().await.expect("syncs");
                    }
                }
            })
        })
        .collect();
    bench.run(async {
        for task in tasks {
            task.await;
        }
        writer.close().await.expect("closes");
    });
    let found = bench.recover(&FIRST);
    let all = bench.content(&found);
    let (mut at, mut records) = (0, 0);
    while at < all.len() {
        let len = u64::from_le_bytes(all[at..at + 8].try_into().expect("8 bytes")) as usize;
        let body = &all[at + 8..at + len];
        assert!(body.iter().all(|b| *b == body[0]) && len / 1000 == usize::from(body[0]) + 1);
        (at, records) = (at + len, records + 1);
    }
    assert_eq!(records, 48);
}

#[test]
fn a_failed_write_poisons_the_writer() {
    let bench = Bench::tiny();
    let writer = bench.writer(2);
    bench.run(async {
        writer.append(b"good").await.expect("room");
        writer.sync().await.expect("syncs");
        bench.drive.emu.fail(FaultSpec::next(FaultOp::Write));
        writer.append(b"bad").await.expect("it is in the buffer");
        let first = writer.flush().await.expect_err("the device fails");
        assert_eq!(first.kind(), ErrorKind::Device(zoned::ErrorKind::Media));
        for later in [
            writer.append(b"x").await,
            writer.flush().await,
            writer.sync().await,
            writer.close().await.map(|_| ()),
        ] {
            assert_eq!(later.expect_err("poisoned").to_string(), first.to_string());
        }
    });
    let found = bench.recover(&FIRST);
    assert_eq!(bench.content(&found), b"good");
}

#[test]
fn a_failed_flush_poisons_the_writer_and_fails_all_waiting_syncs() {
    let bench = Bench::new(slow_drive(100, 10), 64);
    bench.drive.emu.fail(FaultSpec::next(FaultOp::Flush));
    let writer = Arc::new(bench.writer(8));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let writer = writer.clone();
            spawn(&*bench.driver, "syncer", async move {
                writer.append(b"x").await.expect("room");
                writer.sync().await.expect_err("the flush fails").kind()
            })
        })
        .collect();
    bench.run(async {
        for task in tasks {
            assert_eq!(task.await, ErrorKind::Device(zoned::ErrorKind::Media));
        }
        assert!(writer.append(b"x").await.is_err() && writer.sync().await.is_err());
    });
    assert_eq!(writer.durable().0, 0);
}

#[test]
fn dropping_a_waiting_task_loses_no_byte() {
    let bench = Bench::new(slow_drive(100, 10), 64);
    let writer = bench.writer(8);
    bench.run(async {
        writer.append(b"x").await.expect("room");
        let mut sync = Box::pin(writer.sync());
        std::future::poll_fn(|cx| {
            assert!(sync.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(sync);
        writer.append(b"y").await.expect("room");
        writer.sync().await.expect("syncs");
    });
    assert_eq!(bench.content(&bench.recover(&FIRST)), b"xy");
}

fn spawn_sync(bench: &Bench, writer: &Arc<LogWriter>) -> units::Spawned<()> {
    let writer = writer.clone();
    spawn(&*bench.driver, "syncer", async move { writer.sync().await.expect("syncs") })
}

#[test]
fn when_a_leader_is_dropped_during_its_flush_another_sync_leads() {
    let bench = Bench::new(slow_drive(100, 0), 64);
    let writer = Arc::new(bench.writer(8));
    bench.run(async {
        writer.append(b"x").await.expect("room");
        let mut sync = Box::pin(writer.sync());
        std::future::poll_fn(|cx| {
            assert!(sync.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        assert_eq!(bench.drive.flushes.load(Ordering::Relaxed), 1);
        let other = spawn_sync(&bench, &writer);
        std::future::poll_fn(|cx| {
            assert!(sync.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(sync);
        other.await;
    });
    assert_eq!((writer.durable().0, bench.drive.flushes.load(Ordering::Relaxed)), (1, 1));
}

#[test]
fn no_space_before_the_first_byte_does_not_poison_the_writer() {
    let bench = Bench::tiny();
    let writer = bench.writer(2);
    let left = std::mem::take(&mut *bench.source.left.lock());
    bench.run(async {
        assert_eq!(writer.append(b"x").await.expect_err("no zone").kind(), ErrorKind::NoSpace);
        *bench.source.left.lock() = left;
        writer.append(b"y").await.expect("there is room again");
        writer.sync().await.expect("syncs");
    });
    assert_eq!(bench.content(&bench.recover(&FIRST)), b"y");
}

#[test]
fn no_space_within_a_record_poisons_the_writer() {
    let bench = Bench::tiny();
    bench.source.left.lock().truncate(1);
    let writer = bench.writer(2);
    bench.run(async {
        assert_eq!(
            writer.append(&pattern(0, 20 * BLOCK)).await.expect_err("full").kind(),
            ErrorKind::NoSpace
        );
        assert_eq!(writer.append(b"y").await.expect_err("poisoned").kind(), ErrorKind::NoSpace);
    });
}

#[test]
fn a_closed_log_refuses_appends_and_can_be_synced_and_read() {
    let bench = Bench::tiny();
    let writer = bench.writer(2);
    bench.run(async {
        writer.append(b"bytes").await.expect("room");
        let index = writer.close().await.expect("closes");
        assert_eq!(index, writer.close().await.expect("again"));
        assert_eq!(writer.append(b"x").await.expect_err("closed").kind(), ErrorKind::Closed);
        writer.sync().await.expect("syncs");
        let mut into = [0; 9];
        assert_eq!(writer.read_at(Bytes(1), &mut into).await.expect("reads"), 4);
        assert_eq!(&into[..4], b"ytes");
    });
    assert_eq!(writer.durable().0, 5);
}

#[test]
fn reading_neighbouring_entries_takes_one_operation() {
    let bench = Bench::tiny();
    let writer = bench.writer(8);
    bench.run(async {
        for n in 0..10 {
            writer.append(&pattern(n * 100, 100)).await.expect("room");
            writer.sync().await.expect("syncs");
        }
        let mut into = vec![0; 1000];
        assert_eq!(writer.read_at(Bytes(0), &mut into).await.expect("reads"), 1000);
        assert_eq!(into, pattern(0, 1000));
    });
    let counts = (&bench.drive.reads, &bench.drive.blocks_read);
    assert_eq!((counts.0.load(Ordering::Relaxed), counts.1.load(Ordering::Relaxed)), (1, 10));
}

#[test]
fn threads_append_and_sync_in_real_time() {
    let driver = units::RealDriver::new();
    let latency = Latency::all(Duration::from_micros(30));
    let options =
        EmuOptions { latency, track_power_cuts: false, zone_size: Blocks(4096), ..EmuOptions::tiny() };
    let emu = Emu::memory(EmuOptions { zone_capacity: Blocks(4000), ..options }, driver.clone());
    let dev: Arc<dyn ZonedDevice> = emu.clone();
    let zones = (1..8).map(|zone| segment(zone, 0, 4000));
    let source = Arc::new(Zones { left: Mutex::new(zones.collect()), ..Zones::default() });
    let options = LogOptions { buffer: 2 * BLOCK, ..LogOptions::default() };
    let writer = Arc::new(LogWriter::new(
        dev.clone(),
        identity(1),
        0,
        LogIndex::starting_at(Bytes(0)),
        options,
        source.clone(),
    ));
    let threads: Vec<_> = (0..8_u8)
        .map(|n| {
            let writer = writer.clone();
            spawn(&*driver, "syncer", async move {
                for round in 0..200 {
                    let len = 100 + usize::from(n) * 300;
                    writer.append(&vec![n; len]).await.expect("room");
                    if round % 4 == 0 {
                        writer.sync().await.expect("syncs");
                    }
                }
            })
        })
        .collect();
    let total: u64 = (0..8).map(|n| 200 * (100 + n * 300)).sum();
    block_on(&*driver, async {
        for thread in threads {
            thread.await;
        }
        writer.close().await.expect("closes");
        let segments = source.given.lock().clone();
        let found = recover(&dev, uuid(), LOG, &FIRST, &segments).await.expect("recovers");
        assert_eq!((found.size, found.dropped, &found.index), (total, 0, &writer.index()));
    });
}
