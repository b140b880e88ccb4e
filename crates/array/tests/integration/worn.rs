//! Physical zones that are read-only or offline.

use std::sync::Arc;
use std::time::Duration;

use crate::PLACEMENT;
use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, blocks};
use array::{CreateOptions, Health, MemberState, OpenOptions, Placement, Slot};
use units::{sleep_until, spawn};
use zoned::emu::{Emu, Latency};
use zoned::{Action, Blocks, BufMut, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

const ZONE: ZoneId = ZoneId(1);

/// An array with a written zone, whose part on drive 2 is worn.
fn array_with_worn_part(state: ZoneState, while_open: bool) -> (ArrayFixture, Arc<array::Array>) {
    wear_part_of(ArrayFixture::new(4, 5, 96, 4), state, while_open)
}

fn wear_part_of(
    ground: ArrayFixture,
    state: ZoneState,
    while_open: bool,
) -> (ArrayFixture, Arc<array::Array>) {
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZONE, 1, 0, 30, 4);
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    let wear = || {
        let emu = ground.emus.get(2).expect("four drives");
        emu.wear(ZoneId(ZONE.0 + METADATA_ZONES), state);
    };
    if while_open {
        wear();
        return (ground, array);
    }
    drop(array);
    wear();
    let array = ground.open(OpenOptions::default());
    (ground, array)
}

#[test]
fn a_worn_zone_is_read_from_its_drive_or_from_the_others() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        for while_open in [true, false] {
            let (ground, array) = array_with_worn_part(state, while_open);
            ground.check(&array, ZONE, 1, 30);
            assert!(array.superblock().members.iter().all(|member| !member.failed), "no drive is lost");
        }
    }
}

#[test]
fn errors_of_writes_to_a_worn_zone_name_the_drive_and_a_reset_needs_another_physical_zone() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        for while_open in [true, false] {
            let (ground, array) = array_with_worn_part(state, while_open);
            let device: &dyn ZonedDevice = &*array;
            let start = device.geometry().start(ZONE);
            // The write is long enough to reach every drive, also the one with the worn part.
            for from in [30, 36] {
                let io =
                    device.write(start.plus(Blocks(from)), blocks(1, from, from + 6), Durability::Cached);
                let _first = ground.wait(io);
            }
            let at = start.plus(Blocks(30));
            let error =
                ground.wait(device.write(at, blocks(1, 30, 42), Durability::Cached)).expect_err("worn");
            assert!(matches!(error.kind(), ErrorKind::ZoneReadOnly), "{while_open} {error}");
            assert!(error.to_string().contains("drive 2"), "{error}");
            ground.check(&array, ZONE, 1, 30);
            let reset = ground.wait(device.zone(ZONE, Action::Reset));
            match PLACEMENT {
                Placement::Fixed => {
                    let error = reset.expect_err("worn");
                    assert!(error.to_string().contains("cannot be reset"), "{error}");
                    ground.check(&array, ZONE, 1, 30);
                }
                // The next life of the zone takes another physical zone of drive 2.
                Placement::Stored => {
                    reset.expect("reset");
                    ground.write(&array, ZONE, 2, 0, 60, 4);
                    ground.check(&array, ZONE, 2, 60);
                }
            }
            // Zones other than the worn one take writes.
            ground.write(&array, ZoneId(2), 1, 0, 40, 4);
            ground.check(&array, ZoneId(2), 1, 40);
        }
    }
}

/// The worn zone's parts on the other drives stay active: zones beyond the limit are refused before any drive refuses.
#[test]
fn a_worn_zone_counts_as_active_after_a_mount_too() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        for while_open in [true, false] {
            let ground = ArrayFixture::new(4, 10, 96, 4);
            let (ground, array) = wear_part_of(ground, state, while_open);
            let device: &dyn ZonedDevice = &*array;
            let most = device.geometry().max_active.expect("limited");
            if while_open {
                // Only a write reveals that the zone is worn.
                let start = device.geometry().start(ZONE).plus(Blocks(30));
                let data = blocks(1, 30, 60);
                ground.wait(device.write(start, data, Durability::Cached)).expect_err("worn");
            }
            let others = (0..).map(ZoneId).filter(|id| *id != ZONE);
            for id in others.clone().take(most as usize - 1) {
                ground.write(&array, id, 1, 0, 20, 20);
                ground.check(&array, id, 1, 20);
            }
            let one_more = others.clone().nth(most as usize - 1).expect("there are more");
            let start = device.geometry().start(one_more);
            let refused = ground.wait(device.write(start, blocks(1, 0, 20), Durability::Cached));
            let error = refused.expect_err("one too many");
            assert_eq!(error.kind(), ErrorKind::TooManyActive, "{while_open} {state:?}: {error}");
            // The zone can be written once another zone is finished.
            ground.wait(device.zone(ZoneId(0), Action::Finish)).expect("finished");
            ground.write(&array, one_more, 1, 0, 40, 20);
            ground.check(&array, one_more, 1, 40);
        }
    }
}

/// A log holds the whole parity unit of the stripe at the pointer, which suffices to reconstruct the stripe
/// whichever drive fails then.
#[test]
fn a_worn_zone_keeps_its_content_when_another_drive_fails() {
    for lost in [0, 1, 3] {
        let (ground, array) = array_with_worn_part(ZoneState::ReadOnly, false);
        drop(array);
        let array = ground.open_without(lost);
        assert_eq!(ground.zone(&array, ZONE).pointer, Blocks(30), "without {lost}");
        ground.check(&array, ZONE, 1, 30);
    }
}

/// A new drive gets the parity of a worn zone's last stripe too.
#[test]
fn a_worn_zone_keeps_its_content_when_drives_are_replaced() {
    for (replaced, lost) in [(0, 1), (0, 3), (1, 0), (3, 1)] {
        let (ground, array) = array_with_worn_part(ZoneState::ReadOnly, false);
        drop(array);
        let array = ground.open_without(replaced as usize);
        let fresh = ArrayFixture::new(4, 5, 96, 4).emus.remove(0).media();
        let new = Emu::from_media(fresh, "new", Latency::NONE, Arc::clone(&ground.driver));
        ground.wait(array.replace(Slot(replaced), new)).expect("replaced");
        ground.wait(array.fail(Slot(lost))).expect("failed");
        ground.check(&array, ZONE, 1, 30);
    }
}

/// Blocks of other drives above the pointer that a mount found stay unreadable, with the worn drive failed or replaced.
#[test]
fn the_end_of_a_worn_zone_stays_where_a_mount_found_it() {
    for lost in [None, Some(0), Some(1), Some(2), Some(3)] {
        let (ground, array) = array_with_worn_part(ZoneState::ReadOnly, true);
        let device: &dyn ZonedDevice = &*array;
        // Drive 2 refuses the write, the other drives take it: whole stripes lie above what drive 2 has.
        let at = device.geometry().start(ZONE).plus(Blocks(30));
        ground.wait(device.write(at, blocks(1, 30, 84), Durability::Cached)).expect_err("worn");
        drop(array);
        let array = ground.open(OpenOptions::default());
        let end = ground.zone(&array, ZONE).pointer;
        assert!(end >= Blocks(30) && end < Blocks(60), "{end:?}");
        drop(array);
        let array = ground.open_perhaps_without(lost);
        let state = if lost == Some(2) { ZoneState::Full } else { ZoneState::ReadOnly };
        assert_eq!(ground.zone(&array, ZONE).state, state, "without {lost:?}");
        if lost != Some(2) {
            assert_eq!(ground.zone(&array, ZONE).pointer, end, "without {lost:?}");
        }
        ground.check(&array, ZONE, 1, end.0);
        let device: &dyn ZonedDevice = &*array;
        let behind = BufMut::zeroed(((60 - end.0) * u64::from(BLOCK_BYTES)) as usize);
        let start = device.geometry().start(ZONE).plus(end);
        let read = ground.wait(device.read(start, behind)).expect("read");
        assert!(read.iter().all(|byte| *byte == 0), "without {lost:?}: there is something behind the end");
    }
}

/// The finish of an empty zone reached two of four drives when the power was cut, and a part of the zone wore out: the recorded end
/// counts, also when another drive's part is missing and would follow from the others.
#[test]
fn an_empty_zone_that_was_finished_and_is_worn_stays_without_content() {
    for (finished, lost) in (0..4).flat_map(|first| (1..4).map(move |lost| ([first, (first + 1) % 4], lost)))
    {
        let ground = ArrayFixture::new(4, 5, 96, 4);
        let array = ground.open(OpenOptions::default());
        ground.wait((&*array as &dyn ZonedDevice).zone(ZONE, Action::Finish)).expect("finished");
        drop(array);
        let part = ZoneId(ZONE.0 + METADATA_ZONES);
        for (_, emu) in ground.emus.iter().enumerate().filter(|(slot, _)| !finished.contains(slot)) {
            let device = Arc::clone(emu) as Arc<dyn ZonedDevice>;
            ground.wait(device.zone(part, Action::Reset)).expect("as if never finished");
        }
        ground.emus[0].wear(part, ZoneState::ReadOnly);
        for array in [ground.open(OpenOptions::default()), ground.open_without(lost)] {
            let info = ground.zone(&array, ZONE);
            let found = (info.state, info.pointer);
            let wanted = match PLACEMENT {
                Placement::Fixed => (ZoneState::ReadOnly, Blocks::ZERO),
                // A zone that was never written has no part that could be worn.
                Placement::Stored => (ZoneState::Full, info.capacity),
            };
            assert_eq!(found, wanted, "finished {finished:?}, without {lost}");
        }
    }
}

/// The intent of a reset that a worn part prevents stays valid until the drive is replaced.
#[test]
fn a_worn_zone_whose_reset_was_begun_stays_empty_until_its_drive_is_replaced() {
    let mut begun = 0;
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        // The power is cut at many moments of a reset.
        for time in (0..120).step_by(4) {
            let ground = ArrayFixture::new(4, 5, 96, 4);
            let array = ground.open(OpenOptions::default());
            ground.write(&array, ZONE, 1, 0, 30, 4);
            ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
            let reset = spawn(&*ground.driver, "reset", {
                let array = Arc::clone(&array);
                async move { (&*array as &dyn ZonedDevice).zone(ZONE, Action::Reset).await }
            });
            let left = ground.wait(async {
                sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(time))).await;
                ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()))
            });
            drop(reset);
            let part = ZoneId(ZONE.0 + METADATA_ZONES);
            let holds = |ground: &ArrayFixture, drive: usize| {
                let device: &dyn ZonedDevice = &*ground.emus[drive];
                let report = ground.wait(device.report(part.0..part.0 + 1)).expect("reported");
                report[0].pointer > Blocks::ZERO
            };
            left.emus[2].wear(part, state);
            let array = left.open(OpenOptions::default());
            let empty = left.zone(&array, ZONE).pointer == Blocks::ZERO;
            // A mount resets physical zones that no stored map names.
            begun += u32::from(empty && (holds(&left, 0) || PLACEMENT == Placement::Stored));
            for _ in 0..2 {
                drop(left.open(OpenOptions::default()));
            }
            let array = left.open(OpenOptions::default());
            assert_eq!(left.zone(&array, ZONE).pointer == Blocks::ZERO, empty, "after {time} us, {state:?}");
            left.wait(array.fail(Slot(2))).expect("failed");
            let fresh = ArrayFixture::new(4, 5, 96, 4).emus.remove(0).media();
            let new = Emu::from_media(fresh, "new", Latency::NONE, Arc::clone(&left.driver));
            left.wait(array.replace(Slot(2), Arc::clone(&new) as Arc<dyn ZonedDevice>)).expect("replaced");
            drop(array);
            let mut devices = left.devices();
            devices[2] = new;
            let array = left.wait(array::Array::open(devices, OpenOptions::default())).expect("opened");
            if empty {
                assert_eq!(left.zone(&array, ZONE).state, ZoneState::Empty, "after {time} us, {state:?}");
                left.write(&array, ZONE, 2, 0, 60, 4);
                left.check(&array, ZONE, 2, 60);
            } else {
                left.check(&array, ZONE, 1, 30);
            }
        }
    }
    assert!(begun > 0, "no moment with the intent, and no drive reset");
}

/// A drive with worn data zones can join a new array, but not with worn metadata zones, and not as a replacement.
#[test]
fn a_drive_with_worn_zones_is_a_member_of_a_new_array_if_its_metadata_zones_are_good() {
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        let ground = ArrayFixture::new(4, 5, 96, 4);
        let array = ground.open(OpenOptions::default());
        ground.write(&array, ZONE, 1, 0, 30, 4);
        drop(array);
        let wear = |drive: usize, zone: u32| ground.emus[drive].wear(ZoneId(zone), state);
        let create = || {
            let options = CreateOptions {
                stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
                placement: crate::PLACEMENT,
                ..CreateOptions::default()
            };
            ground.wait(array::create(&ground.devices(), &options))
        };
        wear(1, ZONE.0 + METADATA_ZONES);
        create().expect("a zone for data is worn");
        let array = ground.open(OpenOptions::default());
        let worn = array.status().worn;
        if PLACEMENT == Placement::Stored {
            // No logical zone takes the worn physical zone.
            assert_eq!(worn, []);
            ground.write(&array, ZONE, 2, 0, 60, 4);
            ground.check(&array, ZONE, 2, 60);
            continue;
        }
        assert_eq!(worn, [array::WornZone { slot: Slot(1), zone: ZONE, state }]);
        ground.write(&array, ZoneId(2), 1, 0, 60, 4);
        ground.check(&array, ZoneId(2), 1, 60);
        let at = (&*array as &dyn ZonedDevice).geometry().start(ZONE);
        ground
            .wait((&*array as &dyn ZonedDevice).write(at, blocks(1, 0, 20), Durability::Cached))
            .expect_err("worn");
        drop(array);
        let array = ground.open(OpenOptions::default());
        assert_eq!((array.status().health(), array.status().worn), (Health::Clean, worn));
        ground.check(&array, ZoneId(2), 1, 60);

        // A replacement with a worn zone has no place for content, and is refused before anything on that drive is lost.
        ground.wait(array.fail(Slot(3))).expect("failed");
        let other = ArrayFixture::new(4, 5, 96, 4);
        let media = other.emus[3].media();
        for zone in [ZONE.0 + METADATA_ZONES, 2] {
            let new = Emu::from_media(media.clone(), "new", Latency::NONE, Arc::clone(&ground.driver));
            new.wear(ZoneId(zone), state);
            let error = ground
                .wait(array.replace(Slot(3), Arc::clone(&new) as Arc<dyn ZonedDevice>))
                .expect_err("refused");
            assert!(error.to_string().contains("use another drive"), "{error}");
            let status =
                ground.wait(array::status(&[new as Arc<dyn ZonedDevice>])).expect("a member of the array");
            assert_eq!(status.members[3].state, MemberState::Good);
            assert_eq!(array.status().members[3].state, MemberState::Failed);
        }

        // Creating an array on a drive with a worn metadata zone is refused, and the drives keep their
        // content.
        drop(array);
        let before = ground.wait(array::status(&ground.devices())).expect("reported").superblock;
        wear(2, 1);
        let error = create().expect_err("refused");
        assert!(error.to_string().contains("the array's metadata has to go there"), "{error}");
        assert_eq!(ground.wait(array::status(&ground.devices())).expect("reported").superblock, before);
    }
}
