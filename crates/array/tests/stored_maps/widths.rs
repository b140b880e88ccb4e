//! Arrays with more drives than a stripe has units: each zone takes some of the drives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use array::{Array, CheckOptions, CreateOptions, OpenOptions, Pace, Placement, RebuildOptions, Slot, check};
use units::{sleep_until, spawn};
use zoned::emu::{Emu, Latency, Seeded};
use zoned::{Action, Blocks, Bytes, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES};

/// Blocks of a stripe unit.
const UNIT: u64 = 4;
/// Usable blocks of a physical zone.
const CAPACITY: u64 = 192;

fn options(width: u32, parities: u32, spare_drives: u32) -> CreateOptions {
    CreateOptions {
        stripe_unit: Bytes(UNIT * u64::from(BLOCK_BYTES)),
        placement: Placement::Stored,
        width: Some(width),
        parities,
        spare_drives,
        ..CreateOptions::default()
    }
}

/// An array of `drives` drives with `part_zones` physical zones beside the reserve.
fn wide(drives: u32, part_zones: u32, create: &CreateOptions) -> ArrayFixture {
    ArrayFixture::created(drives, part_zones, CAPACITY, 16, create)
}

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

fn blank_drive(ground: &ArrayFixture, drive: usize) -> Arc<dyn ZonedDevice> {
    let media = wide(6, 10, &options(4, 1, 0)).emus.remove(drive).media();
    Emu::from_media(media, "new", Latency::all(Duration::from_micros(10)), Arc::clone(&ground.driver))
}

/// The physical zones of a drive with content, without its metadata zones.
fn written_zones(ground: &ArrayFixture, drive: usize) -> usize {
    let emu: &dyn ZonedDevice = &*ground.emus[drive];
    let report = ground.wait(emu.report(METADATA_ZONES..emu.geometry().zones)).expect("reported");
    report.iter().filter(|info| info.pointer > Blocks::ZERO).count()
}

/// Six drives of ten zones hold fifteen zones of four units each, which fill every physical zone but those in reserve.
#[test]
fn zones_of_a_narrow_width_take_the_capacity_of_all_drives() {
    for (parities, data) in [(1, 3), (2, 2)] {
        let ground = wide(6, 10, &options(4, parities, 0));
        let array = ground.open(OpenOptions::default());
        let blocks = device(&array).geometry().zone_capacity;
        assert_eq!((device(&array).geometry().zones, blocks), (15, Blocks(CAPACITY * data)));
        for zone in (0..15).map(ZoneId) {
            ground.write(&array, zone, 1 + u64::from(zone.0), 0, blocks.0, 24);
        }
        ground.wait(device(&array).flush()).expect("flushed");
        for drive in 0..6 {
            assert_eq!(written_zones(&ground, drive), 10, "drive {drive}");
        }
        for lost in [None, Some(0), Some(3), Some(5)] {
            let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            let array = left.open_perhaps_without(lost);
            for zone in (0..15).map(ZoneId) {
                left.check(&array, zone, 1 + u64::from(zone.0), blocks.0);
            }
        }
        drop(array);
        let report = ground.wait(check(&ground.devices(), CheckOptions { deep: true })).expect("checked");
        assert_eq!(report.problems, []);
    }
}

/// A zone whose first write comes while a drive is missing takes other drives: its parts are all there, and the drive's replacement
/// gets no part of it.
#[test]
fn a_zone_that_begins_without_a_drive_takes_the_others() {
    let ground = wide(6, 10, &options(4, 1, 0));
    let array = ground.open(OpenOptions::default());
    ground.wait(array.fail(Slot(2))).expect("failed");
    for zone in (0..5).map(ZoneId) {
        ground.write(&array, zone, 1, 0, 90, 9);
    }
    let new = blank_drive(&ground, 2);
    let unbounded = RebuildOptions { pace: Pace::UNBOUNDED };
    let rebuild = ground.wait(array.start_replace(Slot(2), Arc::clone(&new), unbounded)).expect("begun");
    ground.wait(rebuild.wait()).expect("rebuilt");
    let report = ground.wait(new.report(METADATA_ZONES..new.geometry().zones)).expect("reported");
    assert!(report.iter().all(|info| info.pointer == Blocks::ZERO), "{report:?}");
    // Zones that begin from here on take the new drive first: it has the most free zones.
    ground.write(&array, ZoneId(9), 2, 0, 90, 9);
    let report = ground.wait(new.report(METADATA_ZONES..new.geometry().zones)).expect("reported");
    assert_eq!(report.iter().filter(|info| info.pointer > Blocks::ZERO).count(), 1);
    (0..5).map(ZoneId).for_each(|zone| ground.check(&array, zone, 1, 90));
    ground.check(&array, ZoneId(9), 2, 90);
}

/// A new drive gets the parts of those zones alone that the failed drive held.
#[test]
fn a_new_drive_gets_the_parts_of_the_failed_one() {
    let ground = wide(6, 10, &options(4, 1, 0));
    let array = ground.open(OpenOptions::default());
    for zone in (0..12).map(ZoneId) {
        ground.write(&array, zone, 3, 0, 100 + 8 * u64::from(zone.0), 8);
    }
    let held = written_zones(&ground, 4);
    ground.wait(array.fail(Slot(4))).expect("failed");
    let new = blank_drive(&ground, 4);
    let unbounded = RebuildOptions { pace: Pace::UNBOUNDED };
    let rebuild = ground.wait(array.start_replace(Slot(4), Arc::clone(&new), unbounded)).expect("begun");
    ground.wait(rebuild.wait()).expect("rebuilt");
    let report = ground.wait(new.report(METADATA_ZONES..new.geometry().zones)).expect("reported");
    assert_eq!(report.iter().filter(|info| info.pointer > Blocks::ZERO).count(), held);
    ground.wait(array.fail(Slot(0))).expect("failed");
    for zone in (0..12).map(ZoneId) {
        ground.check(&array, zone, 3, 100 + 8 * u64::from(zone.0));
    }
}

/// The blocks of a zone that were flushed before a power cut are there after it, whichever drive is lost with the power.
#[test]
fn flushed_blocks_survive_a_power_cut_and_any_one_drive() {
    let (mut cuts, mut empty) = (0, 0);
    for time in (40..900).step_by(70) {
        let ground = wide(5, 6, &options(3, 1, 0));
        let array = ground.open(OpenOptions::default());
        let durable: Arc<parking_lot::Mutex<BTreeSet<u32>>> = Arc::default();
        let work = {
            let (array, durable) = (Arc::clone(&array), Arc::clone(&durable));
            async move {
                for round in 0..4 {
                    for zone in (0..8).map(ZoneId) {
                        durable.lock().remove(&zone.0);
                        if round > 0 && device(&array).zone(zone, Action::Reset).await.is_err() {
                            return;
                        }
                        let start = device(&array).geometry().start(zone);
                        let content = crate::ground::blocks(u64::from(zone.0), 0, 13);
                        let how = zoned::Durability::Durable;
                        if device(&array).write(start, content, how).await.is_err() {
                            return;
                        }
                        durable.lock().insert(zone.0);
                    }
                }
            }
        };
        let running = spawn(&*ground.driver, "zones", work);
        let (left, known) = ground.wait(async {
            sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(time))).await;
            let cut = |(n, emu): (u64, &Arc<Emu>)| emu.power_cut(&mut Seeded::new(time << 8 | n));
            let images: Vec<_> = (0..).zip(&ground.emus).map(cut).collect();
            (images, durable.lock().clone())
        });
        drop(running);
        for lost in [None, Some(0), Some(1), Some(4)] {
            let left = ArrayFixture::of(left.iter().cloned());
            let array = left.open_perhaps_without(lost);
            for zone in (0..8).map(ZoneId) {
                if known.contains(&zone.0) {
                    left.check(&array, zone, u64::from(zone.0), 13);
                } else if left.zone(&array, zone).state == ZoneState::Empty {
                    empty += 1;
                }
            }
            cuts += usize::from(!known.is_empty());
            // Every zone can be written again.
            for zone in (0..8).map(ZoneId) {
                left.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
                left.write(&array, zone, 77, 0, 40, 8);
                left.check(&array, zone, 77, 40);
            }
        }
    }
    assert!(cuts > 20 && empty > 10, "{cuts} cuts with content, {empty} empty zones");
}

#[test]
fn widths_and_spare_capacity_that_do_not_fit_are_refused() {
    let drives = wide(6, 10, &options(4, 1, 0)).devices();
    let refusal = |create: CreateOptions| {
        let error = array::plan(&drives, &create).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    assert!(refusal(options(2, 1, 0)).contains("have 3 to 6 units"));
    assert!(refusal(options(3, 2, 0)).contains("have 4 to 6 units"));
    assert!(refusal(options(7, 1, 0)).contains("have 3 to 6 units"));
    assert!(refusal(options(5, 1, 2)).contains("can spare 1"));
    let fixed = CreateOptions { placement: Placement::Fixed, ..options(4, 1, 0) };
    assert!(refusal(fixed).contains("needs stored maps"));
    let spared = array::plan(&drives, &options(4, 1, 2)).expect("two drives' capacity stays free");
    assert_eq!((spared.zones, spared.width, spared.spare_drives), (10, 4, 2));
}
