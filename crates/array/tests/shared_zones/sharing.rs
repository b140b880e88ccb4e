//! Logical zones behind one another in physical zones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use array::{Array, CreateOptions, OpenOptions, Pace, Placement, Role, Slot, create, plan};
use units::{SplitMix64, VirtualDriver, block_on, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Action, Blocks, Bytes, Driver, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, blocks};

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

/// The states and write pointers of a drive's physical zones with content, without its metadata zones.
fn physical_zones(ground: &ArrayFixture, drive: usize) -> BTreeMap<u32, (ZoneState, u64)> {
    let emu: &dyn ZonedDevice = &*ground.emus[drive];
    let report = ground.wait(emu.report(METADATA_ZONES..emu.geometry().zones)).expect("reported");
    let used = report.iter().filter(|info| info.state != ZoneState::Empty);
    used.map(|info| (info.zone.0, (info.state, info.pointer.0))).collect()
}

/// Drives with physical zones of `capacity` blocks, and an array in units of 4 blocks of which `shares` zones share one.
fn fixture(drives: u32, physical: u32, capacity: u64, shares: u32, active: u32) -> ArrayFixture {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: physical + METADATA_ZONES,
            zone_size: Blocks(capacity),
            zone_capacity: Blocks(capacity),
            max_open: Some(active + METADATA_ZONES),
            max_active: Some(active + METADATA_ZONES),
            volatile_cache: true,
            track_power_cuts: true,
            latency: Latency::all(Duration::from_micros(10)),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver))
    };
    let ground = ArrayFixture { emus: (0..drives).map(drive).collect(), driver };
    let options = options(shares);
    ground.wait(async { create(&ground.devices(), &options).await.expect("created") });
    ground
}

fn options(shares: u32) -> CreateOptions {
    let stripe_unit = Bytes(4 * u64::from(BLOCK_BYTES));
    CreateOptions { stripe_unit, placement: Placement::Stored, shares, ..CreateOptions::default() }
}

/// Writes whole zones and resets them in random order, so that `most` of them have content. Returns the lives of these.
fn churn(ground: &ArrayFixture, array: &Arc<Array>, seed: u64, most: usize) -> BTreeMap<u32, u64> {
    let geometry = device(array).geometry().clone();
    let (mut rng, mut lives) = (SplitMix64::new(seed), BTreeMap::new());
    for step in 0..200 {
        if lives.len() >= most {
            let zone = *lives.keys().nth(rng.draw() as usize % lives.len()).expect("a zone");
            lives.remove(&zone);
            ground.wait(device(array).zone(ZoneId(zone), Action::Reset)).expect("reset");
        }
        let empty: Vec<u32> = (0..geometry.zones).filter(|zone| !lives.contains_key(zone)).collect();
        let zone = empty[rng.draw() as usize % empty.len()];
        ground.write(array, ZoneId(zone), step, 0, geometry.zone_capacity.0, 40);
        lives.insert(zone, step);
    }
    lives
}

/// Checks zones that are full.
fn check_lives(ground: &ArrayFixture, array: &Arc<Array>, lives: &BTreeMap<u32, u64>) {
    let all = device(array).geometry().zone_capacity.0;
    lives.iter().for_each(|(zone, life)| ground.check(array, ZoneId(*zone), *life, all));
}

/// Where physical zones hold garbage, first writes wait for a reclaim, and all zones that the array has can be written.
#[test]
fn a_first_write_waits_for_room_that_a_reclaim_makes() {
    let mut waits = 0;
    for seed in 0..4 {
        let ground = fixture(4, 12, 192, 3, 8);
        let array = ground.open(OpenOptions { reclaim_below: 0, ..OpenOptions::default() });
        let geometry = device(&array).geometry().clone();
        assert_eq!((geometry.max_active, geometry.zones), (Some(4), 18));
        let mut lives = churn(&ground, &array, seed, 18);
        let counters = array.counters();
        assert_eq!(counters.waits_for_room > 0, counters.moved_bytes > 0, "seed {seed}: {counters:?}");
        waits += counters.waits_for_room;
        drop(array);
        let array = ground.open(OpenOptions { reclaim_below: 0, ..OpenOptions::default() });
        check_lives(&ground, &array, &lives);
        for zone in 0..geometry.zones {
            if lives.contains_key(&zone) {
                ground.wait(device(&array).zone(ZoneId(zone), Action::Reset)).expect("reset");
            }
            ground.write(&array, ZoneId(zone), 1000, 0, geometry.zone_capacity.0, 40);
            lives.insert(zone, 1000);
        }
        check_lives(&ground, &array, &lives);
        drop(array);
        for lost in 0..4 {
            let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            check_lives(&left, &left.open_without(lost), &lives);
        }
    }
    assert!(waits > 0, "no first write waited");
}

/// A reclaim by order, and one below the low mark, free physical zones while all content stays.
#[test]
fn a_reclaim_frees_the_physical_zones_with_garbage() {
    let empty = |ground: &ArrayFixture| {
        (0..4).map(|drive| 12 - physical_zones(ground, drive).len()).collect::<Vec<_>>()
    };
    let ground = fixture(4, 12, 192, 3, 8);
    let array = ground.open(OpenOptions { reclaim_below: 0, ..OpenOptions::default() });
    let lives = churn(&ground, &array, 1, 9);
    let before = empty(&ground);
    assert!(before.iter().all(|empty| *empty < 7), "{before:?}");
    let report = ground.wait(array.reclaim(u32::MAX, Pace::UNBOUNDED)).expect("reclaimed");
    assert!(report.freed > 0 && report.left == 0, "{report:?}");
    assert!(empty(&ground).iter().zip(&before).all(|(now, before)| now > before), "{:?}", empty(&ground));
    check_lives(&ground, &array, &lives);
    let again = ground.wait(array.reclaim(u32::MAX, Pace::UNBOUNDED)).expect("reclaimed");
    assert_eq!(again, array::Reclaimed::default(), "no garbage is left");
    drop(array);
    let ground = fixture(4, 12, 192, 3, 8);
    let array = ground.open(OpenOptions { reclaim_below: 12, ..OpenOptions::default() });
    let lives = churn(&ground, &array, 2, 9);
    // Parts begin until those that left the physical zones with garbage have left long ago.
    let (all, filler) =
        (device(&array).geometry().zone_capacity.0, (0..).find(|zone| !lives.contains_key(zone)));
    for life in 0..40 {
        let filler = ZoneId(filler.expect("an empty zone"));
        ground.write(&array, filler, life, 0, all, 40);
        ground.wait(device(&array).zone(filler, Action::Reset)).expect("reset");
    }
    ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_secs(5))));
    let counters = array.counters();
    assert!(counters.reclaimed_zones > 0 && counters.waits_for_room == 0, "{counters:?}");
    check_lives(&ground, &array, &lives);
}

/// A reclaim that finds a zone whose reset is under way waits for the reset.
#[test]
fn a_reclaim_waits_for_the_resets_that_make_room() {
    let ground = fixture(4, 12, 192, 3, 8);
    let array = ground.open(OpenOptions { reclaim_below: 0, ..OpenOptions::default() });
    let lives = churn(&ground, &array, 1, 12);
    let (all, driver) = (lives.keys().copied().collect::<Vec<_>>(), Arc::clone(&ground.driver));
    ground.wait(async {
        for zone in all {
            let of = Arc::clone(&array);
            let reset =
                spawn(&*driver, "reset", async move { device(&of).zone(ZoneId(zone), Action::Reset).await });
            // The reset has ended the zone's life, and gives its parts up later.
            sleep_until(&*driver, driver.now().after(Duration::from_micros(15))).await;
            let report = array.reclaim(u32::MAX, Pace::UNBOUNDED).await.expect("reclaimed");
            assert_eq!(report.left, 0, "zone {zone}: {report:?}");
            reset.await.expect("reset");
        }
    });
    assert!((0..4).all(|drive| physical_zones(&ground, drive).is_empty()), "an empty array");
}

/// A part in a physical zone that several zones share moves to a slot of another one, and takes writes there.
#[test]
fn parts_move_between_physical_zones_that_zones_share() {
    let ground = fixture(4, 16, 192, 3, 6);
    let array = ground.open(OpenOptions::default());
    let all = device(&array).geometry().zone_capacity.0;
    ground.write(&array, ZoneId(0), 5, 0, all, 40);
    ground.write(&array, ZoneId(1), 7, 0, 30, 7);
    for round in 0..4 {
        for role in 0..4 {
            let (slot, physical) = array.place(ZoneId(1), Role(role)).expect("a zone with content");
            assert!(
                ground.wait(array.move_part(ZoneId(1), Role(role), slot, Pace::UNBOUNDED)).expect("moved")
            );
            let now = array.place(ZoneId(1), Role(role)).expect("a zone with content");
            assert!(now.0 == slot && now.1 != physical, "{now:?}");
        }
        ground.write(&array, ZoneId(1), 7, 30 + round * 9, 39 + round * 9, 5);
        ground.check(&array, ZoneId(1), 7, 39 + round * 9);
        ground.check(&array, ZoneId(0), 5, all);
    }
    drop(array);
    for lost in 0..4 {
        let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
        let array = left.open_without(lost);
        left.check(&array, ZoneId(1), 7, 66);
        left.check(&array, ZoneId(0), 5, all);
    }
}

/// Zones that are filled one after the other lie behind one another, in physical zones that are full in the end.
#[test]
fn zones_that_are_filled_in_turn_fill_physical_zones() {
    for (shares, capacity) in [(2, 192), (3, 200)] {
        let ground = fixture(4, 8, capacity, shares, 6);
        let mut array = ground.open(OpenOptions::default());
        let geometry = device(&array).geometry().clone();
        let rows = capacity / u64::from(shares) / 4 * 4;
        assert_eq!(geometry.zone_capacity, Blocks(rows * 3));
        assert!(geometry.zone_size.0.is_power_of_two(), "kernels expect a power of two: {geometry:?}");
        assert_eq!(
            (geometry.max_active, geometry.zones),
            (Some(2), 4 * shares),
            "half of the physical zones are in reserve"
        );
        let all = geometry.zone_capacity.0;
        for life in 1..4 {
            for zone in (0..geometry.zones).map(ZoneId) {
                ground.write(&array, zone, life * 100 + u64::from(zone.0), 0, all, 30);
            }
            for drive in 0..4 {
                let used = physical_zones(&ground, drive);
                assert_eq!(used.len(), 4, "drive {drive}: {used:?}");
                assert!(used.values().all(|(state, _)| *state == ZoneState::Full), "{used:?}");
            }
            if life == 2 {
                drop(array);
                array = ground.open(OpenOptions::default());
            }
            for zone in (0..geometry.zones).map(ZoneId) {
                ground.check(&array, zone, life * 100 + u64::from(zone.0), all);
            }
            for zone in (0..geometry.zones).map(ZoneId) {
                ground.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
            }
            (0..4).for_each(|drive| assert_eq!(physical_zones(&ground, drive), BTreeMap::new()));
        }
    }
}

/// A drive counts a physical zone with room left as active: a zone that begins then takes that room. All zones that the array allows
/// can be active at any time, whatever zones ended before, and a physical zone with content of no zone is reset at once.
#[test]
fn the_active_zones_that_the_array_promises_fit_the_drives() {
    for seed in 0..30 {
        let ground = fixture(3, 24, 128, 2, 5);
        let mut array = ground.open(OpenOptions::default());
        let geometry = device(&array).geometry().clone();
        assert_eq!((geometry.max_active, geometry.max_open), (Some(4), Some(4)), "one less than the drive's");
        let (zones, all) = (geometry.zones, geometry.zone_capacity.0);
        let mut rng = SplitMix64::new(seed);
        let (mut written, mut full) = (BTreeMap::<u32, (u64, u64)>::new(), BTreeSet::<u32>::new());
        for step in 0..300_u64 {
            let zone = (rng.draw() % u64::from(zones.min(16))) as u32;
            let is_open = |(zone, (_, to)): &(&u32, &(u64, u64))| *to < all && !full.contains(zone);
            let active = written.iter().filter(is_open).count();
            full.retain(|zone| written.contains_key(zone));
            let to_end = |to: u64| if full.contains(&zone) { all } else { to };
            match (written.get(&zone).copied(), rng.draw() % 8) {
                (Some((_, to)), 0) if to_end(to) < all => {
                    ground.wait(device(&array).zone(ZoneId(zone), Action::Reset)).expect("reset");
                    written.remove(&zone);
                }
                (Some((life, to)), _) if to_end(to) < all => {
                    let end = (to + 1 + rng.draw() % 60).min(all);
                    ground.write(&array, ZoneId(zone), life, to, end, 20);
                    written.insert(zone, (life, end));
                }
                (Some((life, to)), 1..4) => {
                    ground.check(&array, ZoneId(zone), life, to);
                    ground.wait(device(&array).zone(ZoneId(zone), Action::Reset)).expect("reset");
                    written.remove(&zone);
                }
                (None, _) if active < 4 => {
                    ground.write(&array, ZoneId(zone), step, 0, 1 + rng.draw() % 100, 20);
                    let info = ground.zone(&array, ZoneId(zone));
                    written.insert(zone, (step, info.pointer.0));
                }
                _ => {}
            }
            if rng.draw().is_multiple_of(60) {
                drop(array);
                array = ground.open(OpenOptions::default());
                // A zone is full after a mount if a drive's physical zone is.
                let is_full = |zone: &u32| ground.zone(&array, ZoneId(*zone)).state == ZoneState::Full;
                full = written.keys().copied().filter(is_full).collect();
            }
        }
        for (zone, (life, to)) in written {
            ground.check(&array, ZoneId(zone), life, to);
            ground.wait(device(&array).zone(ZoneId(zone), Action::Reset)).expect("reset");
        }
        (0..3).for_each(|drive| assert_eq!(physical_zones(&ground, drive), BTreeMap::new(), "seed {seed}"));
    }
}

/// A zone goes to the slot behind one that was finished early, and zeros fill the rows that this one did not need, where the drive can
/// have no more active zones.
#[test]
fn zeros_fill_the_rows_that_a_finished_zone_did_not_need() {
    let ground = fixture(4, 6, 128, 2, 6);
    let array = ground.open(OpenOptions::default());
    let all = device(&array).geometry().zone_capacity.0;
    assert_eq!(device(&array).geometry().max_active, Some(1));
    for zone in 0..3 {
        ground.write(&array, ZoneId(zone), u64::from(zone), 0, 17, 17);
        ground.wait(device(&array).zone(ZoneId(zone), Action::Finish)).expect("finished");
    }
    let physical = |zone| array.place(ZoneId(zone), Role(0)).expect("a zone with content").1;
    assert_ne!(physical(0), physical(1), "an empty physical zone needs no zeros");
    let used = physical_zones(&ground, 0);
    let open: Vec<_> = used.values().filter(|(state, _)| *state != ZoneState::Full).collect();
    assert!(used.len() == 2 && open.len() == 1, "two may be active, and one has no slot left: {used:?}");
    ground.write(&array, ZoneId(3), 3, 0, all, 24);
    drop(array);
    for lost in 0..4 {
        let ground = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
        let array = ground.open_without(lost);
        (0..3).for_each(|zone| ground.check(&array, ZoneId(zone), u64::from(zone), 17));
        ground.check(&array, ZoneId(3), 3, all);
    }
}

/// A power cut at any moment while zones are filled, begun behind one another and reset leaves what was flushed, also without a drive.
#[test]
fn a_power_cut_leaves_what_was_flushed_of_zones_behind_one_another() {
    for seed in 0..60 {
        let ground = fixture(4, 12, 96, 3, 5);
        let array = ground.open(OpenOptions::default());
        let all = device(&array).geometry().zone_capacity.0;
        let flushed = Arc::new(parking_lot::Mutex::new(Vec::<(u32, u64, u64)>::new()));
        let work = spawn(&*ground.driver, "work", {
            let (array, flushed) = (Arc::clone(&array), Arc::clone(&flushed));
            async move {
                let device = device(&array);
                let mut rng = SplitMix64::new(seed);
                for round in 0..200_u64 {
                    let zone = (round % 9) as u32;
                    if round >= 9 {
                        flushed.lock().retain(|(of, ..)| *of != zone);
                        device.zone(ZoneId(zone), Action::Reset).await.expect("reset");
                    }
                    let mut at = 0;
                    while at < all {
                        let end = (at + 1 + rng.draw() % 30).min(all);
                        let lba = device.geometry().start(ZoneId(zone)).plus(Blocks(at));
                        device.write(lba, blocks(round, at, end), Durability::Cached).await.expect("written");
                        at = end;
                        if rng.draw().is_multiple_of(3) {
                            device.flush().await.expect("flushed");
                            flushed.lock().push((zone, round, at));
                        }
                        if rng.draw().is_multiple_of(12) {
                            device.zone(ZoneId(zone), Action::Finish).await.expect("finished");
                            // A finish of a full zone changes nothing: blocks that are not durable may still be lost.
                            if at < all {
                                flushed.lock().push((zone, round, at));
                            }
                            break;
                        }
                    }
                }
            }
        });
        let until = Duration::from_micros(500 + seed * 397);
        ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(until)));
        let flushed = flushed.lock().clone();
        let media = ground.cut(seed);
        drop(work);
        for lost in [None, Some(seed as usize % 4)] {
            let left = ArrayFixture::of(media.clone().into_iter());
            let array = left.open_perhaps_without(lost);
            for (zone, life, to) in &flushed {
                left.check(&array, ZoneId(*zone), *life, *to);
            }
            // The array goes on: zones are reset, begun and filled.
            for zone in (0..9).map(ZoneId) {
                left.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
                left.write(&array, zone, 1000, 0, 50, 10);
                left.check(&array, zone, 1000, 50);
                left.wait(device(&array).zone(zone, Action::Finish)).expect("finished");
            }
        }
    }
}

/// A new drive gets the parts of zones behind one another, beside zones that begin and end meanwhile.
#[test]
fn a_rebuild_copies_parts_behind_one_another() {
    for pause in [0, 200, 900, 3000, 8000] {
        let ground = fixture(4, 16, 128, 2, 8);
        let array = ground.open(OpenOptions::default());
        let all = device(&array).geometry().zone_capacity.0;
        for zone in 0..8 {
            ground.write(&array, ZoneId(zone), u64::from(zone), 0, if zone == 7 { 50 } else { all }, 24);
        }
        // Zone 2 lies below zone 3, whose part on the new drive begins behind rows without content.
        ground.wait(device(&array).zone(ZoneId(2), Action::Reset)).expect("reset");
        ground.wait(array.fail(Slot(1))).expect("failed");
        ground.wait(device(&array).zone(ZoneId(5), Action::Reset)).expect("reset");
        ground.write(&array, ZoneId(2), 22, 0, 70, 24);
        let new = fixture(4, 16, 128, 2, 8).emus.remove(1).media();
        let new =
            Emu::from_media(new, "new", Latency::all(Duration::from_micros(10)), Arc::clone(&ground.driver));
        let rebuild = spawn(&*ground.driver, "rebuild", {
            let (array, new) = (Arc::clone(&array), Arc::clone(&new) as Arc<dyn ZonedDevice>);
            async move { array.replace(Slot(1), new).await }
        });
        ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(Duration::from_micros(pause))));
        ground.write(&array, ZoneId(5), 55, 0, all, 24);
        ground.wait(device(&array).zone(ZoneId(0), Action::Reset)).expect("reset");
        ground.write(&array, ZoneId(0), 100, 0, all, 24);
        ground.wait(device(&array).zone(ZoneId(6), Action::Finish)).expect("finished");
        ground.write(&array, ZoneId(8), 8, 0, 30, 24);
        ground.wait(rebuild).expect("rebuilt");
        ground.write(&array, ZoneId(7), 7, 50, all, 24);
        ground.write(&array, ZoneId(9), 9, 0, all, 24);
        ground.wait(device(&array).flush()).expect("flushed");
        let check = |ground: &ArrayFixture, array: &Arc<Array>| {
            for (zone, life, to) in [
                (0, 100, all),
                (1, 1, all),
                (2, 22, 70),
                (3, 3, all),
                (4, 4, all),
                (5, 55, all),
                (6, 6, all),
                (7, 7, all),
                (8, 8, 30),
                (9, 9, all),
            ] {
                ground.check(array, ZoneId(zone), life, to);
            }
        };
        check(&ground, &array);
        drop(array);
        for lost in [0, 2, 3] {
            let media =
                [0, 1, 2, 3].map(|slot| if slot == 1 { new.media() } else { ground.emus[slot].media() });
            let left = ArrayFixture::of(media.into_iter());
            let array = left.open_without(lost);
            check(&left, &array);
        }
    }
}

/// Sizes that do not fit are refused, with the ones that do.
#[test]
fn shares_that_do_not_fit_are_refused() {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: 20,
            zone_size: Blocks(640),
            zone_capacity: Blocks(610),
            max_open: Some(8),
            max_active: Some(8),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver)) as Arc<dyn ZonedDevice>
    };
    let drives: Vec<Arc<dyn ZonedDevice>> = (0..3).map(drive).collect();
    for (options, says) in [
        (options(0), "so that 1 to 152 fit"),
        (options(153), "so that 1 to 152 fit"),
        (CreateOptions { placement: Placement::Fixed, ..options(2) }, "need stored maps"),
    ] {
        let error = plan(&drives, &options).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(says), "{error}");
    }
    let planned = plan(&drives, &options(6)).expect("planned");
    assert_eq!((planned.part_rows(), planned.zones), (Blocks(100), (17 - 6) * 6));
    block_on(&*driver, async { create(&drives, &options(6)).await.expect("created") });
}
