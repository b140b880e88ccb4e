//! Reads beside writes whose blocks have not landed, and after writes that were refused.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BLOCK_BYTES, Bench, Flaky, METADATA_ZONES, block, blocks, device, verify, write};
use array::{Array, Health, OpenOptions, Slot};
use units::{Driver, block_on, sleep_until};
use zoned::{Blocks, BufMut, Durability, ErrorKind, Geometry, Io, Op, ZoneId, ZoneState, ZonedDevice};

/// A drive that carries out some operations only at their completion, a time after their submission.
#[derive(Debug)]
struct LateDevice {
    drive: Arc<Flaky>,
    is_late: fn(&Op) -> bool,
    delay: Duration,
}

impl ZonedDevice for LateDevice {
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if !(self.is_late)(&op) {
            return self.drive.submit(op);
        }
        let (drive, driver) = (Arc::clone(&self.drive), Arc::clone(self.driver()));
        let at = driver.now().after(self.delay);
        Io::spawn(self.driver(), &self.geometry().name, async move {
            sleep_until(&*driver, at).await;
            drive.submit(op).await
        })
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.drive.driver()
    }
}

fn late_device(drive: &Arc<Flaky>, is_late: fn(&Op) -> bool) -> Arc<dyn ZonedDevice> {
    Arc::new(LateDevice { drive: Arc::clone(drive), is_late, delay: Duration::from_millis(1) })
}

async fn open_late(bench: &Bench) -> Arc<Array> {
    let late = bench.drives.iter().map(|drive| late_device(drive, |op| matches!(op, Op::Write { .. })));
    Array::open(late.collect(), OpenOptions::default()).await.expect("opened")
}

#[test]
fn a_degraded_read_beside_writes_returns_acknowledged_content() {
    // Stripes are 16 blocks: the writes in flight stay in the stripe, fill it to its end, or go beyond it.
    for lost in 0..5 {
        for ends in [&[6][..], &[9, 14], &[16], &[7, 16], &[12, 15, 16, 18], &[13, 40, 70]] {
            let bench = Bench::new(1);
            block_on(&*bench.driver, async {
                let array = open_late(&bench).await;
                let dev = device(&array);
                write(&dev, 1, 0, 5).await;
                array.fail(Slot(lost)).await.expect("failed");
                let (mut at, mut flights) = (5, Vec::new());
                for end in ends {
                    let start = dev.geometry().start(ZoneId(1)).plus(Blocks(at));
                    flights.push(dev.write(start, blocks(1, at, *end), Durability::Cached));
                    at = *end;
                }
                verify(&dev, 1, 0, 5).await;
                // Memory holds the failed drive's blocks that are in flight. A read of the other drives may
                // precede a write.
                for flight in flights {
                    flight.await.expect("written");
                    verify(&dev, 1, 0, 5).await;
                }
                verify(&dev, 1, 0, at).await;
            });
        }
    }
}

#[test]
fn a_read_repair_beside_a_write_records_the_right_content() {
    for end in [14, 16, 33] {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = open_late(&bench).await;
            let dev = device(&array);
            write(&dev, 1, 0, 5).await;
            let mut bad = 0;
            for drive in &bench.drives {
                let raw = Arc::clone(&drive.inner) as Arc<dyn ZonedDevice>;
                let read = raw.read(drive.row(1, 0), BufMut::zeroed(BLOCK_BYTES)).await.expect("read");
                if *read == block(1, 0)[..] {
                    drive.unreadable.lock().insert(drive.row(1, 0));
                    bad += 1;
                }
            }
            assert_eq!(bad, 1, "one drive has the block");
            let at = dev.geometry().start(ZoneId(1)).plus(Blocks(5));
            let flight = dev.write(at, blocks(1, 5, end), Durability::Cached);
            verify(&dev, 1, 0, 1).await;
            flight.await.expect("written");
            sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(50))).await;
            verify(&dev, 1, 0, end).await;
            assert_eq!(array.counters().relocations, 1, "the content is relocated");
            drop(dev);
            drop(array);
            verify(&device(&bench.open(&[]).await), 1, 0, end).await;
        });
    }
}

#[test]
fn a_zone_that_wears_out_in_a_write_keeps_acknowledged_blocks_without_any_one_drive() {
    let mut met = 0;
    for (worn, lost) in (0..5).flat_map(|worn| (0..5).map(move |lost| (worn, lost))) {
        for end in [38, 44, 48, 70] {
            let bench = Bench::new(1);
            block_on(&*bench.driver, async {
                let array = bench.open(&[]).await;
                let dev = device(&array);
                write(&dev, 1, 0, 37).await;
                let drive = bench.drives.get(worn).expect("five drives");
                drive.inner.wear(ZoneId(1 + METADATA_ZONES), ZoneState::ReadOnly);
                let at = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
                let refused = dev.write(at, blocks(1, 37, end), Durability::Cached).await.is_err();
                let report = dev.report(1..2).await.expect("reported");
                let held = if refused { 37 } else { end };
                met += u32::from(refused);
                let pointer = report.first().map(|info| info.pointer);
                assert_eq!(pointer, Some(Blocks(held)), "refused blocks are not readable");
                array.fail(Slot(lost)).await.expect("failed");
                verify(&dev, 1, 0, held).await;
            });
        }
    }
    // Fewer than all 100 writes, because the shorter ones do not reach every drive.
    assert!(met >= 60, "{met} writes met the worn zone");
}

#[test]
fn parts_of_worn_zones_count_as_active_and_reaching_the_limit_fails_no_drive() {
    for worn in 0..4 {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            // Worn parts of zones with stored maps stay where they are.
            let options = OpenOptions { resume: false, ..OpenOptions::default() };
            let array = Array::open(bench.devices(&[]), options).await.expect("opened");
            let dev = device(&array);
            let max = dev.geometry().max_active.expect("there is a limit");
            for zone in 0..worn {
                write(&dev, zone, 0, 37).await;
                bench.drives[0].inner.wear(ZoneId(zone + METADATA_ZONES), ZoneState::ReadOnly);
                let at = dev.geometry().start(ZoneId(zone)).plus(Blocks(37));
                dev.write(at, blocks(zone, 37, 60), Durability::Cached).await.expect_err("worn");
            }
            for zone in worn..8 {
                let at = dev.geometry().start(ZoneId(zone));
                let result = dev.write(at, blocks(zone, 0, 37), Durability::Cached).await;
                assert_eq!(result.is_ok(), zone < max, "zone {zone} of {max}");
                if let Err(error) = result {
                    assert_eq!(error.kind(), ErrorKind::TooManyActive, "{error}");
                }
            }
            assert!(array.superblock().members.iter().all(|member| !member.failed), "no drive failed");
        });
    }
}

/// A read of zone 1 that the drive in slot 1 answers by `fault` after another drive has taken its slot.
fn read_that_a_former_drive_fails(fault: fn(&Flaky)) {
    const DELAY: Duration = Duration::from_secs(60);
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let mut drives = bench.devices(&[]);
        let is_late = |op: &Op| matches!(op, Op::Read { .. });
        drives[1] = Arc::new(LateDevice { drive: Arc::clone(&bench.drives[1]), is_late, delay: DELAY });
        let array = Array::open(drives, OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        write(&dev, 1, 0, 64).await;
        let submitted = bench.driver.now();
        let read = dev.read(dev.geometry().start(ZoneId(1)), BufMut::zeroed(64 * BLOCK_BYTES));
        array.fail(Slot(1)).await.expect("failed");
        array.replace(Slot(1), Bench::drive(&bench.driver, 9)).await.expect("replaced");
        assert!(bench.driver.now().since(submitted) < DELAY, "answered before the rebuild's end");
        fault(&bench.drives[1]);
        assert!(*read.await.expect("read") == *blocks(1, 0, 64));
        assert!(bench.driver.now().since(submitted) >= DELAY, "the failed drive did not answer the read");
        assert_eq!((array.status().health(), array.counters().drive_failures), (Health::Clean, 1));
        assert_eq!(array.counters().read_repairs, 0, "the new drive has no unreadable block");
        write(&dev, 1, 64, 130).await;
        verify(&dev, 1, 0, 130).await;
    });
}

#[test]
fn a_late_error_of_a_failed_drive_is_not_held_against_the_drive_that_took_its_slot() {
    read_that_a_former_drive_fails(|drive| drive.unplug(0));
    read_that_a_former_drive_fails(|drive| {
        drive.inner.wear(ZoneId(1 + METADATA_ZONES), ZoneState::Offline);
    });
    read_that_a_former_drive_fails(|drive| {
        drive.unreadable.lock().extend((0..64).map(|row| drive.row(1, row)));
    });
}

/// A drive that answers one time that too many zones are active, like a drive with other users.
#[derive(Debug)]
struct RefusesOnce(Arc<Flaky>, std::sync::atomic::AtomicBool);

impl ZonedDevice for RefusesOnce {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        let own = self.geometry().start(ZoneId(METADATA_ZONES));
        if matches!(&op, Op::Write { at, .. } if *at >= own)
            && self.1.swap(false, std::sync::atomic::Ordering::Relaxed)
        {
            return Io::ready(Err(zoned::Error::new(
                ErrorKind::TooManyActive,
                &self.geometry().name,
                "write",
            )));
        }
        self.0.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.0.driver()
    }
}

#[test]
fn an_open_that_one_drive_refuses_is_the_callers_error_and_fails_no_drive() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let busy = bench.drives.iter().enumerate().map(|(n, drive)| {
            Arc::new(RefusesOnce(Arc::clone(drive), (n == 2).into())) as Arc<dyn ZonedDevice>
        });
        let array = Array::open(busy.collect(), OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        let at = dev.geometry().start(ZoneId(1));
        let error = dev.write(at, blocks(1, 0, 37), Durability::Cached).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::TooManyActive, "{error}");
        assert!(array.superblock().members.iter().all(|member| !member.failed), "no drive failed");
        write(&dev, 2, 0, 37).await;
        verify(&dev, 2, 0, 37).await;
    });
}

#[test]
fn a_zone_whose_first_write_was_refused_can_be_reset_and_written() {
    for close in [false, true] {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let busy = bench.drives.iter().enumerate().map(|(n, drive)| {
                Arc::new(RefusesOnce(Arc::clone(drive), (n == 2).into())) as Arc<dyn ZonedDevice>
            });
            let array = Array::open(busy.collect(), OpenOptions::default()).await.expect("opened");
            let dev = device(&array);
            let at = dev.geometry().start(ZoneId(1));
            dev.write(at, blocks(1, 0, 37), Durability::Cached).await.expect_err("refused");
            if close {
                dev.zone(ZoneId(1), zoned::Action::Close).await.expect("closed");
            }
            // The drives that refused nothing hold blocks of the refused write.
            dev.zone(ZoneId(1), zoned::Action::Reset).await.expect("reset");
            write(&dev, 1, 0, 50).await;
            verify(&dev, 1, 0, 50).await;
            assert!(array.superblock().members.iter().all(|member| !member.failed), "no drive failed");
        });
    }
}

#[test]
fn late_errors_of_a_failed_drive_mark_no_zone_as_worn() {
    for slot in 0..5 {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let mut devices = bench.devices(&[slot]);
            devices.insert(slot, late_device(&bench.drives[slot], |op| matches!(op, Op::Write { .. })));
            let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
            let dev = device(&array);
            write(&dev, 1, 0, 37).await;
            let at = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
            let flight = dev.write(at, blocks(1, 37, 80), Durability::Cached);
            array.fail(Slot(slot as u32)).await.expect("failed");
            bench.drives[slot].inner.wear(ZoneId(1 + METADATA_ZONES), ZoneState::ReadOnly);
            flight.await.expect("written without it");
            write(&dev, 1, 80, 130).await;
            verify(&dev, 1, 0, 130).await;
        });
    }
}

#[test]
fn a_log_roll_keeps_the_parity_of_a_worn_zone() {
    for lost in [0, 1, 2, 4] {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write(&dev, 1, 0, 37).await;
            bench.drives[3].inner.wear(ZoneId(1 + METADATA_ZONES), ZoneState::ReadOnly);
            let at = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
            dev.write(at, blocks(1, 37, 42), Durability::Cached).await.expect_err("worn");
            for n in 0..1900 {
                write(&dev, 2, n, n + 1).await;
            }
            dev.flush().await.expect("flushed");
            drop(dev);
            drop(array);
            let array = bench.open(&[lost]).await;
            let dev = device(&array);
            verify(&dev, 1, 0, 37).await;
            verify(&dev, 2, 0, 1900).await;
        });
    }
}

#[test]
fn a_degraded_read_beside_a_reset_mixes_no_generations() {
    let bench = Bench::new(1);
    let late = late_device(&bench.drives[0], |op| matches!(op, Op::Read { .. }));
    block_on(&*bench.driver, async {
        let mut devices = bench.devices(&[0, 4]);
        devices.insert(0, late);
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        let dev = device(&array);
        write(&dev, 1, 0, 64).await;
        let start = dev.geometry().start(ZoneId(1));
        let read = dev.read(start, BufMut::zeroed(64 * BLOCK_BYTES));
        dev.zone(ZoneId(1), zoned::Action::Reset).await.expect("reset");
        let found = read.await.expect("read");
        for (n, found) in (0..64).zip(found.chunks(BLOCK_BYTES)) {
            let old = *found == block(1, n)[..];
            assert!(old || found.iter().all(|byte| *byte == 0), "block {n} is of no generation of the zone");
        }
    });
}
