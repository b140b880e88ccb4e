use std::time::Duration;

use units::{SplitMix64, VirtualDriver, block_on, spawn};

use super::*;
use crate::conformance::failures;
use crate::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency};
use crate::kernel::fake::{SHAPES, block, options};
use crate::{Action, Blocks, BufMut, ErrorKind, ZoneState, emulated, join_all};

/// The log's zone; bulk goes to the others.
const LOG_ZONE: ZoneId = ZoneId(0);
/// Blocks of a zone, and of a long write: four pieces.
const ZONE_BLOCKS: u64 = 1024;
const LONG: u64 = 256;

/// A drive whose operations take 10 us, with a scheduler that lets bulk go at 64 MB/s beside a log.
struct Bench {
    emu: Arc<Emu>,
    share: Arc<Share>,
    device: Arc<dyn ZonedDevice>,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        Bench::with_latency(seed, Latency::all(Duration::from_micros(10)))
    }

    fn with_latency(seed: u64, latency: Latency) -> Bench {
        let options = EmuOptions {
            zones: 12,
            zone_size: Blocks(ZONE_BLOCKS),
            zone_capacity: Blocks(ZONE_BLOCKS),
            max_open: None,
            max_active: None,
            latency,
            ..EmuOptions::default()
        };
        let emu = Emu::memory(options, VirtualDriver::new(seed));
        let goal = Goal { least_rate: 64e6, most_rate: Some(64e6), ..Goal::default() };
        let share = Share::over(Arc::clone(&emu) as Arc<dyn ZonedDevice>, goal);
        Bench { emu, device: Arc::clone(&share) as Arc<dyn ZonedDevice>, share }
    }

    fn start(&self, zone: u32) -> Lba {
        self.device.geometry().start(ZoneId(zone))
    }

    /// Appends a block to the log: bulk is held from now on.
    async fn log(&self) {
        self.append(IoClass::Log).await;
    }

    async fn append(&self, class: IoClass) {
        let op = Op::Append { zone: LOG_ZONE, data: block(4096, 0), how: Durability::Cached };
        self.device.submit_as(class, op).await.expect("appended");
    }

    fn write(&self, class: IoClass, zone: u32, first: u64, blocks: u64) -> Io<()> {
        let data: Vec<u8> = (first..first + blocks).flat_map(|n| block(4096, n).to_vec()).collect();
        let at = self.start(zone).plus(Blocks(first));
        let op = Op::Write { at, data: Buf::copy_from(&data), how: Durability::Cached };
        self.device.submit_as(class, op).typed()
    }

    async fn check(&self, zone: u32, blocks: u64) {
        for n in 0..blocks {
            let at = self.start(zone).plus(Blocks(n));
            let found = self.device.read(at, BufMut::zeroed(4096)).await.expect("read");
            assert!(*found == *block(4096, n), "block {n} of zone {zone}");
        }
    }

    fn status(&self) -> ShareStatus {
        self.share.share_status().expect("the device is a scheduler")
    }

    fn held(&self) -> u64 {
        self.status().classes.iter().map(|class| class.held).sum()
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&**self.device.driver(), future)
    }
}

#[test]
fn the_device_conforms_to_the_contract() {
    let timed =
        ["zones=24&zone-size=1MiB&profile=zn540", "zones=24&zone-size=1MiB&profile=smallzone&reorder=on"];
    for class in [IoClass::Log, IoClass::Metadata, IoClass::Compaction] {
        for shape in SHAPES.iter().chain(&timed) {
            let drive = emulated(options(shape), VirtualDriver::new(1));
            let share: Arc<dyn ZonedDevice> = Share::over(drive, Goal::default());
            if class.is_bulk() {
                // Reads of the log's class, so that bulk is held.
                let (log, driver) = (Arc::clone(&share), Arc::clone(share.driver()));
                driver.clone().spawn(
                    "log",
                    Box::pin(async move {
                        loop {
                            let _read =
                                log.read(Lba(0), BufMut::zeroed(log.geometry().block_size as usize)).await;
                            sleep_until(&*driver, driver.now().after(Duration::from_micros(500))).await;
                        }
                    }),
                );
            }
            let found = failures(&share.class(class));
            assert!(found.is_empty(), "{class:?}, {shape}:\n{}", found.join("\n"));
        }
    }
}

#[test]
fn nothing_is_held_without_a_log_and_bulk_is_held_beside_one() {
    let bench = Bench::new(1);
    let took = |zone: u32, beside: Option<IoClass>| {
        bench.run(async {
            if let Some(class) = beside {
                bench.append(class).await;
            }
            let begun = bench.device.driver().now();
            let ios = (0..4).map(|n| bench.write(IoClass::Compaction, zone, n * LONG, LONG)).collect();
            join_all(ios).await.into_iter().for_each(|done| done.expect("written"));
            bench.check(zone, 4 * LONG).await;
            bench.device.driver().now().since(begun)
        })
    };
    for (zone, beside) in [(1, None), (2, Some(IoClass::Metadata))] {
        took(zone, beside);
        assert_eq!(bench.held(), 0, "{beside:?}");
        // The reads of `check` are of the class of the log.
        let later = bench.device.driver().now().after(Duration::from_secs(1));
        bench.run(sleep_until(&**bench.device.driver(), later));
    }
    let held = took(3, Some(IoClass::Log));
    // 4 MiB at 64 MB/s.
    assert!(bench.held() > 0 && held > Duration::from_millis(60), "{held:?}");
    assert_eq!(bench.status().held, 0);
}

#[test]
fn a_zone_keeps_its_order_across_classes() {
    let classes = [IoClass::Scrub, IoClass::Flush, IoClass::Compaction, IoClass::Reclaim, IoClass::Log];
    for last in IoClass::ALL {
        let bench = Bench::new(2);
        bench.run(async {
            bench.log().await;
            let mut ios = Vec::new();
            for n in 0..12 {
                // Bulk in other zones, so that the classes compete.
                ios.push(bench.write(IoClass::Compaction, 2 + n as u32 % 4, n / 4 * LONG, LONG));
                let class = classes[n as usize % 4];
                ios.push(bench.write(class, 1, n * 64, 64));
            }
            ios.push(bench.write(last, 1, 12 * 64, 64));
            for done in join_all(ios).await {
                done.expect("written at the write pointer");
            }
            bench.check(1, 13 * 64).await;
        });
    }
}

#[test]
fn a_write_that_may_not_be_held_takes_the_zone_s_earlier_ones_along() {
    let bench = Bench::new(3);
    bench.run(async {
        bench.log().await;
        let behind: Vec<_> = (2..6).map(|zone| bench.write(IoClass::Compaction, zone, 0, LONG)).collect();
        let first = bench.write(IoClass::Scrub, 1, 0, LONG);
        let begun = bench.device.driver().now();
        bench.write(IoClass::Log, 1, LONG, 1).await.expect("written");
        assert!(bench.device.driver().now().since(begun) < Duration::from_millis(1));
        first.await.expect("written");
        assert!(bench.status().held > 0, "the others wait");
        for done in join_all(behind).await {
            done.expect("written");
        }
    });
}

#[test]
fn a_raised_read_goes_at_once_and_what_comes_behind_it_waits() {
    let bench = Bench::new(10);
    bench.run(async {
        for zone in 1..4 {
            bench.write(IoClass::Log, zone, 0, LONG).await.expect("written");
        }
        let read = |zone: u32, n: u64| -> Io<BufMut> {
            let op = Op::Read { at: bench.start(zone).plus(Blocks(n * 64)), into: BufMut::zeroed(64 * 4096) };
            bench.device.submit_as(IoClass::Compaction, op).typed()
        };
        // These take all of the rate.
        let before: Vec<_> = (0..4).flat_map(|n| [read(2, n), read(3, n)]).collect();
        let (first, second, third) = (read(1, 0), read(1, 1), read(1, 2));
        let held = bench.status().held;
        let block = bench.start(1).plus(Blocks(64 + 9));
        bench.device.raise(IoClass::Compaction, block..block.plus(Blocks(1)));
        assert_eq!(bench.status().held, held, "no higher class than its own");
        bench.device.raise(IoClass::Read, block..block.plus(Blocks(1)));
        assert_eq!(bench.status().held, held - 2, "the read of the block, and the one before it");
        let begun = bench.device.driver().now();
        second.await.expect("read");
        assert!(bench.device.driver().now().since(begun) < Duration::from_millis(1));
        first.await.expect("read");
        assert_eq!(bench.status().held, held - 2);
        for done in join_all(before).await.into_iter().chain([third.await]) {
            done.expect("read");
        }
    });
}

#[test]
fn a_write_raised_to_a_class_that_is_held_has_the_share_of_that_class() {
    let bench = Bench::new(11);
    bench.run(async {
        bench.log().await;
        let others: Vec<_> = (2..6)
            .flat_map(|zone| (0..4).map(move |n| (zone, n)))
            .map(|(zone, n)| bench.write(IoClass::Compaction, zone, n * LONG, LONG))
            .collect();
        let scrubbed = bench.write(IoClass::Scrub, 1, 0, LONG);
        let raised = bench.write(IoClass::Scrub, 7, 0, LONG);
        bench.device.raise(IoClass::Flush, bench.start(7)..bench.start(7).plus(Blocks(LONG)));
        let now = || bench.device.driver().now();
        let begun = now();
        raised.await.expect("written");
        let raised = now().since(begun);
        scrubbed.await.expect("written");
        let scrubbed = now().since(begun);
        join_all(others).await.into_iter().for_each(|done| done.expect("written"));
        assert!(raised * 3 < scrubbed * 2, "{raised:?} {scrubbed:?}");
    });
}

#[test]
fn flushes_keep_up_with_a_log_whatever_the_rate_of_bulk() {
    // A log of 400 MB/s for 30 ms, and after 5 ms 4 MiB of a class.
    let took = |class| {
        let bench = Bench::new(12);
        let device = Arc::clone(&bench.device);
        bench.run(async {
            let log = spawn(&**bench.device.driver(), "log", async move {
                for zone in 0..3 {
                    for _ in 0..ZONE_BLOCKS {
                        let data = block(4096, 0);
                        let op = Op::Append { zone: ZoneId(zone), data, how: Durability::Cached };
                        device.submit_as(IoClass::Log, op).await.expect("appended");
                    }
                }
            });
            let driver = &**bench.device.driver();
            sleep_until(driver, driver.now().after(Duration::from_millis(5))).await;
            let begun = driver.now();
            let ios = (0..4).map(|n| bench.write(class, 5, n * LONG, LONG)).collect();
            join_all(ios).await.into_iter().for_each(|done| done.expect("written"));
            let took = driver.now().since(begun);
            log.await;
            took
        })
    };
    // At twice the log's rate 5 ms; 65 ms at the rate of bulk.
    let (flush, compaction) = (took(IoClass::Flush), took(IoClass::Compaction));
    assert!(
        flush < Duration::from_millis(8) && compaction > Duration::from_millis(40),
        "{flush:?} {compaction:?}"
    );
}

#[test]
fn a_read_sees_a_write_that_was_submitted_before() {
    let bench = Bench::new(4);
    bench.run(async {
        bench.log().await;
        let held: Vec<_> = (0..4).map(|n| bench.write(IoClass::Compaction, 1, n * LONG, LONG)).collect();
        bench.check(1, 4 * LONG).await;
        for done in join_all(held).await {
            done.expect("written");
        }
        // A bulk read behind a held write waits for the write.
        let held = bench.write(IoClass::Compaction, 2, 0, LONG);
        let op = Op::Read { at: bench.start(2), into: BufMut::zeroed(4096) };
        let read: Io<BufMut> = bench.device.submit_as(IoClass::Scrub, op).typed();
        assert!(*read.await.expect("read") == *block(4096, 0));
        held.await.expect("written");
    });
}

#[test]
fn a_reset_of_a_held_zone_comes_behind_its_writes() {
    let bench = Bench::new(5);
    bench.run(async {
        bench.log().await;
        let written = bench.write(IoClass::Compaction, 1, 0, LONG);
        let op = Op::Zone { zone: ZoneId(1), action: Action::Reset };
        let reset: Io<()> = bench.device.submit_as(IoClass::Reclaim, op).typed();
        let again = bench.write(IoClass::Compaction, 1, 0, 1);
        for done in join_all(vec![written, reset, again]).await {
            done.expect("in order");
        }
        let zones = bench.device.report(1..2).await.expect("reported");
        assert_eq!(
            zones.first().map(|zone| (zone.state, zone.pointer)),
            Some((ZoneState::ImplicitOpen, Blocks(1)))
        );
    });
}

#[test]
fn a_read_that_is_held_comes_before_a_reset_that_was_submitted_behind_it() {
    let bench = Bench::new(9);
    bench.run(async {
        bench.write(IoClass::Compaction, 1, 0, LONG).await.expect("written");
        for class in [IoClass::Reclaim, IoClass::Log] {
            bench.log().await;
            let others: Vec<_> = (2..6).map(|zone| bench.write(IoClass::Compaction, zone, 0, LONG)).collect();
            let op = Op::Read { at: bench.start(1), into: BufMut::zeroed(4096) };
            let read: Io<BufMut> = bench.device.submit_as(IoClass::Compaction, op).typed();
            let op = Op::Zone { zone: ZoneId(1), action: Action::Reset };
            let reset: Io<()> = bench.device.submit_as(class, op).typed();
            assert!(*read.await.expect("read") == *block(4096, 0), "{class:?}");
            reset.await.expect("reset");
            for done in join_all(others).await {
                done.expect("written");
            }
            bench.write(IoClass::Log, 1, 0, LONG).await.expect("written again");
            for zone in 2..6 {
                bench.device.zone(ZoneId(zone), Action::Reset).await.expect("reset");
            }
        }
    });
}

#[test]
fn a_write_that_the_device_refuses_is_refused_whole() {
    let bench = Bench::new(10);
    bench.run(async {
        bench.log().await;
        let long = block(4096, 0).to_vec().repeat(LONG as usize);
        for (at, kind) in
            [(ZONE_BLOCKS - 10, ErrorKind::CrossesZone), (ZONE_BLOCKS * 12 - 10, ErrorKind::CrossesZone)]
        {
            let op =
                Op::Write { at: Lba(ZONE_BLOCKS + at), data: Buf::copy_from(&long), how: Durability::Cached };
            let write: Io<()> = bench.device.submit_as(IoClass::Compaction, op).typed();
            let error = write.await.expect_err("refused");
            assert!(error.kind() == kind || error.kind() == ErrorKind::OutOfRange, "{error}");
        }
        let zones = bench.device.report(1..12).await.expect("reported");
        assert!(zones.iter().all(|zone| zone.pointer == Blocks::ZERO), "{zones:?}");
    });
}

#[test]
fn a_report_shows_the_writes_that_were_submitted_before() {
    let bench = Bench::new(11);
    bench.run(async {
        bench.log().await;
        let written = bench.write(IoClass::Compaction, 1, 0, LONG);
        let zones = bench.device.class(IoClass::Scrub).report(1..2).await.expect("reported");
        assert_eq!(zones.first().map(|zone| zone.pointer), Some(Blocks(LONG)));
        written.await.expect("written");
    });
}

#[test]
fn a_device_that_nobody_has_any_more_still_writes_what_it_holds() {
    let bench = Bench::new(12);
    bench.run(bench.log());
    let written = bench.write(IoClass::Compaction, 1, 0, LONG);
    let (emu, driver) = (Arc::clone(&bench.emu), Arc::clone(bench.device.driver()));
    drop(bench);
    block_on(&*driver, written).expect("written");
    drop(driver);
    assert_eq!(Arc::strong_count(&emu), 1, "the drive is released");
}

/// A drive that notes the classes of its operations.
#[derive(Debug)]
struct NotingDrive(Arc<Emu>, Mutex<Vec<Option<IoClass>>>);

impl ZonedDevice for NotingDrive {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.1.lock().push(None);
        self.0.submit(op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        self.1.lock().push(Some(class));
        self.0.submit_as(class, op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.driver()
    }
}

#[test]
fn the_drive_sees_the_class_that_an_operation_came_with() {
    let bench = Bench::new(10);
    let drive = Arc::new(NotingDrive(Arc::clone(&bench.emu), Mutex::default()));
    let goal = Goal { least_rate: 64e6, most_rate: Some(64e6), ..Goal::default() };
    let device: Arc<dyn ZonedDevice> = Share::over(Arc::clone(&drive) as Arc<dyn ZonedDevice>, goal);
    bench.run(async {
        let write = |zone: u32| {
            let at = bench.start(zone);
            Op::Write { at, data: block(4096, 0), how: Durability::Cached }
        };
        device.submit(write(1)).await.expect("written");
        for (zone, class) in (2..).zip([IoClass::Log, IoClass::Metadata, IoClass::Read, IoClass::Scrub]) {
            device.submit_as(class, write(zone)).await.expect("written");
        }
    });
    let seen = drive.1.lock().clone();
    let classes = [IoClass::Log, IoClass::Metadata, IoClass::Read, IoClass::Scrub].map(Some);
    assert_eq!(seen, [&[None], &classes[..]].concat());
}

#[test]
fn a_log_that_takes_no_time_holds_nothing() {
    let bench = Bench::with_latency(9, Latency::NONE);
    bench.run(async {
        bench.log().await;
        bench.write(IoClass::Compaction, 1, 0, LONG).await.expect("written");
        bench.log().await;
        bench.write(IoClass::Compaction, 1, LONG, LONG).await.expect("written");
    });
    assert_eq!(bench.held(), 0);
}

#[test]
fn a_long_write_fails_with_one_of_its_pieces_and_the_next_is_refused() {
    let bench = Bench::new(6);
    bench.run(async {
        bench.log().await;
        let fault = FaultSpec { after: 1, ..FaultSpec::next(FaultOp::Write) };
        bench.emu.fail(fault.in_zone(ZoneId(1)));
        let long = bench.write(IoClass::Compaction, 1, 0, LONG);
        let next = bench.write(IoClass::Compaction, 1, LONG, 1);
        let other = bench.write(IoClass::Compaction, 2, 0, LONG);
        assert_eq!(long.await.expect_err("the second piece failed").kind(), ErrorKind::Media);
        assert_eq!(next.await.expect_err("behind a failure").kind(), ErrorKind::NotAtWritePointer);
        other.await.expect("another zone");
    });
}

#[test]
fn a_flush_is_not_held_and_a_dropped_write_is_written() {
    let bench = Bench::new(7);
    bench.run(async {
        bench.log().await;
        drop(bench.write(IoClass::Compaction, 1, 0, LONG));
        let begun = bench.device.driver().now();
        bench.device.class(IoClass::Scrub).flush().await.expect("flushed");
        assert!(bench.device.driver().now().since(begun) < Duration::from_millis(1));
        bench.check(1, LONG).await;
    });
}

/// Bulk that two classes have in abundance.
#[test]
fn classes_share_the_rate_by_their_weights() {
    let bench = Bench::new(8);
    let written = bench.run(async {
        bench.log().await;
        let mut ios = Vec::new();
        for zone in 1..9 {
            let class = if zone % 2 == 0 { IoClass::Compaction } else { IoClass::Scrub };
            ios.extend((0..4).map(|n| bench.write(class, zone, n * LONG, LONG)));
        }
        bench.log().await;
        // 64 MB/s for 160 ms are 10 of 32 MiB. The log goes on, so that bulk stays held.
        for _ in 0..160 {
            sleep_until(
                &**bench.device.driver(),
                bench.device.driver().now().after(Duration::from_millis(1)),
            )
            .await;
            bench.log().await;
        }
        // The report of the drive: one of the scheduler would let go what is held.
        let drive: Arc<dyn ZonedDevice> = bench.emu.clone();
        let zones = drive.report(1..9).await.expect("reported");
        // Zones 2, 4, 6, 8 are the compaction's.
        let blocks =
            |first: usize| zones.iter().skip(first).step_by(2).map(|zone| zone.pointer.0).sum::<u64>();
        let written = (blocks(1), blocks(0));
        for done in join_all(ios).await {
            done.expect("written");
        }
        written
    });
    let ratio = written.0 as f64 / written.1 as f64;
    assert!((3.0..=5.0).contains(&ratio), "{written:?}");
}

/// Bytes of bulk beside a log in 200 ms of a drive's time, and the log's operations.
fn beside_a_log(dilation: u32) -> (u64, u64) {
    let url = format!(
        "emu:mem?profile=zn540&zones=4&zone-size=1GiB&zone-capacity=1GiB&dilated={dilation}&log-target=120"
    );
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let device = crate::open(&url, Arc::clone(&driver)).expect("opened");
    let end = driver.now().after(Duration::from_millis(200) * dilation);
    let bulk = {
        let device = device.class(IoClass::Compaction);
        spawn(&*driver, "bulk", async move {
            let data = BufMut::zeroed(256 << 10).freeze();
            let mut at = device.geometry().start(ZoneId(1));
            let mut in_flight = std::collections::VecDeque::new();
            let mut bytes = 0;
            while device.driver().now() < end {
                in_flight.push_back(device.write(at, data.clone(), Durability::Cached));
                at = at.plus(Blocks(64));
                if in_flight.len() == 16 {
                    in_flight.pop_front().expect("16").await.expect("written");
                    bytes += data.len() as u64;
                }
            }
            bytes
        })
    };
    block_on(&*driver, async {
        let mut operations = 0;
        while driver.now() < end {
            device.append(LOG_ZONE, block(4096, 0), Durability::Durable).await.expect("appended");
            operations += 1;
        }
        (bulk.await, operations)
    })
}

#[test]
fn a_drive_with_stretched_times_has_a_scheduler_with_stretched_times() {
    let (bulk, log) = beside_a_log(1);
    let (stretched_bulk, stretched_log) = beside_a_log(20);
    let ratios = [stretched_bulk as f64 / bulk as f64, stretched_log as f64 / log as f64];
    assert!(ratios.iter().all(|ratio| (0.98..1.02).contains(ratio)), "{ratios:?}, {bulk} bytes, {log}");
}

#[test]
fn a_log_is_there_as_long_as_an_operation_of_it_is_in_flight() {
    let latency = Latency { flush: Duration::from_millis(500), ..Latency::all(Duration::from_micros(10)) };
    let bench = Bench::with_latency(13, latency);
    bench.run(async {
        let flush = bench.device.flush();
        let mut written = Vec::new();
        for n in 0..4 {
            let driver = bench.device.driver();
            sleep_until(&**driver, driver.now().after(Duration::from_millis(100))).await;
            written.push(bench.write(IoClass::Compaction, 1, n * LONG, LONG));
            assert!(bench.status().held > 0, "after {} ms", (n + 1) * 100);
        }
        flush.await.expect("flushed");
        join_all(written).await.into_iter().for_each(|done| done.expect("written"));
    });
}

#[test]
fn bulk_that_a_log_takes_along_leaves_the_least_rate_to_others() {
    let bench = Bench::new(12);
    let took = bench.run(async {
        let now = || bench.device.driver().now();
        bench.log().await;
        // Each write of the log takes along 1 MiB of its zone: 16 times the rate.
        for _ in 0..4 {
            for n in 0..3 {
                let held = bench.write(IoClass::Compaction, 1, n * (LONG + 1), LONG);
                bench.write(IoClass::Log, 1, n * (LONG + 1) + LONG, 1).await.expect("written");
                held.await.expect("written");
            }
            bench.device.zone(ZoneId(1), Action::Reset).await.expect("reset");
        }
        let begun = now();
        let (log, driver) = (Arc::clone(&bench.device), Arc::clone(bench.device.driver()));
        let log = async move {
            for _ in 0..200 {
                log.append(LOG_ZONE, block(4096, 0), Durability::Cached).await.expect("appended");
                sleep_until(&*driver, driver.now().after(Duration::from_millis(1))).await;
            }
        };
        let log = spawn(&**bench.device.driver(), "log", log);
        bench.write(IoClass::Compaction, 2, 0, LONG).await.expect("written");
        let took = now().since(begun);
        log.await;
        took
    });
    // 1 MiB at 64 MB/s, and a write of 1 MiB before it. Without a bound it would wait for those 12 MiB: 200 ms.
    assert!(took < Duration::from_millis(40), "{took:?}");
}

/// Random classes and zones on a drive whose writes fail, take up to 300 ms, or do not fit into their zone: every operation ends, and acknowledged blocks are there.
fn write_to_a_faulty_drive(seed: u64) {
    let mut rng = SplitMix64::new(seed);
    let micros = [10, 10, 1000, 300_000][(seed % 4) as usize];
    let bench = Bench::with_latency(seed, Latency::all(Duration::from_micros(micros)));
    let fills = seed.is_multiple_of(5);
    if !seed.is_multiple_of(3) {
        let zone = ZoneId(1 + (rng.draw() % 6) as u32);
        let (after, count) = (rng.draw() % 20, 1 + rng.draw() % 3);
        let landed = rng.draw().is_multiple_of(4);
        bench.emu.fail(FaultSpec { after, count, landed, ..FaultSpec::next(FaultOp::Write) }.in_zone(zone));
    }
    let done = spawn(&**bench.device.driver(), "bulk", {
        let share = Arc::clone(&bench.device);
        let draws: Vec<(u32, u64, IoClass)> = (0..60)
            .map(|_| {
                let class = IoClass::ALL[rng.draw() as usize % IoClass::ALL.len()];
                (1 + (rng.draw() % 6) as u32, 1 + rng.draw() % 96, class)
            })
            .collect();
        async move {
            let mut ends = [0_u64; 8];
            let mut ios = Vec::new();
            for (zone, blocks, class) in draws {
                let first = ends[zone as usize];
                let fits = first + blocks <= ZONE_BLOCKS;
                if !fits && !fills {
                    continue;
                }
                ends[zone as usize] += if fits { blocks } else { 0 };
                let data: Vec<u8> = (first..first + blocks).flat_map(|n| block(4096, n).to_vec()).collect();
                let at = share.geometry().start(ZoneId(zone)).plus(Blocks(first));
                let op = Op::Write { at, data: Buf::copy_from(&data), how: Durability::Cached };
                ios.push((zone, first, blocks, share.submit_as(class, op).typed::<()>()));
            }
            let mut acknowledged = Vec::new();
            for (zone, first, blocks, io) in ios {
                if io.await.is_ok() {
                    acknowledged.push((zone, first, blocks));
                }
            }
            acknowledged
        }
    });
    bench.run(async {
        for _ in 0..50 {
            bench.log().await;
            sleep_until(
                &**bench.device.driver(),
                bench.device.driver().now().after(Duration::from_micros(300)),
            )
            .await;
        }
        for (zone, first, blocks) in done.await {
            for n in first..first + blocks {
                let at = bench.start(zone).plus(Blocks(n));
                let found = bench.device.read(at, BufMut::zeroed(4096)).await.expect("read");
                assert!(*found == *block(4096, n), "seed {seed}: block {n} of zone {zone}");
            }
        }
    });
    assert_eq!(bench.status().held, 0, "seed {seed}");
}

/// `FURROW_RUNS=N` runs the first N seeds.
#[test]
fn faulty_drives_leave_no_operation_held() {
    let runs = std::env::var("FURROW_RUNS").map_or(120, |runs| runs.parse().expect("a number"));
    (0..runs).for_each(write_to_a_faulty_drive);
}
