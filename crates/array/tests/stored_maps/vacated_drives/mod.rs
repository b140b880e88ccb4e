//! A failed drive of which the array lacks nothing: all its parts lie on other drives. One more may fail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use array::{
    Array, CreateOptions, Events, Health, MemberState, OpenOptions, Placement, RebuildOptions, Role, Slot,
    status,
};
use units::sleep_until;
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Action, Bytes, ErrorKind, ZoneId, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES};

mod replacements;

const ZONES: u32 = 8;
/// Physical zones of a drive for parts, without the reserve.
const PART_ZONES: u32 = 10;

/// Drives with stripes of `width` units, the capacity of one drive free.
fn drives(count: u32, width: u32) -> ArrayFixture {
    drives_with_open_zones(count, width, 16)
}

/// As [`drives`], of which each can have `open` zones open.
fn drives_with_open_zones(count: u32, width: u32, open: u32) -> ArrayFixture {
    let create = CreateOptions {
        stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
        placement: Placement::Stored,
        width: Some(width),
        spare_drives: 1,
        ..CreateOptions::default()
    };
    ArrayFixture::created(count, PART_ZONES, 192, open, &create)
}

fn six_drives() -> ArrayFixture {
    drives(6, 4)
}

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

fn blocks(zone: ZoneId) -> u64 {
    90 + 31 * u64::from(zone.0)
}

fn fill(ground: &ArrayFixture, array: &Arc<Array>) {
    (0..ZONES).map(ZoneId).for_each(|zone| ground.write(array, zone, 1, 0, blocks(zone), 7));
    ground.wait(device(array).flush()).expect("flushed");
}

fn check_all(ground: &ArrayFixture, array: &Arc<Array>) {
    (0..ZONES).map(ZoneId).for_each(|zone| ground.check(array, zone, 1, blocks(zone)));
}

/// The number of parts of zones on a drive.
fn parts_on(array: &Arc<Array>, slot: Slot) -> usize {
    let parts = (0..ZONES).flat_map(|zone| (0..4).map(move |role| (ZoneId(zone), Role(role))));
    parts.filter(|(zone, role)| array.place(*zone, *role).is_some_and(|(of, _)| of == slot)).count()
}

fn pass(ground: &ArrayFixture, time: Duration) {
    ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(time)));
}

/// Waits until `is` holds.
fn wait_until(ground: &ArrayFixture, what: &str, is: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if is() {
            return;
        }
        pass(ground, Duration::from_millis(2));
    }
    panic!("{what}: not within 4 s");
}

fn new_drive(ground: &ArrayFixture, n: u32) -> Arc<dyn ZonedDevice> {
    drive_with_latency(ground, n, Duration::from_micros(10))
}

fn drive_with_latency(ground: &ArrayFixture, n: u32, latency: Duration) -> Arc<Emu> {
    let like = ground.emus[0].geometry();
    let options = EmuOptions {
        name: format!("emu:{n}"),
        block_size: like.block_size,
        zones: like.zones,
        zone_size: like.zone_size,
        zone_capacity: like.zone_capacity,
        max_open: like.max_open,
        max_active: like.max_active,
        volatile_cache: true,
        latency: Latency::all(latency),
        ..EmuOptions::default()
    };
    Emu::memory(options, Arc::clone(&ground.driver))
}

fn state(array: &Arc<Array>, slot: Slot) -> MemberState {
    array.status().members[slot.index()].state
}

fn kinds(events: &Events) -> Vec<&'static str> {
    std::iter::from_fn(|| events.try_next()).map(|event| event.kind.name()).collect()
}

/// Once all parts of a failed drive lie elsewhere the array is clean, and goes on after the loss of another drive, with the power.
#[test]
fn an_array_whose_lost_parts_have_moved_loses_another_drive() {
    for second in [0, 1, 3, 4, 5].map(Slot) {
        let ground = six_drives();
        let array = ground.open(OpenOptions::default());
        fill(&ground, &array);
        ground.wait(array.fail(Slot(2))).expect("failed");
        assert_eq!((array.status().health(), array.status().failures_left()), (Health::Degraded, 0));
        let refused = ground.wait(array.fail(second)).expect_err("one is lacking already");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
        assert_eq!((array.status().health(), array.status().failures_left()), (Health::Clean, 1));
        let images = ground.cut(u64::from(second.0)).into_iter().zip(0_u32..);
        let is_there = |slot: u32| slot != 2 && slot != second.0;
        let left = ArrayFixture::of(images.filter(|(_, slot)| is_there(*slot)).map(|(image, _)| image));
        let found = left.wait(status(&left.devices())).expect("a status");
        assert_eq!(found.members[2].state, MemberState::Vacated);
        assert_eq!((found.health(), found.mount_error), (Health::Degraded, None));
        let again = left.open(OpenOptions::default());
        check_all(&left, &again);
        assert!(!again.is_broken());
        // The array in use goes on too, and takes writes.
        ground.wait(array.fail(second)).expect("another one may fail");
        check_all(&ground, &array);
        let zone = ZoneId(0);
        ground.write(&array, zone, 1, blocks(zone), blocks(zone) + 40, 7);
        ground.check(&array, zone, 1, blocks(zone) + 40);
    }
}

/// The drive that failed comes back with its old content: it is no member.
#[test]
fn a_vacated_drive_that_comes_back_is_no_member() {
    let ground = six_drives();
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    ground.wait(array.fail(Slot(2))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
    drop(array);
    pass(&ground, Duration::from_millis(5));
    let array = ground.open(OpenOptions::default());
    assert_eq!(state(&array, Slot(2)), MemberState::Vacated);
    check_all(&ground, &array);
}

/// An idle spare is taken after the moves to spare room; then the new drive takes parts back, until the drives hold alike.
#[test]
fn an_idle_spare_comes_after_the_spare_room_and_takes_parts_back() {
    let ground = six_drives();
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    let events = array.events();
    ground.wait(array.add_spare(new_drive(&ground, 9))).expect("added");
    let before = parts_on(&array, Slot(2));
    ground.wait(array.fail(Slot(2))).expect("failed");
    wait_until(&ground, "good", || state(&array, Slot(2)) == MemberState::Good);
    let seen = kinds(&events);
    let place = |name| seen.iter().position(|kind| *kind == name);
    assert!(place("restore-ended").is_some() && place("restore-ended") < place("spare-used"), "{seen:?}");
    wait_until(&ground, "balanced", || {
        let parts: BTreeSet<usize> = (0..6).map(|slot| parts_on(&array, Slot(slot))).collect();
        parts.last().zip(parts.first()).is_some_and(|(most, least)| most - least <= 1)
    });
    assert!(parts_on(&array, Slot(2)) + 1 >= before);
    assert_eq!((array.status().health(), array.status().lost_parts), (Health::Clean, 0));
    check_all(&ground, &array);
    // Another drive fails: its parts find room again.
    ground.wait(array.fail(Slot(4))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(4)) == MemberState::Vacated);
    check_all(&ground, &array);
    assert_eq!(array.counters().degraded_reads, 0);
}

/// An array with an idle spare that is opened without a drive uses the spare room first, too.
#[test]
fn an_opening_without_a_drive_uses_the_spare_room_before_an_idle_spare() {
    let ground = six_drives();
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    let spare = new_drive(&ground, 9);
    ground.wait(array.add_spare(Arc::clone(&spare))).expect("added");
    drop(array);
    pass(&ground, Duration::from_millis(5));
    let mut devices = ground.devices();
    devices.remove(2);
    devices.push(spare);
    let array = ground.wait(Array::open(devices, OpenOptions::default())).expect("opened");
    assert!(array.rebuild().is_none(), "the spare is taken before the parts have moved");
    wait_until(&ground, "good", || state(&array, Slot(2)) == MemberState::Good);
    assert_eq!((array.status().health(), array.status().lost_parts), (Health::Clean, 0));
    check_all(&ground, &array);
}

/// A replacement that was cancelled leaves parts lost that had not moved: they move afterwards.
#[test]
fn lost_parts_move_after_a_cancelled_rebuild() {
    let ground = six_drives();
    let array = ground.open(OpenOptions { resume: false, ..OpenOptions::default() });
    fill(&ground, &array);
    ground.wait(array.fail(Slot(2))).expect("failed");
    drop(array);
    pass(&ground, Duration::from_millis(5));
    let array = ground.open(OpenOptions::default());
    let rebuild = ground.wait(array.start_replace(Slot(2), new_drive(&ground, 9), RebuildOptions::default()));
    rebuild.expect("begun").cancel();
    wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
    assert_eq!(array.status().lost_parts, 0);
    check_all(&ground, &array);
}

/// Parts that find no room stay lost. When the zones with such parts were reset, the array lacks nothing of the drive either.
#[test]
fn a_drive_is_vacated_once_the_zones_with_its_parts_were_reset() {
    let ground = six_drives();
    let array = ground.open(OpenOptions::default());
    let zones = device_zones(&array);
    (0..zones).map(ZoneId).for_each(|zone| ground.write(&array, zone, 1, 0, 40, 7));
    ground.wait(array.fail(Slot(2))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
    ground.wait(array.fail(Slot(3))).expect("failed");
    pass(&ground, Duration::from_millis(50));
    assert!(array.status().lost_parts > 0);
    let kept = |zone: &ZoneId| {
        (0..4).all(|role| array.place(*zone, Role(role)).is_some_and(|(of, _)| of != Slot(3)))
    };
    let (kept, reset): (Vec<ZoneId>, Vec<ZoneId>) = (0..zones).map(ZoneId).partition(kept);
    assert!(!kept.is_empty() && !reset.is_empty());
    reset.iter().for_each(|zone| ground.wait(device(&array).zone(*zone, Action::Reset)).expect("reset"));
    wait_until(&ground, "vacated", || state(&array, Slot(3)) == MemberState::Vacated);
    assert_eq!((array.status().health(), array.status().failures_left()), (Health::Clean, 1));
    kept.iter().for_each(|zone| ground.check(&array, *zone, 1, 40));
}

fn device_zones(array: &Arc<Array>) -> u32 {
    device(array).geometry().zones
}

/// Zones that begin take no part of a vacated drive, also while another drive is lacking: they keep their redundancy once that one is
/// replaced.
#[test]
fn zones_take_no_part_of_a_vacated_drive() {
    let ground = drives(4, 3);
    let array = ground.open(OpenOptions::default());
    ground.wait(array.fail(Slot(0))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(0)) == MemberState::Vacated);
    ground.wait(array.fail(Slot(1))).expect("failed");
    // Two drives work, and a stripe has three units: the array lacks the second one, although no zone has a part there.
    pass(&ground, Duration::from_secs(3));
    assert_eq!((state(&array, Slot(1)), array.status().failures_left()), (MemberState::Failed, 0));
    fill(&ground, &array);
    assert_eq!(parts_on(&array, Slot(0)), 0);
    let refused = ground.wait(array.replace(Slot(0), new_drive(&ground, 8))).expect_err("1 comes first");
    assert!(refused.to_string().contains("replace that one first"), "{refused}");
    ground.wait(array.replace(Slot(1), new_drive(&ground, 9))).expect("replaced");
    assert_eq!((array.status().health(), array.status().lost_parts), (Health::Clean, 0));
    ground.wait(array.fail(Slot(2))).expect("another one may fail");
    check_all(&ground, &array);
}

/// The power is cut at any moment while a vacated drive is replaced, and another drive is lost: all content is there.
#[test]
fn no_power_cut_while_a_vacated_drive_is_replaced_loses_content() {
    for time in (0..6_000).step_by(75) {
        let ground = six_drives();
        let array = ground.open(OpenOptions::default());
        fill(&ground, &array);
        ground.wait(array.fail(Slot(2))).expect("failed");
        wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
        let (new, own) = (new_drive(&ground, 2), Arc::clone(&array));
        let replace = async move { drop(own.replace(Slot(2), new).await) };
        drop(units::spawn(&*ground.driver, "replace", replace));
        pass(&ground, Duration::from_micros(time));
        let is_vacated = array.superblock().members[2].vacated;
        let images = ground.cut(time).into_iter().zip(0_u32..);
        // The old drive stays out, and so does the new one: another drive may be lost as long as the superblocks say so.
        let is_there = |slot: u32| slot != 2 && !(is_vacated && slot == 4);
        let left = ArrayFixture::of(images.filter(|(_, slot)| is_there(*slot)).map(|(image, _)| image));
        let again = left.open(OpenOptions::default());
        check_all(&left, &again);
    }
}
