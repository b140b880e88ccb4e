//! The lives of zones with stored maps: the first write takes physical zones, and a reset gives them up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use array::{Array, CreateOptions, EventKind, OpenOptions, Placement, Slot, check};
use units::{Driver, sleep_until, spawn};
use zoned::emu::{Emu, Latency};
use zoned::{
    Action, Blocks, Bytes, Durability, Error, ErrorKind, Geometry, Io, Op, ZoneId, ZoneState, ZonedDevice,
};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, blocks};

const ZONE: ZoneId = ZoneId(1);

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

/// The physical zones of a drive with content, without its metadata zones.
fn written_zones(ground: &ArrayFixture, drive: usize) -> BTreeSet<u32> {
    let emu: &dyn ZonedDevice = &*ground.emus[drive];
    let report = ground.wait(emu.report(METADATA_ZONES..emu.geometry().zones)).expect("reported");
    report.iter().filter(|info| info.pointer > Blocks::ZERO).map(|info| info.zone.0).collect()
}

/// Every physical zone but the one in reserve holds a part once all logical zones are written, and none after their reset.
#[test]
fn each_logical_zone_finds_a_free_physical_zone_of_each_drive() {
    let ground = ArrayFixture::with_open(4, 6, 128, 4, 12);
    let array = ground.open(OpenOptions::default());
    for life in 1..4 {
        for zone in (0..6).map(ZoneId) {
            ground.write(&array, zone, life, 0, 30, 6);
        }
        (0..4).for_each(|drive| assert_eq!(written_zones(&ground, drive).len(), 6, "drive {drive}"));
        (0..6).map(ZoneId).for_each(|zone| ground.check(&array, zone, life, 30));
        for zone in (0..6).map(ZoneId) {
            ground.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
            assert_eq!(ground.zone(&array, zone).state, ZoneState::Empty);
        }
        (0..4).for_each(|drive| assert_eq!(written_zones(&ground, drive), BTreeSet::new(), "drive {drive}"));
    }
}

/// As many physical zones may wear out as are in reserve, at any time, and each logical zone still holds content.
#[test]
fn worn_zones_take_from_the_reserve_and_then_an_empty_zone_cannot_begin() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let ground = ArrayFixture::with_open(4, 6, 128, 4, 12);
        let mut array = ground.open(OpenOptions::default());
        ground.write(&array, ZoneId(0), 1, 0, 30, 6);
        ground.wait(device(&array).flush()).expect("flushed");
        ground.emus[2].wear(ZoneId(METADATA_ZONES), state);
        let events = array.events();
        ground.wait(device(&array).zone(ZoneId(0), Action::Reset)).expect("reset, whatever wore out");
        let event = events.try_next().expect("an event of the wear that the reset finds");
        assert_eq!(event.kind, EventKind::ZoneWorn { slot: Slot(2), zone: ZoneId(0), state });
        for remounts in 0..3 {
            for zone in (0..6).map(ZoneId) {
                ground.write(&array, zone, remounts + 2, 0, 30, 6);
                ground.check(&array, zone, remounts + 2, 30);
            }
            for zone in (0..6).map(ZoneId) {
                ground.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
            }
            drop(array);
            array = ground.open(OpenOptions::default());
        }
        // One more than the reserve: five logical zones of six can be written.
        ground.emus[2].wear(ZoneId(METADATA_ZONES + 4), state);
        drop(array);
        let array = ground.open(OpenOptions::default());
        (0..5).map(ZoneId).for_each(|zone| ground.write(&array, zone, 9, 0, 30, 6));
        let at = device(&array).geometry().start(ZoneId(5));
        let error =
            ground.wait(device(&array).write(at, blocks(9, 0, 6), Durability::Cached)).expect_err("no room");
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("drive 2 has no free physical zone"), "{error}");
        (0..5).map(ZoneId).for_each(|zone| ground.check(&array, zone, 9, 30));
        // A reset gives its physical zones up for another logical zone.
        ground.wait(device(&array).zone(ZoneId(3), Action::Reset)).expect("reset");
        ground.write(&array, ZoneId(5), 9, 0, 30, 6);
        ground.check(&array, ZoneId(5), 9, 30);
    }
}

/// A drive that refuses resets of zones behind its metadata zones.
#[derive(Debug)]
struct RefusedResets {
    inner: Arc<dyn ZonedDevice>,
    refuses: AtomicBool,
}

impl ZonedDevice for RefusedResets {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, op: Op) -> Io {
        match op {
            Op::Zone { zone, action: Action::Reset }
                if zone.0 >= METADATA_ZONES && self.refuses.load(Ordering::Relaxed) =>
            {
                Io::ready(Err(Error::new(ErrorKind::Invalid, &self.geometry().name, "reset").in_zone(zone)))
            }
            op => self.inner.submit(op),
        }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

/// A reset that a drive refuses leaves the physical zones to the next reset of the logical zone: none is lost.
#[test]
fn physical_zones_of_a_refused_reset_are_free_after_the_next_one() {
    let ground = ArrayFixture::with_open(4, 6, 128, 4, 12);
    let mut devices = ground.devices();
    let drive = Arc::new(RefusedResets { inner: Arc::clone(&devices[1]), refuses: AtomicBool::new(false) });
    devices[1] = Arc::clone(&drive) as Arc<dyn ZonedDevice>;
    let array = ground.wait(Array::open(devices, OpenOptions::default())).expect("opened");
    for life in 1..4 {
        (0..6).map(ZoneId).for_each(|zone| ground.write(&array, zone, life, 0, 30, 6));
        drive.refuses.store(true, Ordering::Relaxed);
        for zone in (0..3).map(ZoneId) {
            let reset = ground.wait(device(&array).zone(zone, Action::Reset));
            assert_eq!(reset.expect_err("refused").kind(), ErrorKind::Invalid);
        }
        drive.refuses.store(false, Ordering::Relaxed);
        for zone in (0..6).map(ZoneId) {
            ground.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
        }
        (0..4).for_each(|drive| assert_eq!(written_zones(&ground, drive), BTreeSet::new(), "drive {drive}"));
    }
    (0..6).map(ZoneId).for_each(|zone| ground.write(&array, zone, 9, 0, 30, 6));
    (0..6).map(ZoneId).for_each(|zone| ground.check(&array, zone, 9, 30));
}

/// A power cut at any moment of a reset leaves the whole zone or an empty one, also without one of the drives.
#[test]
fn a_power_cut_during_a_reset_leaves_all_of_a_zone_or_nothing() {
    let (mut whole, mut empty) = (0, 0);
    for time in (0..60).step_by(2) {
        for lost in [None, Some(0), Some(2)] {
            let ground = ArrayFixture::new(4, 5, 96, 4);
            let array = ground.open(OpenOptions::default());
            ground.write(&array, ZONE, 1, 0, 30, 4);
            ground.wait(device(&array).flush()).expect("flushed");
            let reset = spawn(&*ground.driver, "reset", {
                let array = Arc::clone(&array);
                async move { device(&array).zone(ZONE, Action::Reset).await }
            });
            let left = ground.wait(async {
                sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(time))).await;
                ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()))
            });
            drop(reset);
            let array = left.open_perhaps_without(lost);
            if left.zone(&array, ZONE).state == ZoneState::Empty {
                empty += 1;
                for drive in (0..4).filter(|drive| Some(*drive) != lost) {
                    assert_eq!(
                        written_zones(&left, drive),
                        BTreeSet::new(),
                        "after {time} us, drive {drive}"
                    );
                }
                left.write(&array, ZONE, 2, 0, 60, 4);
                left.check(&array, ZONE, 2, 60);
            } else {
                whole += 1;
                left.check(&array, ZONE, 1, 30);
            }
        }
    }
    assert!(whole > 0 && empty > 20, "{whole} cuts left the zone whole, {empty} left it empty");
}

/// A zone that begins, ends and begins again beside the rebuild of a drive has its content on the new drive.
#[test]
fn zones_begin_and_end_beside_a_rebuild() {
    for pause in [0, 60, 150, 400, 900, 2000] {
        let ground = ArrayFixture::with_open(4, 6, 128, 4, 12);
        let array = ground.open(OpenOptions::default());
        (0..4).map(ZoneId).for_each(|zone| ground.write(&array, zone, 1, 0, 90, 6));
        ground.wait(array.fail(Slot(1))).expect("failed");
        let new = ArrayFixture::with_open(4, 6, 128, 4, 12).emus.remove(1).media();
        let new =
            Emu::from_media(new, "new", Latency::all(Duration::from_micros(10)), Arc::clone(&ground.driver));
        let options = array::RebuildOptions { pace: array::Pace::UNBOUNDED };
        let rebuild =
            ground.wait(array.start_replace(Slot(1), Arc::clone(&new) as Arc<dyn ZonedDevice>, options));
        let rebuild = rebuild.expect("begun");
        ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(pause))));
        for zone in [ZoneId(0), ZoneId(3), ZoneId(5), ZoneId(0)] {
            ground.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
            ground.write(&array, zone, 2, 0, 50, 5);
        }
        ground.wait(rebuild.wait()).expect("rebuilt");
        let life_of = |zone: ZoneId| if [0, 3, 5].contains(&zone.0) { (2, 50) } else { (1, 90) };
        for lost in [0, 2, 3] {
            let mut images: Vec<_> = ground.emus.iter().map(|emu| emu.media()).collect();
            images[1] = new.media();
            let again = ArrayFixture::of(images.into_iter());
            let degraded = again.open_without(lost);
            for zone in [0, 1, 2, 3, 5].map(ZoneId) {
                let (life, end) = life_of(zone);
                again.check(&degraded, zone, life, end);
            }
        }
    }
}

/// A deep check reads every part through the maps.
#[test]
fn a_checked_array_with_maps_has_no_problem() {
    let ground = ArrayFixture::new(5, 6, 128, 4);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZONE, 1, 0, 200, 7);
    ground.wait(device(&array).zone(ZoneId(3), Action::Finish)).expect("finished");
    ground.wait(device(&array).flush()).expect("flushed");
    drop(array);
    let report = ground.wait(check(&ground.devices(), array::CheckOptions { deep: true })).expect("checked");
    assert_eq!(report.problems, []);
}

/// Each drive keeps a physical zone in reserve beside one for each logical zone.
#[test]
fn an_array_too_small_for_a_reserve_is_refused() {
    let ground = ArrayFixture::new(3, 1, 96, 2);
    let drives: Vec<Arc<dyn ZonedDevice>> = ground.devices();
    let options = CreateOptions {
        stripe_unit: Bytes(2 * u64::from(BLOCK_BYTES)),
        placement: Placement::Stored,
        ..CreateOptions::default()
    };
    assert_eq!(array::plan(&drives, &options).expect("one logical zone").zones, 1);
    let small = |n: usize| {
        let options = zoned::emu::EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: METADATA_ZONES + 1,
            zone_size: Blocks(96),
            zone_capacity: Blocks(96),
            ..zoned::emu::EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&ground.driver)) as Arc<dyn ZonedDevice>
    };
    let error = array::plan(&(0..3).map(small).collect::<Vec<_>>(), &options).expect_err("no zone for data");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
