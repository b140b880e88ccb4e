//! Parts leave physical zones that wore out by themselves.

use std::sync::Arc;
use std::time::Duration;

use array::{Array, CreateOptions, OpenOptions, Role, Slot};
use units::sleep_until;
use zoned::{Action, Blocks, BufMut, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, block, blocks};

const WIDTH: u32 = 4;
const ZONES: u32 = 6;
const DRIVE: Slot = Slot(2);

fn fixture() -> ArrayFixture {
    ArrayFixture::with_open(WIDTH, ZONES, 128, 4, 12)
}

/// The role and the physical zone of a zone's part on [`DRIVE`].
fn part(array: &Arc<Array>, zone: ZoneId) -> (Role, ZoneId) {
    let on_drive =
        |role| array.place(zone, role).filter(|(slot, _)| *slot == DRIVE).map(|(_, at)| (role, at));
    (0..WIDTH).map(Role).find_map(on_drive).expect("a part of a zone with content")
}

/// Wears the physical zone of a zone's part, and lets the array find it: by a read of an offline part, or a write to a read-only one.
fn wear(ground: &ArrayFixture, array: &Arc<Array>, zone: ZoneId, end: u64, state: ZoneState) -> ZoneId {
    let (_, physical) = part(array, zone);
    ground.emus[DRIVE.index()].wear(physical, state);
    let device: &dyn ZonedDevice = &**array;
    let at = device.geometry().start(zone).plus(Blocks(end));
    match state {
        ZoneState::Offline => ground.check(array, zone, 1, end),
        _ => {
            let write = device.write(at, blocks(1, end, end + 30), Durability::Cached);
            ground.wait(write).expect_err("the physical zone takes no writes");
        }
    }
    physical
}

/// A part leaves its physical zone as soon as the wear is found, in use or by a mount: `status` names no worn zone any more, the content
/// is there without any drive. From the next open on the zone takes writes, or is full if a mount found the wear and ended the zone.
#[test]
fn a_part_leaves_a_worn_physical_zone_without_a_person() {
    let zone = ZoneId(1);
    for (state, in_use) in [ZoneState::ReadOnly, ZoneState::Offline]
        .into_iter()
        .flat_map(|state| [(state, true), (state, false)])
    {
        let ground = fixture();
        let mut array = ground.open(OpenOptions::default());
        ground.write(&array, zone, 1, 0, 61, 6);
        ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
        let physical = match in_use {
            true => wear(&ground, &array, zone, 61, state),
            false => {
                let (_, physical) = part(&array, zone);
                drop(array);
                ground.emus[DRIVE.index()].wear(physical, state);
                array = ground.open(OpenOptions::default());
                physical
            }
        };
        ground.settle();
        assert_ne!(part(&array, zone).1, physical, "{state:?}, in use: {in_use}");
        assert_eq!(array.status().worn, [], "{state:?}, in use: {in_use}");
        ground.check(&array, zone, 1, 61);
        drop(array);
        for lost in [None, Some(0), Some(1), Some(2), Some(3)] {
            let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            let array = left.open_perhaps_without(lost);
            left.check(&array, zone, 1, 61);
            let found = left.zone(&array, zone);
            if !in_use {
                assert_eq!(found.state, ZoneState::Full, "{state:?}: a mount ended the zone");
                continue;
            }
            // Blocks of the refused write may have landed, and count then.
            let end = found.pointer.0;
            assert!((61..=91).contains(&end), "{state:?}: the zone ends at {end}");
            left.write(&array, zone, 1, end, 150, 5);
            left.check(&array, zone, 1, 150);
        }
    }
}

/// An array that is opened without background work leaves worn zones to the next open.
#[test]
fn a_worn_part_stays_if_nothing_is_resumed() {
    let ground = fixture();
    let array = ground.open(OpenOptions { resume: false, ..OpenOptions::default() });
    ground.write(&array, ZoneId(1), 1, 0, 61, 6);
    let physical = wear(&ground, &array, ZoneId(1), 61, ZoneState::Offline);
    ground.settle();
    assert_eq!((part(&array, ZoneId(1)).1, array.status().worn.len()), (physical, 1));
}

/// The drive has one physical zone in reserve, which the first worn part takes. Another part that can be read stays where it is: the
/// other free zones are those of empty logical zones. An offline one takes such a zone, because its content is one copy less redundant.
#[test]
fn a_readable_part_leaves_the_room_that_empty_zones_need_and_an_offline_one_takes_it() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let ground = fixture();
        let array = ground.open(OpenOptions::default());
        let (first, second) = (ZoneId(1), ZoneId(3));
        for zone in [first, second] {
            ground.write(&array, zone, 1, 0, 61, 6);
        }
        let worn = wear(&ground, &array, first, 61, ZoneState::ReadOnly);
        ground.settle();
        assert_ne!(part(&array, first).1, worn, "the reserve");
        let worn = wear(&ground, &array, second, 61, state);
        ground.settle();
        let stays = state == ZoneState::ReadOnly;
        assert_eq!(part(&array, second).1 == worn, stays, "{state:?}");
        assert_eq!(array.status().worn.len(), usize::from(stays), "{state:?}");
        ground.check(&array, second, 1, 61);
        let device: &dyn ZonedDevice = &*array;
        let empty: Vec<ZoneId> =
            (0..ZONES).map(ZoneId).filter(|zone| ![first, second].contains(zone)).collect();
        for (n, zone) in empty.iter().enumerate() {
            let at = device.geometry().start(*zone);
            let written = ground.wait(device.write(at, blocks(1, 0, 20), Durability::Cached));
            match stays || n + 1 < empty.len() {
                true => written.expect("written"),
                false => assert_eq!(written.expect_err("no room").kind(), ErrorKind::NoSpace),
            }
        }
    }
}

/// Zones that end anywhere in a stripe lose no block when a mount finds one of their parts worn, the part leaves its physical zone, and
/// as many drives fail at the next mount as there are parities.
#[test]
fn a_zone_whose_worn_part_has_left_does_without_any_drives() {
    let zone = ZoneId(1);
    let stripe_units = [1, 4].map(|unit| Bytes(unit * u64::from(BLOCK_BYTES)));
    for (parities, stripe_unit) in
        [1, 2].into_iter().flat_map(|parities| stripe_units.map(|unit| (parities, unit)))
    {
        let atomic_writes = stripe_unit.0 == u64::from(BLOCK_BYTES);
        let create = CreateOptions { stripe_unit, parities, atomic_writes, ..CreateOptions::default() };
        for (end, worn) in
            [11, 19, 30, 37, 61].into_iter().flat_map(|end| (0..WIDTH).map(move |worn| (end, Slot(worn))))
        {
            let what = format!("{parities} parities, {stripe_unit}, {end} blocks, drive {} worn", worn.0);
            let ground = ArrayFixture::created(WIDTH, ZONES, 128, 12, &create);
            let array = ground.open(OpenOptions::default());
            ground.write(&array, zone, 1, 0, end, 6);
            ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
            let place = |array: &Arc<Array>| {
                let mut parts = (0..WIDTH).filter_map(|role| array.place(zone, Role(role)));
                parts.find(|(slot, _)| *slot == worn).expect("a part on each drive").1
            };
            let physical = place(&array);
            drop(array);
            ground.emus[worn.index()].wear(physical, ZoneState::ReadOnly);
            let array = ground.open(OpenOptions::default());
            ground.settle();
            assert_ne!(place(&array), physical, "{what}");
            drop(array);
            let all = (0..WIDTH as usize).collect::<Vec<_>>();
            let lost = all.iter().flat_map(|one| all.iter().map(move |other| [*one, *other]));
            for lost in lost.filter(|lost| if parities == 2 { lost[0] < lost[1] } else { lost[0] == lost[1] })
            {
                let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
                let devices = left.devices().into_iter().enumerate().filter(|(slot, _)| !lost.contains(slot));
                let devices = devices.map(|(_, device)| device).collect();
                let array = left.wait(Array::open(devices, OpenOptions::default()));
                let array = array.unwrap_or_else(|error| panic!("{what}, without {lost:?}: {error}"));
                assert_eq!(left.zone(&array, zone).state, ZoneState::Full, "{what}, without {lost:?}");
                for n in 0..end {
                    let at = (&*array as &dyn ZonedDevice).geometry().start(zone).plus(Blocks(n));
                    let into = BufMut::zeroed(BLOCK_BYTES as usize);
                    let found = left.wait((&*array as &dyn ZonedDevice).read(at, into));
                    let found = found.unwrap_or_else(|error| panic!("{what}, without {lost:?}: {error}"));
                    assert!(*found == block(1, n), "{what}, without {lost:?}: block {n}");
                }
            }
        }
    }
}

/// A zone is reset while its part leaves an offline physical zone for the drive's last free one: the first write of its next life waits
/// until the move has given that one back.
#[test]
fn a_first_write_waits_for_the_physical_zone_of_a_move_whose_zone_was_reset() {
    for time in (0..400).step_by(10) {
        let ground = fixture();
        let array = ground.open(OpenOptions::default());
        let zone = ZoneId(1);
        ground.write(&array, zone, 1, 0, 384, 24);
        (0..ZONES).map(ZoneId).filter(|id| *id != zone).for_each(|id| ground.write(&array, id, 1, 0, 20, 10));
        let (role, physical) = part(&array, zone);
        ground.emus[DRIVE.index()].wear(physical, ZoneState::Offline);
        ground.check(&array, zone, 1, 13);
        assert_eq!(array.status().worn.len(), 1, "{role:?} is found to be offline");
        ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(time))));
        ground.wait((&*array as &dyn ZonedDevice).zone(zone, Action::Reset)).expect("reset");
        ground.write(&array, zone, 2, 0, 60, 6);
        ground.check(&array, zone, 2, 60);
    }
}
