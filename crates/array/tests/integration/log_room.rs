//! Metadata logs without room: log rolls, and records that must find room.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::RESERVE_ZONES;
use crate::common::{Bench, Flaky, METADATA_ZONES, device, verify, verify_all, write, write_content};
use crate::ground::ArrayFixture;
use array::{Array, Health, MemberState, OpenOptions, RebuildOptions, RecordDump, Slot};
use units::{Driver, SplitMix64, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions};
use zoned::{Action, Blocks, Durability, Geometry, Io, Op, ZoneId, ZoneState, ZonedDevice};

#[test]
fn a_log_without_room_for_a_superblock_rolls_and_fails_no_drive() {
    // Each round of the test writes two superblocks to every log, and nothing else: 24 rounds fill a metadata
    // zone.
    let ground = ArrayFixture::new(5, 3, 96, 2);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZoneId(0), 1, 0, 100, 7);
    ground.wait(array.fail(Slot(2))).expect("failed");
    let options = EmuOptions {
        zones: 6 + RESERVE_ZONES,
        zone_size: Blocks(96),
        zone_capacity: Blocks(96),
        block_size: crate::ground::BLOCK_BYTES,
        ..EmuOptions::default()
    };
    let new = Emu::memory(options, Arc::clone(&ground.driver));
    for round in 0..60 {
        let new = Arc::clone(&new) as Arc<dyn ZonedDevice>;
        let options = RebuildOptions::default();
        let rebuild = ground.wait(array.start_replace(Slot(2), new, options)).expect("begun");
        rebuild.cancel();
        assert!(ground.wait(rebuild.wait()).is_err());
        assert_eq!(array.status().health(), Health::Degraded, "round {round}");
    }
    ground.write(&array, ZoneId(0), 1, 100, 300, 7);
    ground.check(&array, ZoneId(0), 1, 300);
    drop(array);
    let array = ground.open_without(2);
    ground.check(&array, ZoneId(0), 1, 300);
}

/// A drive some of whose operations complete only when the test allows them.
#[derive(Debug)]
struct HoldingDevice {
    inner: Arc<Flaky>,
    which: fn(&Op) -> bool,
    hold: AtomicBool,
    let_go: Arc<AtomicBool>,
}

impl HoldingDevice {
    fn over(drive: &Arc<Flaky>, which: fn(&Op) -> bool) -> Arc<HoldingDevice> {
        let (hold, let_go) = (AtomicBool::new(false), Arc::default());
        Arc::new(HoldingDevice { inner: Arc::clone(drive), which, hold, let_go })
    }
}

impl ZonedDevice for HoldingDevice {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if !(self.which)(&op) || !self.hold.load(Ordering::Relaxed) {
            return self.inner.submit(op);
        }
        let (inner, io) = (Arc::clone(&self.inner), self.inner.submit(op));
        let let_go = Arc::clone(&self.let_go);
        Io::spawn(self.driver(), &self.geometry().name, async move {
            while !let_go.load(Ordering::Relaxed) {
                sleep_until(&**inner.driver(), inner.driver().now().after(Duration::from_millis(1))).await;
            }
            io.await
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[test]
fn the_log_roll_of_a_failed_drive_leaves_the_log_of_the_new_drive_alone() {
    let bench = Bench::new(1);
    let new = Bench::drive(&bench.driver, 9);
    let later = |ms| sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(ms)));
    block_on(&*bench.driver, async {
        let slow = HoldingDevice::over(&bench.drives[0], |op| matches!(op, Op::Flush));
        let mut devices = bench.devices(&[0]);
        devices.push(Arc::clone(&slow) as Arc<dyn ZonedDevice>);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        slow.hold.store(true, Ordering::Relaxed);
        // The test waits until drive 2's log rolls from zone 1 to zone 2: the end of the roll waits for the
        // flush.
        let dev = device(&array);
        let raw = Arc::clone(&bench.drives[2]) as Arc<dyn ZonedDevice>;
        let moves = async |zone: ZoneId| {
            let info = raw.report(0..3).await.expect("reported");
            info[zone.index()].state != ZoneState::Empty
        };
        assert!(moves(ZoneId(1)).await && !moves(ZoneId(2)).await, "the log is in zone 1");
        let mut at = 0;
        while !moves(ZoneId(2)).await {
            write(&dev, 0, at, at + 1).await;
            at += 1;
            assert!(at < 1900, "the log does not roll");
        }
        later(1).await;
        slow.hold.store(false, Ordering::Relaxed);
        array.fail(Slot(2)).await.expect("failed");
        array.replace(Slot(2), Arc::clone(&new) as Arc<dyn ZonedDevice>).await.expect("rebuilt");
        let raw_new = Arc::clone(&new) as Arc<dyn ZonedDevice>;
        let info = raw_new.report(0..3).await.expect("reported");
        let used: Vec<bool> = info.iter().map(|info| info.state != ZoneState::Empty).collect();
        assert_eq!(
            used,
            [false, true, false],
            "the new drive's log is in the zone where the failed drive's was"
        );
        slow.let_go.store(true, Ordering::Relaxed);
        later(50).await;
        slow.let_go.store(false, Ordering::Relaxed);
        write(&dev, 1, 0, 100).await;
        assert_eq!(array.status().health(), Health::Clean);
        verify(&dev, 0, 0, at).await;
    });
    block_on(&*bench.driver, async {
        let mut devices = bench.devices(&[2]);
        devices.push(Arc::clone(&new) as Arc<dyn ZonedDevice>);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        assert_eq!(array.status().health(), Health::Clean);
        assert!(array.rebuild().is_none(), "the drive was a member throughout");
        verify(&device(&array), 1, 0, 100).await;
    });
}

#[test]
fn rows_are_recorded_as_stale_only_after_their_content_is_durable() {
    let bench = Bench::new(1);
    let later = |ms| sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(ms)));
    block_on(&*bench.driver, async {
        let durable = |op: &Op| matches!(op, Op::Write { how: Durability::Durable, .. });
        let slow = HoldingDevice::over(&bench.drives[2], durable);
        let raw = Arc::clone(&bench.drives[2]) as Arc<dyn ZonedDevice>;
        let mut devices = bench.devices(&[2]);
        devices.push(Arc::clone(&slow) as Arc<dyn ZonedDevice>);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        write(&dev, 1, 0, 640).await;
        dev.flush().await.expect("flushed");
        // A row of data becomes unreadable, and the record of its relocated content takes long.
        slow.hold.store(true, Ordering::Relaxed);
        bench.drives[2].unreadable.lock().extend((0..20).map(|row| bench.drives[2].row(1, row)));
        verify(&dev, 1, 0, 80).await;
        // The log rolls while the record is being written.
        let moved = async || raw.report(2..3).await.expect("reported")[0].state != ZoneState::Empty;
        assert!(!moved().await, "the log is in zone 1");
        for at in 0..1900 {
            write(&dev, 0, at, at + 1).await;
            if moved().await {
                break;
            }
        }
        later(5).await;
        let named = async |kind: &str| {
            let dump = array::dump(&[Arc::clone(&raw)]).await.expect("dumped");
            dump[0]
                .records
                .iter()
                .filter(|record| record.metadata_zone == ZoneId(2) && record.kind == kind)
                .count()
        };
        assert!(moved().await);
        assert_eq!((named("relocated-data").await, named("hidden").await), (1, 0));
        slow.let_go.store(true, Ordering::Relaxed);
        later(50).await;
        assert!(named("hidden").await > 0 && array.counters().relocations > 0);
        verify(&dev, 1, 0, 640).await;
    });
}

/// An array with content whose metadata logs were full at the power cut, and the epoch that counts.
fn array_with_full_logs() -> (Bench, u64) {
    let bench = Bench::new(1);
    let epoch = block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        drop(array);
        for drive in &bench.drives {
            let raw = Arc::clone(drive) as Arc<dyn ZonedDevice>;
            for info in raw.report(0..METADATA_ZONES).await.expect("reported") {
                if info.state != ZoneState::Empty {
                    raw.zone(info.zone, Action::Finish).await.expect("finished");
                }
            }
            raw.flush().await.expect("flushed");
        }
        let dump = array::dump(&bench.devices(&[])).await.expect("dumped");
        let epoch = dump[0].records.iter().map(|record| record.epoch).max();
        epoch.expect("some")
    });
    (bench, epoch)
}

#[test]
fn with_full_logs_a_missing_drive_is_recorded_before_anything_else() {
    let (full, epoch) = array_with_full_logs();
    let took = {
        let bench = full.cut(0);
        let began = bench.driver.now();
        block_on(&*bench.driver, bench.open(&[1]));
        bench.driver.now().since(began).as_micros() as u64
    };
    // The numbers of drives with records of the next epoch, with its complete checkpoint, and with the failure recorded in the old epoch.
    let cut_at = |time: u64| {
        let bench = full.cut(time);
        block_on(&*bench.driver, async {
            let open = Array::open(bench.devices(&[1]), OpenOptions::default());
            drop(spawn(&*bench.driver, "mount", async move { drop(open.await) }));
            sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(time))).await;
        });
        let bench = bench.cut(time);
        block_on(&*bench.driver, async {
            let dump = array::dump(&bench.devices(&[1])).await.expect("dumped");
            let having = |what: &dyn Fn(&RecordDump) -> bool| {
                dump.iter().filter(|drive| drive.records.iter().any(what)).count()
            };
            let next = having(&|record| record.epoch > epoch);
            let whole = having(&|record| record.epoch > epoch && record.kind == "checkpoint-end");
            let recorded = having(&|record| record.epoch == epoch && record.text.contains("failed"));
            let array = bench.open(&[]).await;
            verify_all(&device(&array)).await;
            (next, whole, recorded)
        })
    };
    // The mount's checkpoint takes a few flushes.
    let (mut before, mut after) = (0, took);
    while after - before > 4 {
        let middle = (before + after) / 2;
        if cut_at(middle).0 > 0 { after = middle } else { before = middle }
    }
    let mut begun = 0;
    for time in before.saturating_sub(20)..after + 40 {
        let (next, whole, recorded) = cut_at(time);
        // The epoch before the mount still counts.
        if next > 0 && whole < 4 {
            begun += 1;
            assert_eq!(recorded, 4, "after {time} us");
        }
    }
    assert!(begun > 10, "{begun}: the cuts miss the checkpoint");
}

#[test]
fn a_missing_drive_is_recorded_with_one_free_metadata_zone() {
    let (full, epoch) = array_with_full_logs();
    block_on(&*full.driver, async {
        for drive in &full.drives {
            let raw = Arc::clone(drive) as Arc<dyn ZonedDevice>;
            let report = raw.report(0..METADATA_ZONES).await.expect("reported");
            let empty = report.iter().find(|info| info.state == ZoneState::Empty).expect("two");
            drive.inner.wear(empty.zone, ZoneState::ReadOnly);
        }
    });
    let took = {
        let bench = full.cut(0);
        let began = bench.driver.now();
        block_on(&*bench.driver, bench.open(&[1]));
        bench.driver.now().since(began).as_micros() as u64
    };
    let (mut some, mut all) = (0, 0);
    for time in (100..200).map(|n| took * n / 200) {
        // The power is cut twice: the second time during a mount with the failed drive present again.
        let mut bench = full.cut(time);
        for devices in [&[1][..], &[]] {
            block_on(&*bench.driver, async {
                let open = Array::open(bench.devices(devices), OpenOptions::default());
                drop(spawn(&*bench.driver, "mount", async move { drop(open.await) }));
                sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(time))).await;
            });
            bench = bench.cut(time);
        }
        block_on(&*bench.driver, async {
            let dump = array::dump(&bench.devices(&[1])).await.expect("dumped");
            let recorded =
                dump.iter().filter(|drive| drive.records.iter().any(|r| r.text.contains("failed")));
            let recorded = recorded.count();
            let next = dump.iter().filter(|drive| drive.records.iter().any(|r| r.epoch > epoch)).count();
            some += u32::from(recorded > 0);
            all += u32::from(recorded == 4);
            assert!(
                recorded >= 3 || next <= recorded,
                "after {time} us: {recorded} drives record the failure, {next} have the next epoch"
            );
            let array = bench.open(&[]).await;
            verify_all(&device(&array)).await;
            assert_eq!(
                array.status().members[1].state == MemberState::Failed,
                recorded > 0,
                "after {time} us"
            );
        });
    }
    assert!(some > 20 && all > 10, "{some} {all}: the cuts miss what they are for");
}

/// A zone waits for room in a log for the parity of its open stripe, and the next write completes the stripe and begins another one,
/// whose parity goes to another log. The checkpoint that makes room waits for that block.
#[test]
fn a_zone_that_waits_for_room_goes_on_while_the_log_moves() {
    for seed in 0..20 {
        let ground = ArrayFixture::new(3, 6, 48, 1);
        let array = ground.open_without(0);
        let dev = device(&array);
        let mut rng = SplitMix64::new(seed);
        let (mut lives, mut ends) = ([1_u64; 5], [0_u64; 5]);
        for _ in 0..60 {
            // Resets fill the logs, and move no log early.
            for _ in 0..rng.draw() % 12 {
                ground.write(&array, ZoneId(5), 1, 0, 2, 2);
                ground.wait(dev.zone(ZoneId(5), Action::Reset)).expect("reset");
            }
            let n = (rng.draw() % 5) as usize;
            let zone = ZoneId(n as u32);
            if ends[n] + 3 > 96 {
                ground.wait(dev.zone(zone, Action::Reset)).expect("reset");
                (lives[n], ends[n]) = (lives[n] + 1, 0);
            }
            let at = |block: u64| dev.geometry().start(zone).plus(Blocks(block));
            let data = |from, to| crate::ground::blocks(lives[n], from, to);
            let first = dev.write(at(ends[n]), data(ends[n], ends[n] + 1), Durability::Cached);
            let second = dev.write(at(ends[n] + 1), data(ends[n] + 1, ends[n] + 3), Durability::Cached);
            ground.wait(async {
                first.await.expect("written");
                second.await.expect("written");
            });
            ends[n] += 3;
        }
        for (n, (life, end)) in lives.into_iter().zip(ends).enumerate() {
            ground.check(&array, ZoneId(n as u32), life, end);
        }
    }
}
