//! The ordered log with many appends in flight.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use units::{Instant, spawn};
use zoned::emu::{FaultOp, FaultSpec, Latency};

use super::*;

const US: Duration = Duration::from_micros(1);

/// A drive that takes `us` microseconds for each write, and serves any number of writes at once.
fn parallel_drive(us: u32) -> EmuOptions {
    let latency = Latency { write: US * us, flush: US * us, ..Latency::NONE };
    EmuOptions { latency, zones: 64, zone_size: Blocks(64), zone_capacity: Blocks(60), ..EmuOptions::tiny() }
}

fn options(window: usize, buffer: usize) -> LogOptions {
    LogOptions { buffer, window, mode: IoMode::Append, ..LogOptions::default() }
}

fn writer(bench: &Bench, options: LogOptions) -> Arc<LogWriter> {
    let source = bench.source.clone();
    Arc::new(LogWriter::new(bench.dev(), identity(1), 0, LogIndex::starting_at(Bytes(0)), options, source))
}

fn at(us: u32) -> Instant {
    Instant::ORIGIN.after(US * us)
}

/// Stream bytes in an entry of one block.
const ENTRY: usize = BLOCK - HEADER_SIZE;

#[test]
fn a_window_of_appends_is_in_flight_and_no_more() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, options(8, BLOCK));
    bench.run(async {
        for n in 0..32 {
            log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room");
            assert!(log.stats().appends <= n as u64 + 1);
        }
        // Eight appends are in flight at a time; the last eight are not acknowledged yet.
        assert_eq!(bench.driver.now(), at(300));
        log.flush().await.expect("writes");
        assert_eq!(bench.driver.now(), at(400));
        log.sync().await.expect("syncs");
        assert_eq!(bench.driver.now(), at(500), "one flush covers all");
    });
    assert_eq!((log.stats().appends, log.stats().writes), (32, 0));
    let found = bench.recover(&FIRST);
    assert_eq!(bench.content(&found), pattern(0, 32 * ENTRY));
}

#[test]
fn in_write_mode_one_operation_is_in_flight() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, LogOptions { mode: IoMode::Write, ..options(8, BLOCK) });
    bench.run(async {
        for n in 0..10 {
            log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room");
        }
        log.flush().await.expect("writes");
    });
    assert_eq!((bench.driver.now(), log.stats().writes, log.stats().appends), (at(1000), 10, 0));
}

#[test]
fn parts_above_the_append_limit_are_in_flight_together() {
    let options_ = EmuOptions { max_append: Blocks(4), ..parallel_drive(100) };
    let bench = Bench::new(options_, 64);
    let log = writer(&bench, options(64, 32 * BLOCK));
    let all = pattern(0, 8 * (4 * BLOCK - 64));
    bench.run(async {
        log.append(&all).await.expect("room");
        log.flush().await.expect("writes");
    });
    assert_eq!((bench.driver.now(), log.stats().appends), (at(100), 8));
    assert_eq!(bench.content(&bench.recover(&FIRST)), all);
}

#[test]
fn entries_go_to_the_next_zone_while_the_last_ones_of_a_zone_are_in_flight() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, options(64, 2 * BLOCK));
    let all = pattern(0, 64 * BLOCK);
    bench.run(async {
        log.append(&all).await.expect("room");
        log.flush().await.expect("writes");
    });
    // 60 entries of one block go to the first zone, the rest to the second: all in one window.
    assert_eq!((bench.driver.now(), bench.source.given.lock().len()), (at(100), 2));
    assert_eq!(bench.content(&bench.recover(&FIRST)), all);
}

#[test]
fn a_log_that_may_have_one_open_zone_fills_it_before_it_uses_the_next() {
    // The emulated drive refuses a second open zone.
    let one = EmuOptions { max_open: Some(1), max_active: Some(1), reorder: true, ..parallel_drive(100) };
    let bench = Bench::new(one, 64);
    bench.source.apart.store(true, Relaxed);
    // Entries of 7 blocks: one of the entries spans both zones.
    let log = writer(&bench, options(64, 7 * BLOCK));
    let all = pattern(0, 64 * BLOCK);
    bench.run(async {
        log.append(&all).await.expect("room");
        log.flush().await.expect("writes");
    });
    assert_eq!((bench.driver.now(), bench.source.given.lock().len()), (at(200), 2));
    assert_eq!(bench.content(&bench.recover(&FIRST)), all);
}

#[test]
fn at_a_barrier_all_operations_end_before_the_next_region_begins() {
    for (barrier, us) in [(BLOCK, 3200), (4 * BLOCK, 800), (16 * BLOCK, 200), (0, 100)] {
        let bench = Bench::new(parallel_drive(100), 64);
        let log = writer(&bench, LogOptions { barrier, ..options(64, BLOCK) });
        bench.run(async {
            for n in 0..32 {
                log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room");
            }
            log.flush().await.expect("writes");
        });
        assert_eq!(bench.driver.now(), at(us), "a barrier every {barrier} bytes");
        // A region's only entry is sent by a write, not by an append.
        assert_eq!(log.stats().writes, if barrier == BLOCK { 32 } else { 0 });
    }
}

#[test]
fn records_synced_at_the_same_time_share_an_entry_and_later_ones_are_in_flight_beside_it() {
    let bench = Bench::new(EmuOptions { volatile_cache: false, ..parallel_drive(100) }, 64);
    let log = writer(&bench, options(64, 16 * BLOCK));
    let tasks: Vec<_> = (0..16_u32)
        .map(|n| {
            let (log, driver) = (log.clone(), bench.driver.clone());
            spawn(&*bench.driver, "syncer", async move {
                // Half of the concurrent syncs come later, while the first ones are in flight.
                units::sleep_until(&*driver, at(if n % 2 == 0 { 0 } else { 50 })).await;
                for round in 0..100 {
                    let begin = driver.now();
                    log.append(&pattern(n as usize, 100)).await.expect("room");
                    log.sync().await.expect("syncs");
                    // Each sync takes one device latency: none waits for another sync's operation, once the
                    // log has measured that lone writes are no faster than appends on this drive.
                    let took = driver.now().since(begin);
                    assert!(round < 10 || took == US * 100, "writer {n}, round {round}: {took:?}");
                }
            })
        })
        .collect();
    bench.run(async {
        for task in tasks {
            task.await;
        }
    });
    assert!(log.stats().appends + log.stats().writes < 220, "{:?}", log.stats());
    assert_eq!(bench.drive.flushes.load(Relaxed), 0);
}

#[test]
fn a_failed_append_among_many_poisons_the_log_and_the_entries_before_it_stay() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, options(8, BLOCK));
    bench.run(async {
        for n in 0..4 {
            log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room");
        }
        log.sync().await.expect("syncs");
        bench.drive.emu.fail(FaultSpec { after: 2, ..FaultSpec::next(FaultOp::Write) });
        for n in 4..10 {
            log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room in the window");
        }
        let first = log.sync().await.expect_err("an append fails");
        assert_eq!(first.kind(), ErrorKind::Device(zoned::ErrorKind::Media));
        for later in [log.append(b"x").await, log.flush().await, log.sync().await] {
            assert_eq!(later.expect_err("poisoned").to_string(), first.to_string());
        }
        log.close().await.expect_err("poisoned");
    });
    let found = bench.recover(&FIRST);
    assert_eq!(bench.content(&found), pattern(0, 6 * ENTRY), "two more entries are before the gap");
}

#[test]
fn entries_in_flight_are_read_from_memory() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, options(64, 2 * BLOCK));
    let all = pattern(0, 40_000);
    bench.run(async {
        log.append(&all).await.expect("room");
        let mut into = vec![0; 50_000];
        assert_eq!(log.read_at(Bytes(100), &mut into).await.expect("reads"), 39_900);
        assert_eq!((&into[..39_900], bench.driver.now()), (&all[100..], at(0)));
        log.flush().await.expect("writes");
        assert_eq!(log.read_at(Bytes(100), &mut into).await.expect("reads"), 39_900);
        assert_eq!(&into[..39_900], &all[100..]);
    });
}

#[test]
fn dropping_an_append_half_way_poisons_the_log() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, options(2, BLOCK));
    bench.run(async {
        let all = pattern(0, 3 << 20);
        let mut append = Box::pin(log.append(&all));
        std::future::poll_fn(|cx| {
            assert!(append.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        drop(append);
        assert_eq!(log.sync().await.expect_err("half a record").kind(), ErrorKind::Poisoned);
    });
}

#[test]
fn a_long_append_is_split_so_that_memory_stays_bounded() {
    let bench = Bench::new(EmuOptions { zones: 200, ..parallel_drive(100) }, 64);
    let log = writer(&bench, options(16, 4 * BLOCK));
    let all = pattern(0, 30 << 20);
    bench.run(async {
        log.append(&all).await.expect("room");
        log.flush().await.expect("writes");
        let mut into = vec![0; all.len()];
        assert_eq!(log.read_at(Bytes(0), &mut into).await.expect("reads"), all.len());
        assert!(into == all);
    });
}

#[test]
fn a_slow_append_delays_only_the_syncs_that_need_it() {
    let bench = Bench::new(EmuOptions { volatile_cache: false, ..parallel_drive(100) }, 64);
    let log = writer(&bench, options(8, BLOCK));
    bench.run(async {
        log.append(&pattern(0, ENTRY)).await.expect("room");
        log.sync().await.expect("syncs");
        let begin = bench.driver.now();
        *bench.drive.stalled.lock() = Some(Duration::from_secs(1));
        log.append(&pattern(ENTRY, ENTRY)).await.expect("room");
        for n in 2..30 {
            log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room");
        }
        // The 28 entries after the slow one have ended, seven at a time, and all bytes can be read.
        assert_eq!(bench.driver.now().since(begin), US * 300);
        let mut into = vec![0; 30 * ENTRY];
        assert_eq!(log.read_at(Bytes(0), &mut into).await.expect("reads"), into.len());
        assert_eq!((into, bench.driver.now().since(begin)), (pattern(0, 30 * ENTRY), US * 300));
        // Entries after the slow one are not durable before it, and memory stays bounded: the log stops at
        // `MAX_SPAN_IN_WINDOWS` windows.
        assert_eq!(log.durable(), Bytes(ENTRY as u64));
        for n in 30..40 {
            log.append(&pattern(n * ENTRY, ENTRY)).await.expect("room");
        }
        assert!(bench.driver.now().since(begin) >= Duration::from_secs(1));
        log.sync().await.expect("syncs");
    });
    assert_eq!(bench.content(&bench.recover(&FIRST)), pattern(0, 40 * ENTRY));
}

#[test]
fn a_log_gives_up_its_segment_when_it_is_idle_and_no_thread_is_inside_its_writer() {
    let bench = Bench::new(parallel_drive(100), 64);
    let log = writer(&bench, options(8, BLOCK));
    let idle = Duration::from_secs(1);
    bench.run(async {
        log.append(&pattern(0, ENTRY)).await.expect("room");
        assert!(log.release_segment(idle).is_none(), "the log is not synced");
        log.sync().await.expect("syncs");
        units::sleep_until(&*bench.driver, at(1_000_099)).await;
        assert!(log.release_segment(idle).is_none(), "the newest write, at 100 us, is younger");
        units::sleep_until(&*bench.driver, at(1_000_100)).await;
        let inside = log.locked();
        // Regression: the caller of `release_segment` holds the file system's lock, so the call must not wait
        // for the thread inside the writer.
        assert!(log.release_segment(idle).is_none(), "another thread is inside the writer");
        drop(inside);
        let released = log.release_segment(idle).expect("idle");
        assert_eq!(
            (released.rest.start, released.size, released.next_sequence),
            (Blocks(1), ENTRY as u64, 1)
        );
        assert!(log.release_segment(idle).is_none(), "the segment is given up already");
        log.append(&pattern(ENTRY, ENTRY)).await.expect("room in the next segment");
        log.sync().await.expect("syncs");
    });
    let mut segments = bench.source.given.lock().clone();
    segments[0].end = Blocks(1);
    let found = bench.recover_from(&FIRST, &segments);
    assert_eq!(bench.content(&found), pattern(0, 2 * ENTRY));
}
