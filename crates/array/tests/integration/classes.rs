//! The classes of operations: an array hands that of a client's operation on to its drives, and its own jobs have theirs.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use array::{Array, OpenOptions, ScrubOptions, Slot};
use parking_lot::Mutex;
use units::{Driver, block_on};
use zoned::{Blocks, BufMut, Durability, Geometry, Goal, Io, IoClass, Lba, Op, Share, ZoneId, ZonedDevice};

use crate::common::{BLOCK_BYTES, Bench, METADATA_ZONES, blocks};

/// A drive that notes the classes of the transfers of its data zones.
#[derive(Debug)]
struct NotingDrive {
    inner: Arc<dyn ZonedDevice>,
    seen: Arc<Mutex<BTreeSet<IoClass>>>,
    /// Classes to which operations were raised.
    raised: Arc<Mutex<Vec<IoClass>>>,
}

impl ZonedDevice for NotingDrive {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        self.submit_as(IoClass::default(), op)
    }

    fn submit_as(&self, class: IoClass, op: Op) -> Io {
        let zone = match &op {
            Op::Read { at, .. } | Op::Write { at, .. } => self.geometry().zone_of(*at),
            Op::Append { zone, .. } => Some(*zone),
            Op::Zone { .. } | Op::Flush | Op::Report { .. } => None,
        };
        if zone.is_some_and(|zone| zone.0 >= METADATA_ZONES) {
            self.seen.lock().insert(class);
        }
        self.inner.submit_as(class, op)
    }

    fn raise(&self, class: IoClass, blocks: Range<Lba>) {
        self.raised.lock().push(class);
        self.inner.raise(class, blocks);
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// Bulk beside a log goes at a kilobyte a second; without a log for 50 ms, all that is held goes.
fn slow_bulk() -> Goal {
    Goal { least_rate: 1e3, most_rate: Some(1e3), ..Goal::default() }
}

/// Opens an array whose drives have schedulers with [`slow_bulk`].
async fn open_behind_schedulers(bench: &Bench) -> Arc<dyn ZonedDevice> {
    let share = |inner| Share::over(inner, slow_bulk()) as Arc<dyn ZonedDevice>;
    let devices = bench.devices(&[]).into_iter().map(share).collect();
    Array::open(devices, OpenOptions::default()).await.expect("opened")
}

/// Writes the blocks of a zone from `from` to `to`.
fn write(device: &Arc<dyn ZonedDevice>, class: IoClass, zone: u32, from: u64, to: u64) -> Io<()> {
    let at = device.geometry().start(ZoneId(zone)).plus(Blocks(from));
    device.write_as(class, at, blocks(zone, from, to), Durability::Cached)
}

#[test]
fn a_log_s_write_takes_the_held_writes_below_it_on_other_drives_along() {
    let bench = Bench::new(2);
    block_on(&*bench.driver, async {
        let device = open_behind_schedulers(&bench).await;
        let write = |class, zone, from, to| write(&device, class, zone, from, to);
        write(IoClass::Log, 1, 0, 16).await.expect("a stripe, so that each drive has a log");
        let others = write(IoClass::Compaction, 2, 0, 64);
        let below = write(IoClass::Compaction, 0, 0, 4);
        let begun = bench.driver.now();
        write(IoClass::Log, 0, 4, 8).await.expect("written");
        let took = bench.driver.now().since(begun);
        assert!(took < Duration::from_millis(10), "{took:?}");
        below.await.expect("written");
        // A client's read of blocks that a compaction is reading.
        let at = device.geometry().start(ZoneId(2));
        others.await.expect("written");
        write(IoClass::Log, 1, 16, 32).await.expect("a stripe");
        let pass: Vec<_> = (0..4)
            .map(|n| {
                device.read_as(IoClass::Compaction, at.plus(Blocks(n * 16)), BufMut::zeroed(16 * BLOCK_BYTES))
            })
            .collect();
        let begun = bench.driver.now();
        device.raise(IoClass::Read, at..at.plus(Blocks(64)));
        for read in zoned::join_all(pass).await {
            read.expect("read");
        }
        let took = bench.driver.now().since(begun);
        assert!(took < Duration::from_millis(10), "{took:?}");
    });
}

#[test]
fn a_held_write_that_is_waited_for_takes_its_parity_along() {
    let bench = Bench::new(2);
    block_on(&*bench.driver, async {
        let device = open_behind_schedulers(&bench).await;
        write(&device, IoClass::Log, 1, 0, 16).await.expect("a stripe, so that each drive has a log");
        let at = device.geometry().start(ZoneId(0));
        let held = write(&device, IoClass::Compaction, 0, 0, 32);
        let begun = bench.driver.now();
        device.raise(IoClass::Read, at..at.plus(Blocks(32)));
        held.await.expect("written");
        let took = bench.driver.now().since(begun);
        assert!(took < Duration::from_millis(10), "{took:?}");
    });
}

#[test]
fn what_a_write_waits_for_on_other_drives_takes_its_class_if_that_is_higher() {
    let bench = Bench::new(3);
    let raised: Arc<Mutex<Vec<IoClass>>> = Arc::default();
    let noting = |drive| {
        let inner = Share::over(drive, slow_bulk()) as Arc<dyn ZonedDevice>;
        let raised = Arc::clone(&raised);
        Arc::new(NotingDrive { inner, seen: Arc::default(), raised }) as Arc<dyn ZonedDevice>
    };
    block_on(&*bench.driver, async {
        let devices = bench.devices(&[]).into_iter().map(noting).collect::<Vec<_>>();
        let drives = devices.len();
        let device: Arc<dyn ZonedDevice> =
            Array::open(devices, OpenOptions::default()).await.expect("opened");
        let write = |class, zone, from, to| write(&device, class, zone, from, to);
        write(IoClass::Log, 1, 0, 16).await.expect("a stripe, so that each drive has a log");
        let mut held = vec![write(IoClass::Compaction, 0, 0, 4)];
        assert_eq!(*raised.lock(), []);
        held.push(write(IoClass::Flush, 0, 4, 8));
        assert_eq!(*raised.lock(), vec![IoClass::Flush; drives]);
        held.extend([write(IoClass::Flush, 0, 8, 12), write(IoClass::Scrub, 0, 12, 16)]);
        assert_eq!(raised.lock().len(), drives, "nothing below is of a lower class");
        held.push(write(IoClass::Log, 0, 16, 20));
        assert_eq!(raised.lock().split_off(drives), vec![IoClass::Log; drives]);
        for written in zoned::join_all(held).await {
            written.expect("written");
        }
    });
}

#[test]
fn drives_see_the_class_of_the_client_or_of_the_arrays_own_job() {
    let bench = Bench::new(1);
    let seen: Arc<Mutex<BTreeSet<IoClass>>> = Arc::default();
    let noting = |inner| {
        let seen = Arc::clone(&seen);
        Arc::new(NotingDrive { inner, seen, raised: Arc::default() }) as Arc<dyn ZonedDevice>
    };
    let take = || std::mem::take(&mut *seen.lock()).into_iter().collect::<Vec<_>>();
    block_on(&*bench.driver, async {
        let devices = bench.devices(&[]).into_iter().map(noting).collect();
        let array = Array::open(devices, OpenOptions::default()).await.expect("opened");
        let device: Arc<dyn ZonedDevice> = array.clone();
        take();
        // Whole stripes and a part of one: data and parity.
        let at = device.geometry().start(ZoneId(0));
        device
            .write_as(IoClass::Compaction, at, blocks(0, 0, 32), Durability::Cached)
            .await
            .expect("written");
        assert_eq!(take(), [IoClass::Compaction]);
        let next = at.plus(Blocks(32));
        device.write(next, blocks(0, 32, 40), Durability::Cached).await.expect("written");
        assert_eq!(take(), [IoClass::Log], "a client without a class");
        let into = BufMut::zeroed(16 * BLOCK_BYTES);
        device.read_as(IoClass::Flush, at, into).await.expect("read");
        assert_eq!(take(), [IoClass::Flush]);
        array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!(take(), [IoClass::Scrub]);
        // The last stripes of a zone are copied while the zone's clients wait.
        let long = device.geometry().start(ZoneId(1));
        device.write(long, blocks(1, 0, 160), Durability::Cached).await.expect("written");
        array.fail(Slot(1)).await.expect("failed");
        take();
        let new = noting(Bench::drive(&bench.driver, 9) as Arc<dyn ZonedDevice>);
        array.replace(Slot(1), new).await.expect("rebuilt");
        let classes = take();
        assert!([IoClass::Rebuild, IoClass::Read].iter().all(|class| classes.contains(class)), "{classes:?}");
    });
}
