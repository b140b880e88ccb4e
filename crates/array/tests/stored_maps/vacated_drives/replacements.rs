//! New drives of slots that the array lacks nothing of, and other drives that fail meanwhile.

use zoned::emu::Seeded;
use zoned::{BufMut, Durability};

use super::*;
use crate::ground::blocks as content;

/// Six drives with content, of which the array lacks nothing of drive 2.
fn with_vacated_drive() -> (ArrayFixture, Arc<Array>) {
    let ground = six_drives();
    let array = ground.open(OpenOptions::default());
    fill(&ground, &array);
    ground.wait(array.fail(Slot(2))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
    (ground, array)
}

/// The array of the drives that are left after a power cut: the members but for those in `lost`, and `new`.
fn after_cut(ground: &ArrayFixture, seed: u64, lost: &[u32], new: Option<&Arc<Emu>>) -> ArrayFixture {
    let members = ground.cut(seed).into_iter().zip(0_u32..);
    let members = members.filter(|(_, slot)| !lost.contains(slot)).map(|(image, _)| image);
    ArrayFixture::of(members.chain(new.map(|new| new.power_cut(&mut Seeded::new(seed)))))
}

fn states(array: &Arc<Array>) -> Vec<MemberState> {
    array.status().members.iter().map(|member| member.state).collect()
}

/// A replacement is cut off by the power, and its new drive does not come back: the parts move, and the slot is vacated.
#[test]
fn a_slot_whose_new_drive_does_not_come_back_is_vacated() {
    let ground = six_drives();
    let array = ground.open(OpenOptions { resume: false, ..OpenOptions::default() });
    fill(&ground, &array);
    ground.wait(array.fail(Slot(2))).expect("failed");
    let new = drive_with_latency(&ground, 9, Duration::from_millis(5));
    let rebuild = ground.wait(array.start_replace(Slot(2), new, RebuildOptions::default())).expect("begun");
    pass(&ground, Duration::from_millis(20));
    assert!(!rebuild.is_over());
    let left = after_cut(&ground, 1, &[2], None);
    let again = left.open(OpenOptions::default());
    wait_until(&left, "vacated", || again.status().failures_left() == 1);
    // Nothing is left to be tried again.
    pass(&left, Duration::from_secs(2));
    let before = again.counters().metadata_bytes;
    pass(&left, Duration::from_secs(3600));
    assert_eq!(again.counters().metadata_bytes, before);
    left.wait(again.fail(Slot(4))).expect("another one may fail");
    check_all(&left, &again);
}

/// As above, where the slot had been vacated before, at any moment of the admission of its new drive.
#[test]
fn a_slot_is_vacated_again_if_its_new_drive_does_not_come_back() {
    let mut cut_in_admission = 0;
    for time in (0..2_000).step_by(10) {
        let (ground, array) = with_vacated_drive();
        let (own, new) = (Arc::clone(&array), new_drive(&ground, 9));
        let replace = async move { drop(own.replace(Slot(2), new).await) };
        drop(units::spawn(&*ground.driver, "replace", replace));
        pass(&ground, Duration::from_micros(time));
        let info = array.superblock().members[2];
        if !info.failed {
            break;
        }
        if info.vacated {
            continue;
        }
        cut_in_admission += 1;
        let left = after_cut(&ground, time, &[2], None);
        let again = left.open(OpenOptions::default());
        wait_until(&left, "vacated", || again.status().failures_left() == 1);
        left.wait(again.fail(Slot(4))).expect("another one may fail");
        check_all(&left, &again);
    }
    assert!(cut_in_admission > 0);
}

/// A first write that the limits of open zones refuse gives its zone no parts: a drive is vacated although it was the next one.
#[test]
fn a_refused_first_write_takes_no_part() {
    let ground = drives_with_open_zones(6, 4, 4);
    let array = ground.open(OpenOptions::default());
    let geometry = device(&array).geometry().clone();
    let open = geometry.max_open.expect("limited");
    for zone in (0..open).map(ZoneId) {
        ground.write(&array, zone, 1, 0, 40, 7);
        ground.wait(device(&array).zone(zone, Action::Open)).expect("opened");
    }
    let next = ZoneId(open);
    let refused =
        ground.wait(device(&array).write(geometry.start(next), content(1, 0, 4), Durability::Cached));
    assert!(refused.is_err());
    assert_eq!(array.place(next, Role(0)), None);
    ground.wait(array.fail(Slot(2))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
}

/// An idle spare is taken for a vacated drive. Another drive fails before the spare is a member: the spare takes the place of that one.
#[test]
fn a_spare_of_a_vacated_drive_takes_the_place_of_one_that_is_lacking() {
    let ground = six_drives();
    let array = ground.open(OpenOptions::default());
    let zones = device_zones(&array);
    (0..zones).map(ZoneId).for_each(|zone| ground.write(&array, zone, 1, 0, 40, 7));
    ground.wait(array.fail(Slot(2))).expect("failed");
    wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
    let spare = drive_with_latency(&ground, 9, Duration::from_micros(300));
    ground.wait(array.add_spare(spare)).expect("added");
    assert!(array.superblock().members[2].rebuilding);
    ground.wait(array.fail(Slot(4))).expect("one may fail beside a vacated one");
    wait_until(&ground, "good", || state(&array, Slot(4)) == MemberState::Good);
    assert_eq!((state(&array, Slot(2)), array.status().failures_left()), (MemberState::Vacated, 1));
    assert!(array.superblock().spares.is_empty());
    (0..zones).map(ZoneId).for_each(|zone| ground.check(&array, zone, 1, 40));
}

/// The power fails at any moment while an idle spare takes the place of a vacated drive, and another drive is lost with it: the spare takes
/// the place of that one.
#[test]
fn a_spare_that_a_cut_leaves_to_a_vacated_slot_takes_the_place_of_a_lost_drive() {
    let mut by_vacated = [0, 0];
    for time in 0..40_u64 {
        for lost in [0, 4] {
            let ground = six_drives();
            let array = ground.open(OpenOptions::default());
            let zones = device_zones(&array);
            (0..zones).map(ZoneId).for_each(|zone| ground.write(&array, zone, 1, 0, 40, 7));
            ground.wait(device(&array).flush()).expect("flushed");
            ground.wait(array.fail(Slot(2))).expect("failed");
            wait_until(&ground, "vacated", || state(&array, Slot(2)) == MemberState::Vacated);
            let spare = drive_with_latency(&ground, 9, Duration::from_micros(300));
            let (own, given) = (Arc::clone(&array), Arc::clone(&spare));
            let add = async move { drop(own.add_spare(given).await) };
            drop(units::spawn(&*ground.driver, "add a spare", add));
            wait_until(&ground, "taken", || array.superblock().members[2].rebuilding);
            pass(&ground, Duration::from_micros(300 * time));
            let info = array.superblock().members[2];
            if !info.vacated {
                continue;
            }
            by_vacated[usize::from(lost == 4)] += 1;
            let left = after_cut(&ground, time, &[2, lost], Some(&spare));
            let again = left.open(OpenOptions::default());
            wait_until(&left, "replaced", || state(&again, Slot(lost)) == MemberState::Good);
            assert_eq!(again.status().failures_left(), 1, "{:?}", states(&again));
            (0..zones).map(ZoneId).for_each(|zone| left.check(&again, zone, 1, 40));
        }
    }
    assert!(by_vacated.iter().all(|cuts| *cuts > 5), "{by_vacated:?}");
}

/// Another drive fails while a change of the superblocks holds up the record that the array lacks the vacated drive again. After a power cut
/// the drives that are left make the array.
#[test]
fn a_failure_before_a_new_drive_is_admitted_comes_first() {
    let mut failed = 0;
    let admitted = (0..4_000).step_by(20).find(|time| {
        let (ground, array) = with_vacated_drive();
        let (own, new) = (Arc::clone(&array), new_drive(&ground, 9));
        drop(units::spawn(&*ground.driver, "replace", async move { drop(own.replace(Slot(2), new).await) }));
        pass(&ground, Duration::from_micros(*time));
        !array.superblock().members[2].vacated
    });
    let admitted = admitted.expect("the new drive is admitted");
    for time in (admitted.saturating_sub(220)..admitted).step_by(2) {
        let (ground, array) = with_vacated_drive();
        let new = drive_with_latency(&ground, 9, Duration::from_micros(10));
        let (own, given) = (Arc::clone(&array), Arc::clone(&new));
        let replace = async move { drop(own.replace(Slot(2), given).await) };
        drop(units::spawn(&*ground.driver, "replace", replace));
        pass(&ground, Duration::from_micros(time));
        if !array.superblock().members[2].vacated {
            break;
        }
        // The superblocks are being written for a spare as the drive fails.
        let (own, spare) = (Arc::clone(&array), new_drive(&ground, 10));
        let add = async move { drop(own.add_spare(spare).await) };
        drop(units::spawn(&*ground.driver, "add a spare", add));
        wait_until_soon(&ground, || !array.superblock().spares.is_empty());
        let own = Arc::clone(&array);
        drop(units::spawn(&*ground.driver, "fail", async move { drop(own.fail(Slot(4)).await) }));
        let mut is_recorded = false;
        for step in 0..30 {
            pass(&ground, Duration::from_micros(3));
            let superblock = array.superblock();
            is_recorded |= superblock.members[4].failed && superblock.members[2].vacated;
            if !is_recorded {
                // The failure may come behind the record that the array lacks drive 2: it can lack no drive more then.
                continue;
            }
            failed += 1;
            assert!(superblock.members[2].vacated, "the array lacks two drives");
            let left = after_cut(&ground, step, &[2, 4], Some(&new));
            let again = left.open(OpenOptions::default());
            check_all(&left, &again);
        }
    }
    assert!(failed > 0);
}

/// Waits until `is` holds, for a millisecond at most.
fn wait_until_soon(ground: &ArrayFixture, is: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if is() {
            return;
        }
        pass(ground, Duration::from_micros(1));
    }
}

/// An operator restores parts while the array does so by itself, and another drive fails: zones that begin take no part of the drive that
/// was recorded as vacated.
#[test]
fn a_second_run_of_restores_does_not_undo_a_recorded_vacating() {
    for time in (0..1_500).step_by(20) {
        let ground = drives(4, 3);
        let array = ground.open(OpenOptions::default());
        ground.wait(array.fail(Slot(0))).expect("failed");
        pass(&ground, Duration::from_micros(100));
        let own = Arc::clone(&array);
        let restore = async move { drop(own.restore_parts(array::Pace::UNBOUNDED).await) };
        drop(units::spawn(&*ground.driver, "restore", restore));
        pass(&ground, Duration::from_micros(time));
        if state(&array, Slot(0)) != MemberState::Vacated || ground.wait(array.fail(Slot(1))).is_err() {
            continue;
        }
        pass(&ground, Duration::from_millis(20));
        fill(&ground, &array);
        assert_eq!(parts_on(&array, Slot(0)), 0);
        ground.wait(array.replace(Slot(1), new_drive(&ground, 9))).expect("replaced");
        ground.wait(array.fail(Slot(2))).expect("another one may fail");
        let geometry = device(&array).geometry();
        for zone in (0..ZONES).map(ZoneId) {
            let bytes = usize::try_from(blocks(zone)).unwrap() * BLOCK_BYTES as usize;
            ground.wait(device(&array).read(geometry.start(zone), BufMut::zeroed(bytes))).expect("read");
        }
    }
}
