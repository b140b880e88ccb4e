//! Logical zones behind one another in physical zones, of arrays with more drives than a stripe has units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use array::{
    Array, CheckOptions, CreateOptions, OpenOptions, Pace, Placement, Role, Slot, check, create, plan,
};
use units::{Driver, SplitMix64, VirtualDriver, sleep_until, spawn};
use zoned::emu::{Emu, EmuOptions, Latency};
use zoned::{Action, Blocks, Bytes, Durability, ErrorKind, ZoneId, ZonedDevice};

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, blocks};

/// Drives, units of a stripe, and logical zones that share a physical zone.
#[derive(Clone, Copy)]
struct Size {
    drives: u32,
    width: u32,
    shares: u32,
    parities: u32,
}

fn device(array: &Arc<Array>) -> &dyn ZonedDevice {
    &**array
}

fn options(size: Size) -> CreateOptions {
    CreateOptions {
        stripe_unit: Bytes(4 * u64::from(BLOCK_BYTES)),
        placement: Placement::Stored,
        shares: size.shares,
        width: Some(size.width),
        parities: size.parities,
        ..CreateOptions::default()
    }
}

/// An array whose zones have parts of 24 rows each. A drive has `physical` physical zones, and the array allows `active` zones.
fn fixture(size: Size, physical: u32, active: u32) -> ArrayFixture {
    let driver: Arc<dyn Driver> = VirtualDriver::new(1);
    let capacity = Blocks((24 * u64::from(size.shares)).max(128));
    let drive = |n| {
        let options = EmuOptions {
            name: format!("emu:{n}"),
            block_size: BLOCK_BYTES,
            zones: physical + METADATA_ZONES,
            zone_size: capacity,
            zone_capacity: capacity,
            max_open: Some(active + 1 + METADATA_ZONES),
            max_active: Some(active + 1 + METADATA_ZONES),
            volatile_cache: true,
            track_power_cuts: true,
            latency: Latency::all(Duration::from_micros(10)),
            ..EmuOptions::default()
        };
        Emu::memory(options, Arc::clone(&driver))
    };
    let ground = ArrayFixture { emus: (0..size.drives).map(drive).collect(), driver };
    ground.wait(async { create(&ground.devices(), &options(size)).await.expect("created") });
    ground
}

/// The drives and physical zones of a zone's parts.
fn places(array: &Arc<Array>, zone: u32) -> BTreeMap<Slot, ZoneId> {
    (0..).map_while(|role| array.place(ZoneId(zone), Role(role))).collect()
}

fn without_reclaim() -> OpenOptions {
    OpenOptions { reclaim_below: 0, ..OpenOptions::default() }
}

/// Checks the zones' content, each with the life `lives` gives it, on the array with all drives and without each of them.
fn check_lives(ground: &ArrayFixture, lives: &BTreeMap<u32, u64>) {
    let lost = (0..ground.emus.len()).map(Some).chain([None]);
    for lost in lost {
        let left = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
        let array = left.open_perhaps_without(lost);
        let all = device(&array).geometry().zone_capacity.0;
        lives.iter().for_each(|(zone, life)| left.check(&array, ZoneId(*zone), *life, all));
    }
}

/// A zone follows its neighbour by number on the same drives, behind its parts; zones of other streams take the other drives first, and
/// all zones that the array has fit the drives, beside the reserve.
#[test]
fn a_zone_follows_its_neighbour_on_the_same_drives() {
    for parities in [1, 2] {
        let size = Size { drives: 6, width: 4, shares: 2, parities };
        let ground = fixture(size, 14, 4);
        let array = ground.open(without_reclaim());
        let geometry = device(&array).geometry().clone();
        assert_eq!((geometry.max_active, geometry.zones), (Some(4), (14 - 6) * 2 * 6 / 4));
        let (all, mut lives) = (geometry.zone_capacity.0, BTreeMap::new());
        let mut fill = |zone: u32| {
            ground.write(&array, ZoneId(zone), 7 + u64::from(zone), 0, all, 30);
            lives.insert(zone, 7 + u64::from(zone));
        };
        for zone in [0, 10, 1, 11, 2, 12] {
            fill(zone);
        }
        assert_eq!(places(&array, 0).len(), 4);
        assert_eq!((places(&array, 0), places(&array, 10)), (places(&array, 1), places(&array, 11)));
        let drives: BTreeSet<Slot> =
            places(&array, 0).into_keys().chain(places(&array, 10).into_keys()).collect();
        assert_eq!(drives.len(), 6, "two streams take all drives");
        assert_ne!(places(&array, 2), places(&array, 1), "a physical zone holds two parts");
        (0..geometry.zones).filter(|zone| ![0, 10, 1, 11, 2, 12].contains(zone)).for_each(&mut fill);
        assert_eq!(array.counters().moved_bytes, 0, "zones that are filled once move no part");
        ground.wait(device(&array).flush()).expect("flushed");
        drop(array);
        check_lives(&ground, &lives);
        let report = ground.wait(check(&ground.devices(), CheckOptions { deep: true })).expect("checked");
        assert_eq!(report.problems, []);
    }
}

/// While a drive is missing, a zone takes the other drives, also where its neighbour has a part on the missing one. Its parts are all
/// there, so that another drive may fail once the first one is replaced.
#[test]
fn a_zone_that_begins_without_a_drive_takes_the_others() {
    let size = Size { drives: 5, width: 3, shares: 2, parities: 1 };
    let ground = fixture(size, 14, 4);
    let array = ground.open(without_reclaim());
    let all = device(&array).geometry().zone_capacity.0;
    ground.write(&array, ZoneId(0), 1, 0, all, 30);
    let missing = *places(&array, 0).keys().next().expect("a drive");
    ground.wait(array.fail(missing)).expect("failed");
    for zone in 1..5 {
        ground.write(&array, ZoneId(zone), 1, 0, all, 30);
        assert!(!places(&array, zone).contains_key(&missing), "zone {zone}: {:?}", places(&array, zone));
    }
    let kept =
        places(&array, 0).into_iter().filter(|place| places(&array, 1).get(&place.0) == Some(&place.1));
    assert_eq!(kept.count(), 2, "zone 1 follows zone 0 on the drives that work");
    let blank = fixture(size, 14, 4).emus.remove(0).media();
    let new =
        Emu::from_media(blank, "new", Latency::all(Duration::from_micros(10)), Arc::clone(&ground.driver));
    ground.wait(array.replace(missing, Arc::clone(&new) as Arc<dyn ZonedDevice>)).expect("rebuilt");
    ground.wait(device(&array).flush()).expect("flushed");
    drop(array);
    let media = (0..).map(Slot).zip(&ground.emus);
    let media = media.map(|(slot, emu)| if slot == missing { new.media() } else { emu.media() });
    check_lives(&ArrayFixture::of(media), &(0..5).map(|zone| (zone, 1)).collect());
}

/// All zones that the array has can be written whatever zones were reset before. First writes wait for a reclaim on drives that hold
/// garbage; from drives that are full of content parts go to drives with room.
#[test]
fn a_first_write_finds_room_on_the_drives_together() {
    let (mut waits, mut gone) = (0, 0);
    for seed in 0..8 {
        let size = Size { drives: 4, width: 3, shares: 4, parities: 1 };
        let ground = fixture(size, 17, 1);
        let mut array = ground.open(without_reclaim());
        let geometry = device(&array).geometry().clone();
        assert_eq!((geometry.max_active, geometry.zones), (Some(1), 14 * 4 * 4 / 3));
        let (all, mut lives) = (geometry.zone_capacity.0, BTreeMap::<u32, u64>::new());
        let mut rng = SplitMix64::new(seed);
        for life in 0..14 {
            for zone in 0..geometry.zones {
                if lives.contains_key(&zone) {
                    continue;
                }
                let before: Vec<(u32, BTreeSet<Slot>)> =
                    lives.keys().map(|zone| (*zone, places(&array, *zone).into_keys().collect())).collect();
                ground.write(&array, ZoneId(zone), life, 0, all, 36);
                lives.insert(zone, life);
                let has_moved =
                    |(zone, slots): &&(u32, BTreeSet<Slot>)| !places(&array, *zone).keys().eq(slots);
                gone += before.iter().filter(has_moved).count();
            }
            waits += array.counters().waits_for_room;
            if life == 7 {
                drop(array);
                array = ground.open(without_reclaim());
            }
            lives.iter().for_each(|(zone, life)| ground.check(&array, ZoneId(*zone), *life, all));
            // Zones with a part on drive 3 are reset first.
            let is_on_others = |zone: u32| !places(&array, zone).contains_key(&Slot(3));
            let mut order: Vec<(bool, u64, u32)> =
                lives.keys().map(|zone| (is_on_others(*zone), rng.draw(), *zone)).collect();
            order.sort_unstable();
            let most = 1 + rng.draw() as usize % order.len();
            for (_, _, zone) in order.into_iter().take(if life == 13 { 0 } else { most }) {
                ground.wait(device(&array).zone(ZoneId(zone), Action::Reset)).expect("reset");
                lives.remove(&zone);
            }
        }
        ground.wait(device(&array).flush()).expect("flushed");
        drop(array);
        if seed == 0 {
            check_lives(&ground, &lives);
        }
    }
    assert!(waits > 0 && gone > 0, "{waits} first writes waited, {gone} parts went to other drives");
}

/// A part moves to a slot of another drive, and takes writes there.
#[test]
fn parts_move_between_drives() {
    let size = Size { drives: 5, width: 3, shares: 2, parities: 1 };
    let ground = fixture(size, 14, 4);
    let array = ground.open(without_reclaim());
    let all = device(&array).geometry().zone_capacity.0;
    ground.write(&array, ZoneId(0), 1, 0, all, 30);
    ground.write(&array, ZoneId(1), 2, 0, 10, 7);
    for round in 0..6 {
        let has_part = places(&array, 1);
        let to = (0..5).map(Slot).find(|slot| !has_part.contains_key(slot)).expect("a drive without a part");
        let role = Role(round % 3);
        assert!(ground.wait(array.move_part(ZoneId(1), role, to, Pace::UNBOUNDED)).expect("moved"));
        assert_eq!(array.place(ZoneId(1), role).expect("a place").0, to);
        let from = 10 + 4 * u64::from(round);
        ground.write(&array, ZoneId(1), 2, from, from + 4, 3);
    }
    ground.write(&array, ZoneId(1), 2, 34, all, 7);
    ground.wait(device(&array).flush()).expect("flushed");
    drop(array);
    check_lives(&ground, &[(0, 1), (1, 2)].into());
}

/// A power cut at any moment while streams of zones are filled, begun behind one another and reset leaves what was flushed, also without
/// a drive.
#[test]
fn a_power_cut_leaves_what_was_flushed() {
    for seed in 0..40 {
        let size =
            Size { drives: 5, width: 3 + seed as u32 % 2, shares: 2 + seed as u32 % 3 / 2, parities: 1 };
        let ground = fixture(size, 12, 3);
        let array = ground.open(OpenOptions::default());
        let all = device(&array).geometry().zone_capacity.0;
        let flushed = Arc::new(parking_lot::Mutex::new(Vec::<(u32, u64, u64)>::new()));
        let work = spawn(&*ground.driver, "work", {
            let (array, flushed) = (Arc::clone(&array), Arc::clone(&flushed));
            async move {
                let device = device(&array);
                let mut rng = SplitMix64::new(seed);
                for round in 0..200_u64 {
                    // Two streams of five zones each.
                    let zone = (round % 2 * 5 + round / 2 % 5) as u32;
                    if round >= 10 {
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
                    }
                }
            }
        });
        let until = Duration::from_micros(500 + seed * 397);
        ground.wait(sleep_until(&*ground.driver, ground.driver.now().after(until)));
        let flushed = flushed.lock().clone();
        let media = ground.cut(seed);
        drop(work);
        for lost in [None, Some(seed as usize % 5)] {
            let left = ArrayFixture::of(media.clone().into_iter());
            let array = left.open_perhaps_without(lost);
            for (zone, life, to) in &flushed {
                left.check(&array, ZoneId(*zone), *life, *to);
            }
            // The array goes on: zones are reset, begun and filled.
            for zone in (0..10).map(ZoneId) {
                left.wait(device(&array).zone(zone, Action::Reset)).expect("reset");
                left.write(&array, zone, 1000, 0, all, 10);
                left.check(&array, zone, 1000, all);
            }
        }
    }
}

#[test]
fn spare_capacity_is_refused_with_zones_that_share_physical_ones() {
    let size = Size { drives: 5, width: 3, shares: 2, parities: 1 };
    let ground = fixture(size, 12, 3);
    let error =
        plan(&ground.devices(), &CreateOptions { spare_drives: 1, ..options(size) }).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("lost parts are not restored there"), "{error}");
}
