//! Parts of a lost drive move to the spare room of the other drives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use array::{Array, CheckOptions, CreateOptions, EventKind, OpenOptions, Pace, Placement, Role, Slot, check};
use units::sleep_until;
use zoned::{Action, Bytes, ZoneId, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES};

/// Usable blocks of a physical zone.
const CAPACITY: u64 = 192;
const ZONES: u32 = 5;

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

/// Six drives of four units a stripe. The capacity of `spare_drives` of them is free.
fn wide(spare_drives: u32) -> ArrayFixture {
    let create = CreateOptions {
        stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
        placement: Placement::Stored,
        width: Some(4),
        spare_drives,
        ..CreateOptions::default()
    };
    ArrayFixture::created(6, 10, CAPACITY, 16, &create)
}

fn fill(ground: &ArrayFixture, array: &Arc<Array>) {
    for zone in (0..ZONES).map(ZoneId) {
        ground.write(array, zone, 1, 0, 60 + 31 * u64::from(zone.0), 7);
    }
    ground.wait(device(array).zone(ZoneId(2), Action::Finish)).expect("finished");
}

fn check_all(ground: &ArrayFixture, array: &Arc<Array>) {
    (0..ZONES).for_each(|zone| ground.check(array, ZoneId(zone), 1, 60 + 31 * u64::from(zone)));
}

/// The drives with parts of a zone.
fn slots(array: &Arc<Array>, zone: ZoneId) -> BTreeSet<Slot> {
    (0..4).filter_map(|role| Some(array.place(zone, Role(role))?.0)).collect()
}

/// Waits for the end of the moves that a failure began, and returns how many parts were moved and how many are left.
fn restored(ground: &ArrayFixture, events: &array::Events) -> (u32, u32) {
    for _ in 0..100 {
        while let Some(event) = events.try_next() {
            if let EventKind::RestoreEnded { moved, left } = event.kind {
                return (moved, left);
            }
        }
        ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_millis(5))));
    }
    panic!("no part was moved");
}

/// A drive fails while the array is in use: its parts move at once, and every zone has its redundancy again.
#[test]
fn the_parts_of_a_failed_drive_move_to_spare_room() {
    let ground = wide(1);
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    let events = array.events();
    let lost = Slot(2);
    let parts = (0..ZONES).filter(|zone| slots(&array, ZoneId(*zone)).contains(&lost)).count() as u32;
    assert!(parts > 0 && array.status().lost_parts == 0);
    ground.wait(array.fail(lost)).expect("failed");
    assert_eq!(restored(&ground, &events), (parts, 0));
    assert_eq!(array.status().lost_parts, 0);
    for zone in (0..ZONES).map(ZoneId) {
        let slots = slots(&array, zone);
        assert!(slots.len() == 4 && !slots.contains(&lost), "zone {zone}: {slots:?}");
    }
    check_all(&ground, &array);
    // Every block is read from its own drive: no read is reconstructed.
    assert_eq!(array.counters().degraded_reads, 0);
    drop(array);
    let again = ground.open_without(lost.index());
    check_all(&ground, &again);
    assert_eq!(again.counters().degraded_reads, 0);
}

/// An array that is opened without a drive restores the drive's parts too.
#[test]
fn an_array_opened_without_a_drive_restores_its_parts() {
    let ground = wide(2);
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    ground.wait(device(&array).flush()).expect("flushed");
    drop(array);
    let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
    let array = left.open_without(1);
    left.wait(sleep_until(&*left.driver, left.driver.now().after(Duration::from_millis(200))));
    assert_eq!(array.status().lost_parts, 0);
    check_all(&left, &array);
    assert_eq!(array.counters().degraded_reads, 0);
    drop(array);
    let mut devices = left.devices();
    devices.remove(1);
    let report = left.wait(check(&devices, CheckOptions { deep: true })).expect("checked");
    let of_zones: Vec<_> = report.problems.iter().filter(|problem| problem.zone.is_some()).collect();
    assert!(of_zones.is_empty(), "{of_zones:?}");
}

/// Without spare room nothing moves: each empty zone keeps its physical zones.
#[test]
fn an_array_without_spare_room_moves_nothing() {
    let ground = wide(0);
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    ground.wait(array.fail(Slot(0))).expect("failed");
    let result = ground.wait(array.restore_parts(Pace::UNBOUNDED)).expect("nothing to do");
    assert!(result.moved == 0 && result.left > 0, "{result:?}");
    assert_eq!(array.status().lost_parts, result.left);
    check_all(&ground, &array);
}

/// The power is cut at any moment of the moves: all content is there, and the next mount goes on.
#[test]
fn a_power_cut_while_lost_parts_move_leaves_all_content() {
    for time in (0..2400).step_by(80) {
        let ground = wide(1);
        let array = ground.open(OpenOptions::default());
        fill(&ground, &array);
        ground.wait(device(&array).flush()).expect("flushed");
        ground.wait(array.fail(Slot(3))).expect("failed");
        let left = ground.wait(async {
            sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(time))).await;
            ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()))
        });
        let array = left.open_without(3);
        check_all(&left, &array);
        left.wait(sleep_until(&*left.driver, left.driver.now().after(Duration::from_millis(200))));
        assert_eq!(array.status().lost_parts, 0, "after {time} us");
        check_all(&left, &array);
    }
}
