//! Moves of parts: a part gets another physical zone while its zone is in use.

use std::sync::Arc;
use std::time::Duration;

use array::{
    AppendMode, Array, CreateOptions, Layout, OpenOptions, Pace, Parity, Placement, Role, ScrubOptions, Slot,
    Stripe, create,
};
use parking_lot::Mutex;
use units::{Driver, SplitMix64, VirtualDriver, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, FaultOp, FaultSpec, Latency};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, block};

const ZONE: ZoneId = ZoneId(1);
const WIDTH: u32 = 4;

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

/// Moves a part to another physical zone of its drive.
fn move_part(ground: &ArrayFixture, array: &Arc<Array>, zone: ZoneId, role: Role) {
    let (slot, before) = array.place(zone, role).expect("a zone with content");
    let moved = ground.wait(array.move_part(zone, role, slot, Pace::UNBOUNDED));
    assert!(moved.expect("moved"), "the zone was not reset");
    let (now, after) = array.place(zone, role).expect("a zone with content");
    assert!(now == slot && after != before, "part {role:?} was in {before} and is in {after}");
    let emu: &dyn ZonedDevice = &*ground.emus[slot.index()];
    let left = ground.wait(emu.report(before.0..before.0 + 1)).expect("reported")[0];
    assert_eq!(left.state, ZoneState::Empty, "the part has left the physical zone");
}

/// The number of a drive's physical zones with content, without its metadata zones.
fn written_zones(ground: &ArrayFixture, drive: usize) -> usize {
    let emu: &dyn ZonedDevice = &*ground.emus[drive];
    let report = ground.wait(emu.report(METADATA_ZONES..emu.geometry().zones)).expect("reported");
    report.iter().filter(|info| info.pointer > Blocks::ZERO).count()
}

/// Zones that end anywhere, open or full, are read and written on after each of their parts was moved, with and without each drive.
#[test]
fn a_zone_whose_parts_were_all_moved_holds_its_content() {
    for end in [1, 5, 12, 30, 47, 90, 384] {
        for finished in [false, true] {
            let ground = ArrayFixture::with_open(WIDTH, 6, 128, 4, 12);
            let array = ground.open(OpenOptions::default());
            ground.write(&array, ZONE, 1, 0, end, 7);
            ground.write(&array, ZoneId(3), 2, 0, 60, 6);
            if finished {
                ground.wait(device(&array).zone(ZONE, Action::Finish)).expect("finished");
            }
            (0..WIDTH).map(Role).for_each(|role| move_part(&ground, &array, ZONE, role));
            ground.check(&array, ZONE, 1, end);
            let end = match finished || end == 384 {
                true => end,
                false => {
                    ground.write(&array, ZONE, 1, end, end + 20, 3);
                    move_part(&ground, &array, ZONE, Role(2));
                    end + 20
                }
            };
            ground.wait(device(&array).flush()).expect("flushed");
            let moved = array.counters().moved_bytes;
            assert!(moved >= 2 * u64::from(BLOCK_BYTES), "{moved} bytes of data and parity");
            drop(array);
            for lost in [None, Some(0), Some(1), Some(2), Some(3)] {
                let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
                let array = left.open_perhaps_without(lost);
                left.check(&array, ZONE, 1, end);
                left.check(&array, ZoneId(3), 2, 60);
                left.wait(device(&array).zone(ZONE, Action::Reset)).expect("reset");
                left.wait(device(&array).zone(ZoneId(3), Action::Reset)).expect("reset");
                for drive in (0..WIDTH as usize).filter(|drive| Some(*drive) != lost) {
                    assert_eq!(written_zones(&left, drive), 0, "drive {drive}");
                }
                left.write(&array, ZONE, 4, 0, 50, 5);
                left.check(&array, ZONE, 4, 50);
            }
        }
    }
}

/// A part of which the medium lost a row is moved: the row follows from the other drives.
#[test]
fn a_move_repairs_rows_that_cannot_be_read() {
    let ground = ArrayFixture::with_open(WIDTH, 6, 128, 4, 12);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZONE, 1, 0, 200, 8);
    ground.wait(device(&array).flush()).expect("flushed");
    let (slot, physical) = array.place(ZONE, Role(0)).expect("a zone with content");
    let fault = FaultSpec { every: 3, count: 5, ..FaultSpec::next(FaultOp::Read).in_zone(physical) };
    ground.emus[slot.index()].fail(fault);
    move_part(&ground, &array, ZONE, Role(0));
    ground.check(&array, ZONE, 1, 200);
    assert_eq!(array.counters().read_repairs, 0, "the moved part holds all rows");
}

/// Moves that make no sense are refused, and change nothing.
#[test]
fn moves_that_cannot_be_are_refused() {
    let ground = ArrayFixture::with_open(WIDTH, 6, 128, 4, 12);
    let array = ground.open(OpenOptions::default());
    let refused = |zone, role, slot| {
        let error = ground.wait(array.move_part(zone, role, slot, Pace::UNBOUNDED)).expect_err("refused");
        (error.kind(), error.to_string())
    };
    let (slot, _) = {
        assert_eq!(refused(ZONE, Role(0), Slot(0)).0, ErrorKind::Invalid, "an empty zone");
        ground.write(&array, ZONE, 1, 0, 40, 8);
        array.place(ZONE, Role(0)).expect("a zone with content")
    };
    let other = Slot((slot.0 + 1) % WIDTH);
    let (kind, text) = refused(ZONE, Role(0), other);
    assert!(kind == ErrorKind::Invalid && text.contains("has another part of zone 1"), "{text}");
    assert_eq!(refused(ZONE, Role(4), slot).0, ErrorKind::Invalid, "no such part");
    assert_eq!(refused(ZONE, Role(0), Slot(WIDTH)).0, ErrorKind::Invalid, "no such drive");
    assert_eq!(refused(ZoneId(6), Role(0), slot).0, ErrorKind::Invalid, "no such zone");
    // All logical zones are written, and another physical zone of the drive wore out.
    (0..6).map(ZoneId).for_each(|zone| ground.write(&array, zone, 1, 40 * u64::from(zone == ZONE), 50, 5));
    ground.wait(array.fail(other)).expect("failed");
    assert_eq!(refused(ZONE, Role(1), other).0, ErrorKind::Invalid, "a failed drive");
    ground.check(&array, ZONE, 1, 50);
}

/// Reads that began before a move find their blocks, however long they take: the old physical zone is not reset before they end.
#[test]
fn reads_in_flight_find_their_blocks_beside_moves() {
    let ground = ArrayFixture::with_open(WIDTH, 6, 128, 4, 12);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZONE, 1, 0, 300, 12);
    ground.wait(device(&array).flush()).expect("flushed");
    let reads = |seed: u64| {
        let (array, driver) = (Arc::clone(&array), Arc::clone(&ground.driver));
        spawn(&*ground.driver, "reads", async move {
            for n in 0..400_u64 {
                let at = (n * 37 + seed * 11) % 300;
                let lba = device(&array).geometry().start(ZONE).plus(Blocks(at));
                let found =
                    device(&array).read(lba, BufMut::zeroed(BLOCK_BYTES as usize)).await.expect("read");
                assert!(*found == *crate::ground::block(1, at), "block {at}");
                sleep_until(&*driver, driver.now().after(Duration::from_micros(n % 7))).await;
            }
        })
    };
    let all: Vec<_> = (0..4).map(reads).collect();
    for _ in 0..6 {
        (0..WIDTH).map(Role).for_each(|role| move_part(&ground, &array, ZONE, role));
    }
    all.into_iter().for_each(|reads| ground.wait(reads));
}

/// A power cut at any moment of a move leaves all content, with and without each drive, and later moves and writes go on.
#[test]
fn a_power_cut_at_any_moment_of_a_move_leaves_all_content() {
    let (mut before, mut after) = (0, 0);
    for time in (0..240).step_by(4) {
        for lost in [None, Some(1), Some(2)] {
            let ground = ArrayFixture::with_open(WIDTH, 6, 128, 4, 12);
            let array = ground.open(OpenOptions::default());
            ground.write(&array, ZONE, 1, 0, 130, 7);
            ground.wait(device(&array).flush()).expect("flushed");
            let (slot, old) = array.place(ZONE, Role(1)).expect("a zone with content");
            let move_of = spawn(&*ground.driver, "move", {
                let array = Arc::clone(&array);
                async move { array.move_part(ZONE, Role(1), slot, Pace::UNBOUNDED).await }
            });
            let left = ground.wait(async {
                sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(time))).await;
                ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()))
            });
            drop(move_of);
            let array = left.open_perhaps_without(lost);
            left.check(&array, ZONE, 1, 130);
            match array.place(ZONE, Role(1)) == Some((slot, old)) {
                true => before += 1,
                false => after += 1,
            }
            for drive in (0..WIDTH as usize).filter(|drive| Some(*drive) != lost) {
                assert_eq!(written_zones(&left, drive), 1, "after {time} us, drive {drive}");
            }
            left.write(&array, ZONE, 1, 130, 160, 5);
            if lost != Some(slot.index()) {
                move_part(&left, &array, ZONE, Role(1));
            }
            left.check(&array, ZONE, 1, 160);
        }
    }
    assert!(before > 20 && after > 60, "{before} cuts left the old place, {after} the new one");
}

/// An array in units of eight blocks, of drives that reorder appends.
fn reordering_drives(seed: u64, parities: u32) -> ArrayFixture {
    let driver: Arc<dyn Driver> = VirtualDriver::new(seed);
    let drive = |n: u32| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: METADATA_ZONES + 5,
            zone_size: Blocks(192),
            zone_capacity: Blocks(192),
            max_open: Some(12),
            max_active: Some(12),
            volatile_cache: true,
            reorder: true,
            latency: Latency::all(Duration::from_micros(10 + u64::from(n))),
            seed: u64::from(n),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver))
    };
    let ground = ArrayFixture { emus: (0..WIDTH).map(drive).collect(), driver };
    let stripe_unit = Bytes(8 * u64::from(BLOCK_BYTES));
    let options =
        CreateOptions { stripe_unit, placement: Placement::Stored, parities, ..CreateOptions::default() };
    ground.wait(async { create(&ground.devices(), &options).await.expect("created") });
    ground
}

/// Appends that the drives reorder go on while the parts of their zone move: each block is at the address that its append got, also
/// without any drive, and the parity of every stripe is right.
#[test]
fn appends_side_by_side_go_on_while_the_parts_of_their_zone_move() {
    let (mut reorderings, mut moves) = (0, 0);
    for (seed, parities) in (0..12).flat_map(|seed| [(seed, 1), (seed, 2)]) {
        let ground = reordering_drives(seed, parities);
        let array = ground.open(OpenOptions { appends: AppendMode::Append, ..OpenOptions::default() });
        // The address and the number of each block.
        let placed: Arc<Mutex<Vec<(Blocks, u64)>>> = Arc::default();
        let appends = |task: u64| {
            let (array, placed) = (Arc::clone(&array), Arc::clone(&placed));
            spawn(&*ground.driver, "appends", async move {
                for n in task * 40..(task + 1) * 40 {
                    let data = Buf::copy_from(&block(1, n));
                    let at = device(&array).append(ZONE, data, Durability::Cached).await.expect("appended");
                    placed.lock().push((at.since(device(&array).geometry().start(ZONE)), n));
                }
            })
        };
        let all: Vec<_> = (0..8).map(appends).collect();
        let mut rng = SplitMix64::new(seed);
        while placed.lock().len() < 320 {
            let role = Role((rng.draw() % u64::from(WIDTH)) as u32);
            if let Some((slot, _)) = array.place(ZONE, role) {
                let moved = ground.wait(array.move_part(ZONE, role, slot, Pace::UNBOUNDED)).expect("moved");
                moves += u32::from(moved && placed.lock().len() < 320);
            }
            let rest = Duration::from_micros(rng.draw() % 200);
            ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(rest)));
        }
        all.into_iter().for_each(|appends| ground.wait(appends));
        ground.wait(device(&array).flush()).expect("flushed");
        let check = |ground: &ArrayFixture, array: &Arc<Array>| {
            for (at, n) in placed.lock().iter() {
                let lba = device(array).geometry().start(ZONE).plus(*at);
                let found = ground.wait(device(array).read(lba, BufMut::zeroed(BLOCK_BYTES as usize)));
                assert!(
                    *found.expect("read") == *block(1, *n),
                    "seed {seed}, {parities} parities, block {at}"
                );
            }
        };
        check(&ground, &array);
        let report = ground.wait(array.scrub(ScrubOptions::default())).expect("scrubbed");
        assert_eq!(report.mismatch_count, 0, "seed {seed}, {parities} parities");
        reorderings += array.counters().reorderings;
        drop(array);
        for lost in 0..WIDTH as usize {
            let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            check(&left, &left.open_without(lost));
        }
    }
    assert!(reorderings > 100 && moves > 100, "{reorderings} reorderings, {moves} moves beside appends");
}

/// The drive that is to get a part fails as its log gets the parity of the open stripe: the part stays where it is, and blocks that are
/// written later are found after a mount without the drive.
#[test]
fn a_drive_that_fails_as_it_gets_the_parity_of_the_open_stripe_does_not_get_the_part() {
    let stripe_unit = Bytes(4 * u64::from(BLOCK_BYTES));
    let create = CreateOptions {
        stripe_unit,
        placement: Placement::Stored,
        width: Some(WIDTH),
        ..CreateOptions::default()
    };
    let ground = ArrayFixture::created(WIDTH + 1, 6, 128, 12, &create);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZONE, 1, 0, 5, 5);
    ground.wait(device(&array).flush()).expect("flushed");
    let layout = Layout { width: WIDTH, parities: 1, unit: 4, part_rows: 128 };
    let parity = layout.parity(Stripe(0), Parity::P);
    let with_part: Vec<Slot> = (0..WIDTH).filter_map(|role| Some(array.place(ZONE, Role(role))?.0)).collect();
    let target = (0..=WIDTH).map(Slot).find(|slot| !with_part.contains(slot)).expect("one drive more");
    for log in 0..METADATA_ZONES {
        ground.emus[target.index()].fail(FaultSpec::all(FaultOp::Write).in_zone(ZoneId(log)));
    }
    let before = array.place(ZONE, parity);
    let error = ground.wait(array.move_part(ZONE, parity, target, Pace::UNBOUNDED)).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
    assert_eq!(array.place(ZONE, parity), before);
    let failed: Vec<bool> = array.superblock().members.iter().map(|member| member.failed).collect();
    assert!(failed[target.index()], "{failed:?}");
    ground.write(&array, ZONE, 1, 5, 90, 7);
    ground.wait(device(&array).flush()).expect("flushed");
    ground.check(&array, ZONE, 1, 90);
    drop(array);
    let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
    left.check(&left.open_without(target.index()), ZONE, 1, 90);
}
