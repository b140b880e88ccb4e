//! Reads of an array without one drive: the same content as with the drive, and each row of the other drives is read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{BLOCK_BYTES, Bench, blocks, device, write};
use crate::ground::{ArrayFixture, METADATA_ZONES};
use array::{Array, OpenOptions, Slot};
use parking_lot::Mutex;
use proptest::prelude::*;
use units::{Driver, block_on};
use zoned::{Blocks, BufMut, ErrorKind, Geometry, Io, Lba, Op, ZoneId, ZoneState, ZonedDevice};

/// The reads of several drives: the number of commands, and how often each block of a drive was read.
#[derive(Debug, Default)]
struct ReadLog {
    commands: usize,
    times: BTreeMap<(usize, Lba), u32>,
}

/// A drive whose reads are counted.
#[derive(Debug)]
struct CountedDrive {
    inner: Arc<dyn ZonedDevice>,
    number: usize,
    log: Arc<Mutex<ReadLog>>,
}

impl ZonedDevice for CountedDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        if let Op::Read { at, into } = &op {
            let mut log = self.log.lock();
            log.commands += 1;
            let count = (into.len() / self.geometry().block_size as usize) as u64;
            for n in 0..count {
                *log.times.entry((self.number, at.plus(Blocks(n)))).or_default() += 1;
            }
        }
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// Opens the array of `devices` without the drive `lost`; the log counts the reads of the others from then on.
async fn open_counted(devices: Vec<Arc<dyn ZonedDevice>>, lost: usize) -> (Arc<Array>, Arc<Mutex<ReadLog>>) {
    let log: Arc<Mutex<ReadLog>> = Arc::default();
    let counted =
        devices.into_iter().enumerate().filter(|(number, _)| *number != lost).map(|(number, inner)| {
            Arc::new(CountedDrive { inner, number, log: Arc::clone(&log) }) as Arc<dyn ZonedDevice>
        });
    let array = Array::open(counted.collect(), OpenOptions::default()).await.expect("opened");
    *log.lock() = ReadLog::default();
    (array, log)
}

async fn read(array: &dyn ZonedDevice, zone: ZoneId, from: u64, to: u64) -> BufMut {
    let at = array.geometry().start(zone).plus(Blocks(from));
    let into = BufMut::zeroed((to - from) as usize * array.geometry().block_size as usize);
    array.read(at, into).await.expect("read")
}

#[test]
fn a_whole_stripe_without_one_of_five_drives_is_four_reads_of_a_unit() {
    // A stripe has four data units of four blocks. Without the drive of a data unit, the other three and the parity are
    // read; without the drive of the parity, all four data units.
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        write(&device(&bench.open(&[]).await), 0, 0, 160).await;
    });
    for lost in 0..5 {
        let again = bench.copy();
        block_on(&*again.driver, async {
            let (array, log) = open_counted(again.devices(&[]), lost).await;
            for stripe in 0..10 {
                let (from, to) = (stripe * 16, stripe * 16 + 16);
                assert!(*read(&*array, ZoneId(0), from, to).await == *blocks(0, from, to), "stripe {stripe}");
                let ReadLog { commands, times } = std::mem::take(&mut *log.lock());
                assert_eq!((commands, times.len()), (4, 16), "stripe {stripe} without drive {lost}");
                assert!(times.values().all(|times| *times == 1), "{times:?}");
            }
            // A zone of several stripes takes one command for each unit, too.
            assert!(*read(&*array, ZoneId(0), 0, 160).await == *blocks(0, 0, 160));
            let ReadLog { commands, times } = std::mem::take(&mut *log.lock());
            assert_eq!((commands, times.len()), (40, 160));
            assert_eq!(array.counters().degraded_reads, 16, "the drive has data in eight of ten stripes");
        });
    }
}

#[test]
fn a_part_of_a_stripe_without_a_drive_reads_only_the_rows_that_are_missing_beside_it() {
    // Stripe 0 of zone 0 has its data on drives 0 to 3 and its parity on drive 4. Blocks 2 to 10 are rows 2 and 3 of drive
    // 0, all rows of drive 1 and rows 0 and 1 of drive 2.
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        write(&device(&bench.open(&[]).await), 0, 0, 160).await;
        let (array, log) = open_counted(bench.devices(&[]), 1).await;
        assert!(*read(&*array, ZoneId(0), 2, 10).await == *blocks(0, 2, 10));
        let ReadLog { commands, times } = std::mem::take(&mut *log.lock());
        // Two reads of each of the drives 0 and 2, and one of the drives 3 and 4.
        assert_eq!((commands, times.len()), (6, 16));
        assert!(times.values().all(|times| *times == 1), "{times:?}");
    });
}

#[test]
fn a_stripe_of_which_two_drives_are_missing_is_an_error_and_never_zeros() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write(&dev, 0, 0, 160).await;
        array.fail(Slot(1)).await.expect("failed");
        bench.drives[2].unplug(0);
        for _ in 0..3 {
            for (from, to) in [(0, 16), (4, 12), (0, 160)] {
                let at = dev.geometry().start(ZoneId(0)).plus(Blocks(from));
                let into = BufMut::zeroed((to - from) as usize * BLOCK_BYTES);
                dev.read(at, into).await.expect_err("two drives are missing");
            }
        }
        // A stripe whose parity and one data unit are missing cannot be read either; its other units can.
        let left: Vec<u64> = (0..16).filter(|n| ![1, 2].contains(&(n / 4))).collect();
        for n in left {
            assert!(*read(&*dev, ZoneId(0), n, n + 1).await == *blocks(0, n, n + 1), "block {n}");
        }
    });
}

#[test]
fn a_shared_unit_that_cannot_be_read_at_first_is_read_again() {
    for (kind, fails, readable) in [(ErrorKind::Host, 1, true), (ErrorKind::Media, i64::MAX, false)] {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            write(&device(&bench.open(&[]).await), 0, 0, 160).await;
            let array = bench.open(&[1]).await;
            let drive = &bench.drives[0];
            drive.unreadable.lock().insert(drive.row(0, 2));
            *drive.says.lock() = kind;
            drive.fails.store(fails, std::sync::atomic::Ordering::Relaxed);
            let dev = device(&array);
            let into = BufMut::zeroed(16 * BLOCK_BYTES);
            match dev.read(dev.geometry().start(ZoneId(0)), into).await {
                Ok(found) => assert!(readable && *found == *blocks(0, 0, 16)),
                Err(error) => assert!(!readable && error.kind() == ErrorKind::Media, "{error}"),
            }
            // Rows of the stripe above the unreadable one do not need it.
            assert!(*read(&*dev, ZoneId(0), 7, 8).await == *blocks(0, 7, 8));
        });
    }
}

/// Capacity of a physical zone in the property test, in blocks.
const ZONE_BLOCKS: u64 = 160;

/// An array with two zones of content, opened again after some drives were left with rows above the zones' pointers, as by a
/// power cut. The blocks `more` are written above these stale rows.
fn array_with_stale_rows(
    drives: u32,
    unit: u64,
    writes: &[u64],
    left: &[(usize, u64)],
    more: u64,
) -> (ArrayFixture, Vec<BufMut>) {
    let ground = ArrayFixture::new(drives, 3, ZONE_BLOCKS, unit);
    let array = ground.open(OpenOptions::default());
    let capacity = array.geometry().zone_capacity.0;
    let mut at = 0;
    for len in writes {
        let to = (at + len).min(capacity);
        ground.write(&array, ZoneId(0), 1, at, to, 7);
        ground.write(&array, ZoneId(1), 2, at / 2, to / 2, 64);
        at = to;
    }
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    drop(array);
    for (slot, count) in left {
        for zone in [ZoneId(0), ZoneId(1)] {
            let slot = slot % drives as usize;
            let drive = Arc::clone(&ground.emus[slot]) as Arc<dyn ZonedDevice>;
            let physical = zone.0 + METADATA_ZONES;
            let info = ground.wait(drive.report(physical..physical + 1)).expect("reported")[0];
            let count = (*count).min(ZONE_BLOCKS - info.pointer.0);
            if count > 0 && info.state != ZoneState::Full {
                ground.leave_behind(slot, zone, count);
            }
        }
    }
    let array = ground.open(OpenOptions::default());
    let mut contents = Vec::new();
    for zone in [ZoneId(0), ZoneId(1)] {
        let info = ground.zone(&array, zone);
        let end = (info.pointer.0 + more).min(capacity);
        if info.state.is_active() {
            ground.write(&array, zone, 3, info.pointer.0, end, 5);
        }
        contents.push(ground.wait(read(&*array, zone, 0, capacity)));
    }
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    drop(array);
    (ground, contents)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn reads_without_a_drive_give_what_reads_with_it_give(
        (drives, lost) in (3_u32..7).prop_flat_map(|drives| (Just(drives), 0..drives as usize)),
        unit in 1_u64..7,
        writes in proptest::collection::vec(1_u64..90, 1..10),
        left in proptest::collection::vec((0_usize..7, 1_u64..14), 0..4),
        more in 0_u64..60,
        reads in proptest::collection::vec((0_u32..2, 0.0..1.0_f64, 0.0..1.0_f64), 12),
    ) {
        let (ground, contents) = array_with_stale_rows(drives, unit, &writes, &left, more);
        let (array, log) = ground.wait(open_counted(ground.devices(), lost));
        let capacity = array.geometry().zone_capacity.0 as f64;
        let size = array.geometry().block_size as usize;
        for (zone, a, b) in reads {
            let (a, b) = ((a * capacity) as u64, (b * capacity) as u64);
            let (from, to) = (a.min(b), a.max(b) + 1);
            let found = ground.wait(read(&*array, ZoneId(zone), from, to));
            let wanted = &contents[zone as usize][from as usize * size..to as usize * size];
            prop_assert!(*found == *wanted, "blocks {} to {} of zone {}", from, to, zone);
            let ReadLog { times, .. } = std::mem::take(&mut *log.lock());
            let twice: Vec<_> = times.into_iter().filter(|(_, times)| *times > 1).collect();
            prop_assert!(twice.is_empty(), "read more than once: {:?}", twice);
        }
    }
}
