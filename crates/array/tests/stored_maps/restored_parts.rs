//! Parts of a lost drive move to the spare room of the other drives.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use array::{Array, CheckOptions, CreateOptions, EventKind, OpenOptions, Pace, Placement, Role, Slot, check};
use units::sleep_until;
use zoned::{Action, Bytes, ZoneId, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES};

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

/// Logical zones of [`wide`] that [`fill_many`] writes: more lost parts than drives are left.
const MANY: u32 = 11;

/// The number of blocks that [`fill_many`] writes to a zone.
fn many_blocks(zone: ZoneId) -> u64 {
    300 + 17 * u64::from(zone.0)
}

fn fill_many(ground: &ArrayFixture, array: &Arc<Array>) {
    for zone in (0..MANY).map(ZoneId) {
        ground.write(array, zone, 1, 0, many_blocks(zone), 8);
    }
    ground.wait(device(array).flush()).expect("flushed");
}

fn check_many(ground: &ArrayFixture, array: &Arc<Array>) {
    (0..MANY).map(ZoneId).for_each(|zone| ground.check(array, zone, 1, many_blocks(zone)));
}

/// The parts of zones on a drive.
fn parts_on(array: &Arc<Array>, slot: Slot) -> Vec<(ZoneId, Role)> {
    let all = (0..MANY).flat_map(|zone| (0..5).map(move |role| (ZoneId(zone), Role(role))));
    all.filter(|(zone, role)| array.place(*zone, *role).is_some_and(|(of, _)| of == slot)).collect()
}

fn pass(ground: &ArrayFixture, time: Duration) {
    ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(time)));
}

/// Parts move side by side: one after the other takes more than half as long again.
#[test]
fn lost_parts_move_side_by_side() {
    let lost = Slot(2);
    let ground = wide(0);
    let array = ground.open(OpenOptions::default());
    fill_many(&ground, &array);
    let parts = parts_on(&array, lost);
    assert!(parts.len() > 5, "{parts:?}");
    ground.wait(array.fail(lost)).expect("failed");
    let start = ground.driver.now();
    for (zone, role) in &parts {
        let to = (0..6).map(Slot).find(|slot| *slot != lost && !slots(&array, *zone).contains(slot));
        let moved = ground.wait(array.move_part(*zone, *role, to.expect("a drive"), Pace::UNBOUNDED));
        assert!(moved.expect("moved"));
    }
    let one_by_one = ground.driver.now().since(start);
    let ground = wide(1);
    let array = ground.open(OpenOptions::default());
    fill_many(&ground, &array);
    assert_eq!(parts_on(&array, lost), parts);
    ground.wait(array.fail(lost)).expect("failed");
    let start = ground.driver.now();
    while array.status().lost_parts > 0 {
        pass(&ground, Duration::from_micros(5));
    }
    let side_by_side = ground.driver.now().since(start);
    assert!(side_by_side * 3 < one_by_one * 2, "{side_by_side:?} of {one_by_one:?}");
    check_many(&ground, &array);
    assert_eq!(array.counters().degraded_reads, 0);
}

/// Lost parts that only one drive can take move there one after the other: the array promises its users all active zones of a drive but
/// one.
#[test]
fn a_drive_gets_one_lost_part_at_a_time() {
    let create = CreateOptions {
        stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
        placement: Placement::Stored,
        width: Some(3),
        spare_drives: 1,
        ..CreateOptions::default()
    };
    let ground = ArrayFixture::created(4, 12, CAPACITY, 16, &create);
    let array = ground.open(OpenOptions::default());
    (0..MANY).for_each(|zone| ground.write(&array, ZoneId(zone), 1, 0, 200, 8));
    let (lost, target) = (Slot(1), Slot(0));
    let has_both = |zone: &ZoneId| [lost, target].iter().all(|slot| slots(&array, *zone).contains(slot));
    for zone in (0..MANY).map(ZoneId).filter(has_both) {
        ground.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
    }
    let left: Vec<ZoneId> =
        (0..MANY).map(ZoneId).filter(|zone| array.place(*zone, Role(0)).is_some()).collect();
    let events = array.events();
    let parts = parts_on(&array, lost).len() as u32;
    assert!(parts > 1, "{left:?}");
    ground.wait(array.fail(lost)).expect("failed");
    // The parts on their way, at any time: physical zones with content that no map names.
    let mut most = 0;
    while array.status().lost_parts > 0 {
        let placed: BTreeSet<ZoneId> = parts_on(&array, target)
            .iter()
            .filter_map(|(zone, role)| Some(array.place(*zone, *role)?.1))
            .collect();
        let drive: Arc<dyn ZonedDevice> = Arc::clone(&ground.emus[target.index()]) as _;
        let zones = ground.wait(drive.report(METADATA_ZONES..drive.geometry().zones)).expect("reported");
        let moving = zones.iter().filter(|info| info.pointer.0 > 0 && !placed.contains(&info.zone));
        most = most.max(moving.count());
        pass(&ground, Duration::from_micros(1));
    }
    assert_eq!(most, 1);
    assert_eq!(restored(&ground, &events), (parts, 0));
    left.iter().for_each(|zone| ground.check(&array, *zone, 1, 200));
}

/// Clients write to zones while their lost parts move, and the array is in use meanwhile: another job gets its turn.
#[test]
fn clients_write_and_another_part_moves_while_lost_parts_move() {
    let ground = wide(1);
    let array = ground.open(OpenOptions::default());
    fill_many(&ground, &array);
    let (events, lost) = (array.events(), Slot(4));
    let kept =
        (0..MANY).map(ZoneId).find(|zone| !slots(&array, *zone).contains(&lost)).expect("one has none");
    let own = array.place(kept, Role(0)).expect("a place").0;
    ground.wait(array.fail(lost)).expect("failed");
    let moved = ground.wait(array.move_part(kept, Role(0), own, Pace::UNBOUNDED));
    assert!(moved.expect("moved"));
    let is_over = |event: &array::Event| matches!(event.kind, EventKind::RestoreEnded { .. });
    let seen: Vec<array::Event> = std::iter::from_fn(|| events.try_next()).collect();
    assert!(!seen.iter().any(is_over), "the move did not wait for all parts");
    for zone in (0..MANY).map(ZoneId) {
        let from = many_blocks(zone);
        ground.write(&array, zone, 1, from, from + 40, 8);
    }
    assert_eq!(restored(&ground, &events).1, 0);
    for zone in (0..MANY).map(ZoneId) {
        ground.check(&array, zone, 1, many_blocks(zone) + 40);
    }
    assert_eq!(array.status().lost_parts, 0);
}

/// The array is closed while parts move: all moves end soon, and the next mount moves what is left.
#[test]
fn a_closed_array_moves_its_lost_parts_at_the_next_mount() {
    for time in [50, 200, 700, 1500] {
        let ground = wide(1);
        let array = ground.open(OpenOptions::default());
        fill_many(&ground, &array);
        ground.wait(array.fail(Slot(3))).expect("failed");
        pass(&ground, Duration::from_micros(time));
        drop(array);
        pass(&ground, Duration::from_millis(2));
        let array = ground.open_without(3);
        pass(&ground, Duration::from_millis(200));
        assert_eq!(array.status().lost_parts, 0, "after {time} us");
        check_many(&ground, &array);
        assert_eq!(array.counters().degraded_reads, 0);
    }
}

/// A second drive fails while the parts of the first one move: with two parities all parts of both move to the drives that are left.
#[test]
fn another_drive_fails_while_lost_parts_move() {
    for time in (0..1500).step_by(250) {
        let create = CreateOptions {
            stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
            placement: Placement::Stored,
            parities: 2,
            width: Some(5),
            spare_drives: 2,
            ..CreateOptions::default()
        };
        let ground = ArrayFixture::created(8, 12, CAPACITY, 16, &create);
        let array = ground.open(OpenOptions::default());
        fill_many(&ground, &array);
        ground.wait(array.fail(Slot(6))).expect("failed");
        pass(&ground, Duration::from_micros(time));
        ground.wait(array.fail(Slot(1))).expect("failed");
        pass(&ground, Duration::from_millis(200));
        assert_eq!(array.status().lost_parts, 0, "after {time} us");
        check_many(&ground, &array);
        assert_eq!(array.counters().degraded_reads, 0);
    }
}
