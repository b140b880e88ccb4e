//! Tests of `zone::shared_zones`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use units::SplitMix64;

use super::drives::{DriveRoom, Surplus, drives_to_free};
use super::*;
use crate::zone::drive_choice::{self, ALIKE_WHEN_SHARED, Candidate, CommonZones};

const PART_ROWS: u64 = 10;

/// Drives of `zones` empty physical zones each and one that is kept for moves. A physical zone holds `shares` parts, and no more than
/// `max_active` may be active.
fn zones(drives: usize, zones: u32, shares: u64, max_active: u32) -> SharedZones {
    let drive = SharedZonesOfDrive {
        empty: (3..4 + zones).map(ZoneId).collect(),
        max_active: Some(max_active),
        ..SharedZonesOfDrive::default()
    };
    SharedZones::new(shares * PART_ROWS, PART_ROWS, vec![drive; drives], Rules::default())
}

/// The places of the next part of `id` on drive 0.
fn take(zones: &SharedZones, id: u32) -> Result<Place, Slot> {
    zones.take(ZoneId(id), &[Slot(0)], Taker::NewPart, |_, _| true).map(|places| places[0])
}

fn place(zone: u32, row: u64) -> Place {
    Place { slot: Slot(0), zone: ZoneId(zone), row }
}

#[test]
fn a_part_goes_behind_one_that_takes_no_more_writes() {
    let zones = zones(1, 3, 2, 9);
    assert_eq!(take(&zones, 0), Ok(place(3, 0)));
    // Zone 0 may still be written, so that zone 1 begins another physical zone.
    assert_eq!(take(&zones, 1), Ok(place(4, 0)));
    zones.end(ZoneId(1), place(4, 0), PART_ROWS);
    assert_eq!(take(&zones, 2), Ok(place(4, 10)), "where the neighbour by number ended");
    assert_eq!(zones.all_below(place(4, 10)), [ZoneId(1)]);
    assert!(zones.fits(place(4, 10), 7), "three rows are filled with zeros");
    assert_eq!(zones.leave(ZoneId(1), place(4, 0)), Left::InUse);
    assert_eq!(zones.leave(ZoneId(2), place(4, 10)), Left::Garbage);
    zones.give_back(place(4, 0));
    assert_eq!(take(&zones, 1), Ok(place(4, 0)));
}

#[test]
fn a_physical_zone_without_another_slot_is_spent() {
    let zones = zones(1, 2, 2, 2);
    assert_eq!(take(&zones, 0), Ok(place(3, 0)));
    zones.end(ZoneId(0), place(3, 0), PART_ROWS);
    assert_eq!(take(&zones, 1), Ok(place(3, 10)));
    // Zone 1 is reset before it is full: nothing fits behind its rows.
    assert_eq!(zones.leave(ZoneId(1), place(3, 10)), Left::Spent);
    assert_eq!(take(&zones, 1), Ok(place(4, 0)));
    zones.end(ZoneId(1), place(4, 0), 3);
    assert_eq!(take(&zones, 2), Ok(place(4, 10)), "the next slot, behind a zone that was finished early");
    assert!(!zones.fits(place(4, 10), 11), "a row of the slot is written");
    assert_eq!(zones.cancel(ZoneId(2), place(4, 10)), Left::Spent);
    assert_eq!(take(&zones, 2), Err(Slot(0)));
    assert_eq!(zones.leave(ZoneId(0), place(3, 0)), Left::Garbage);
    zones.give_back(place(3, 0));
    assert_eq!(take(&zones, 2), Ok(place(5, 0)), "one of the two empty ones");
}

#[test]
fn a_part_that_was_taken_and_not_written_leaves_its_place_as_it_was() {
    let zones = zones(1, 1, 3, 9);
    assert_eq!(take(&zones, 5), Ok(place(3, 0)));
    assert_eq!(zones.cancel(ZoneId(5), place(3, 0)), Left::InUse);
    assert_eq!(take(&zones, 6), Ok(place(3, 0)));
    zones.end(ZoneId(6), place(3, 0), PART_ROWS);
    assert_eq!(take(&zones, 7), Ok(place(3, 10)));
    assert_eq!(zones.cancel(ZoneId(7), place(3, 10)), Left::InUse);
    assert_eq!(take(&zones, 8), Ok(place(3, 10)));
    assert_eq!(zones.leave(ZoneId(6), place(3, 0)), Left::InUse);
    assert_eq!(zones.cancel(ZoneId(8), place(3, 10)), Left::Garbage);
}

#[test]
fn nothing_goes_behind_a_part_that_a_new_drive_lacks() {
    let zones = zones(1, 2, 2, 9);
    assert_eq!(take(&zones, 0), Ok(place(3, 0)));
    zones.end(ZoneId(0), place(3, 0), PART_ROWS);
    let taken = zones.take(ZoneId(1), &[Slot(0)], Taker::NewPart, |_, id| id != ZoneId(0));
    assert_eq!(taken, Ok(vec![place(4, 0)]));
}

#[test]
fn the_last_empty_physical_zone_is_for_parts_that_move() {
    let zones = zones(1, 1, 2, 9);
    assert_eq!(take(&zones, 0), Ok(place(3, 0)));
    assert_eq!(take(&zones, 1), Err(Slot(0)));
    assert_eq!(zones.take(ZoneId(0), &[Slot(0)], Taker::Move, |_, _| true), Ok(vec![place(4, 0)]));
}

#[test]
fn the_physical_zone_with_the_fewest_parts_beside_garbage_is_freed_first() {
    let zones = zones(1, 3, 3, 9);
    // Physical zone 3 with three parts, 6 with two, one of them open.
    for id in 0..5 {
        let at = take(&zones, id).expect("room");
        assert_eq!(at, place(3 + id / 3 * 3, u64::from(id % 3) * 10));
        if id != 4 {
            zones.end(ZoneId(id), at, PART_ROWS);
        }
    }
    assert_eq!(zones.victim(Slot(0), 0, |_| true), None, "no garbage");
    assert_eq!(zones.leave(ZoneId(3), place(6, 0)), Left::InUse);
    assert_eq!(zones.victim(Slot(0), 0, |_| true), None, "zone 4 may be written");
    assert_eq!(zones.leave(ZoneId(0), place(3, 0)), Left::InUse);
    let (both, one) = (
        Victim { zone: ZoneId(3), tenants: vec![ZoneId(1), ZoneId(2)] },
        Victim { zone: ZoneId(6), tenants: vec![ZoneId(4)] },
    );
    assert_eq!(zones.victim(Slot(0), 0, |_| true), Some(both.clone()));
    zones.end(ZoneId(4), place(6, 10), PART_ROWS);
    assert_eq!(zones.victim(Slot(0), 0, |_| true), Some(one));
    assert_eq!(zones.victim(Slot(0), 0, |zone| zone != ZoneId(6)), Some(both));
    assert_eq!(zones.victim(Slot(0), 1, |_| true), None, "no part has begun since");
    take(&zones, 3).expect("room");
    assert!(zones.victim(Slot(0), 1, |_| true).is_some());
}

/// The places of each zone's parts.
type Parts = BTreeMap<u32, Vec<Place>>;

/// Moves the parts of a physical zone of the drive in `slot` that `victim` names to other physical zones of the drive in `to`.
fn move_parts(zones: &SharedZones, parts: &mut Parts, slot: Slot, victim: &Victim, to: Slot) {
    for id in &victim.tenants {
        let taker = if to == slot { Taker::Move } else { Taker::NewPart };
        let place = zones.take(*id, &[to], taker, |_, _| true).expect("a part that moves finds room")[0];
        let of_zone = parts.get_mut(&id.0).expect("a zone with places");
        let from = of_zone.iter_mut().find(|place| place.slot == slot).expect("a part on the drive");
        let from = std::mem::replace(from, place);
        zones.end(*id, place, PART_ROWS);
        if zones.leave(*id, from) == Left::Garbage {
            zones.give_back(from);
        }
    }
}

/// Frees the next physical zone with garbage of the drive in `slot`; if there is none, moves a part of it to another drive, or makes room
/// there. False if nothing can be done.
fn reclaim(zones: &SharedZones, parts: &mut Parts, slot: Slot) -> bool {
    if let Some(victim) = zones.victim(slot, 0, |_| true) {
        move_parts(zones, parts, slot, &victim, slot);
        assert!(zones.drives.lock()[slot.index()].empty.contains(&victim.zone), "the physical zone is free");
        return true;
    }
    let Some(Surplus { part, to }) = zones.surplus(slot, |_| true, |_| true) else { return false };
    match zones.drive_rooms(part.tenants[0], |_, _| true)[to.index()].room {
        Some(_) => move_parts(zones, parts, slot, &part, to),
        None => {
            let victim = zones.victim(to, 0, |_| true);
            move_parts(zones, parts, to, &victim.expect("a drive with few parts has room, or garbage"), to);
        }
    }
    true
}

/// The drives of the next zone, or those on which room is to be made.
fn drives(zones: &SharedZones, id: u32, width: usize, parts: &Parts) -> Result<Vec<Slot>, Vec<Slot>> {
    let rooms = zones.drive_rooms(ZoneId(id), |_, _| true);
    let mut common = CommonZones::new(rooms.len() as u32);
    for places in parts.values() {
        common.add(&places.iter().map(|place| place.slot).collect::<Vec<_>>());
    }
    let candidate = |(slot, drive): (Slot, &DriveRoom)| Candidate {
        slot,
        works: true,
        room: drive.room,
        free: drive.empty,
        active: drive.open as u32,
    };
    let candidates: Vec<Candidate> = (0..).map(Slot).zip(&rooms).map(candidate).collect();
    drive_choice::choose(width, &candidates, &common, ALIKE_WHEN_SHARED)
        .ok_or_else(|| drives_to_free(width, &rooms, |_| true).expect("all drives work"))
}

/// Gives a zone its places, on drives on which room is made if need be. Returns the number of drives that had no garbage to reclaim.
fn begin(zones: &SharedZones, parts: &mut Parts, id: u32, width: usize) -> usize {
    let mut without_garbage = 0;
    for _ in 0..200 {
        match drives(zones, id, width, parts) {
            Ok(slots) => {
                let taken = zones.take(ZoneId(id), &slots, Taker::NewPart, |_, _| true);
                parts.insert(id, taken.expect("room on the chosen drives"));
                return without_garbage;
            }
            Err(short) => {
                for slot in short {
                    without_garbage += usize::from(zones.victim(slot, 0, |_| true).is_none());
                    assert!(reclaim(zones, parts, slot), "zone {id}: {:?}", zones.drives.lock());
                }
            }
        }
    }
    panic!("zone {id} finds no room: {:?}", zones.drives.lock());
}

/// Resets a zone.
fn reset(zones: &SharedZones, parts: &mut Parts, id: u32) {
    for at in parts.remove(&id).expect("places") {
        if zones.leave(ZoneId(id), at) == Left::Garbage {
            zones.give_back(at);
        }
    }
}

/// Where zones of one drive are reset first, the other drives may be full of content, with no garbage to reclaim, while that drive has
/// room: parts go to it then.
#[test]
fn drives_full_of_content_give_parts_to_drives_with_room() {
    let (width, open, physical) = (2, 1, 15);
    let (all, logical) = (physical + open + 1, physical * 2 * 3 / width as u32);
    let mut without_garbage = 0;
    for seed in 0..40 {
        let (zones, mut parts, mut rng) =
            (zones(3, all - 1, 2, open + 1), Parts::new(), SplitMix64::new(seed));
        for _ in 0..40 {
            for id in 0..logical {
                if !parts.contains_key(&id) {
                    without_garbage += begin(&zones, &mut parts, id, width);
                    parts[&id].iter().for_each(|at| zones.end(ZoneId(id), *at, PART_ROWS));
                }
            }
            // Zones with a part on drive 2 first.
            let on_others = |places: &[Place]| places.iter().filter(|place| place.slot != Slot(2)).count();
            let mut order: Vec<(usize, u64, u32)> =
                parts.iter().map(|(id, places)| (on_others(places), rng.draw(), *id)).collect();
            order.sort_unstable();
            let most = 1 + rng.draw() as usize % order.len();
            order.iter().take(most).for_each(|(_, _, id)| reset(&zones, &mut parts, *id));
        }
    }
    assert!(without_garbage > 0, "no drive was full of content");
}

#[test]
fn a_part_leaves_for_the_drive_with_the_fewest_parts_of_those_without_its_zone() {
    let zones = zones(3, 4, 2, 9);
    let mut parts = Parts::new();
    for (id, slots) in [(0, vec![0, 1]), (1, vec![0, 1]), (2, vec![0, 2]), (3, vec![0])] {
        let slots: Vec<Slot> = slots.into_iter().map(Slot).collect();
        parts.insert(id, zones.take(ZoneId(id), &slots, Taker::NewPart, |_, _| true).expect("room"));
        if id != 3 {
            parts[&id].iter().for_each(|at| zones.end(ZoneId(id), *at, PART_ROWS));
        }
    }
    // Drive 0 has four parts, drive 1 two and drive 2 one. Zone 3 may be written.
    let surplus = |works: fn(Slot) -> bool, may: fn(ZoneId) -> bool| {
        let Surplus { part, to } = zones.surplus(Slot(0), may, works)?;
        Some((part.zone.0, part.tenants[0].0, to.0))
    };
    assert_eq!(surplus(|_| true, |_| true), Some((3, 0, 2)));
    assert_eq!(
        surplus(|_| true, |zone| zone != ZoneId(3)),
        None,
        "zone 2 has a part on drive 2, zone 3 is written"
    );
    assert_eq!(surplus(|slot| slot != Slot(2), |_| true), None, "drive 1 has parts of the zones 0 and 1");
    assert_eq!(surplus(|slot| slot != Slot(0), |_| true), None, "a missing drive cannot be read");
    reset(&zones, &mut parts, 0);
    reset(&zones, &mut parts, 2);
    assert_eq!(surplus(|_| true, |_| true), Some((3, 1, 2)), "drive 1 has one part less, drive 2 none");
    reset(&zones, &mut parts, 1);
    assert_eq!(surplus(|_| true, |_| true), None, "the drives differ by one part");
}

#[test]
fn room_is_made_on_as_many_drives_as_a_zone_lacks() {
    let drive = |room, parts| DriveRoom { room, empty: 0, parts, open: 0 };
    let rooms = [drive(None, 9), drive(Some(Room::Empty), 1), drive(None, 7), drive(None, 8)];
    let slots = |of: &[u32]| Some(of.iter().copied().map(Slot).collect::<Vec<_>>());
    assert_eq!(drives_to_free(2, &rooms, |_| true), slots(&[2]), "the drive with the fewest parts");
    assert_eq!(drives_to_free(3, &rooms, |_| true), slots(&[2, 3]));
    assert_eq!(drives_to_free(3, &rooms, |slot| slot != Slot(2)), slots(&[3, 0]));
    assert_eq!(drives_to_free(4, &rooms, |slot| slot != Slot(2)), None);
}

proptest! {
    /// With one physical zone for each zone that may be active and one more in reserve, beside the one that may wear out, the first
    /// write of a zone finds room after finitely many moves, in whatever order zones are filled and reset, on as many drives as a stripe
    /// has units or on more; and no drive has more active zones than the array allows, and one.
    #[test]
    fn a_first_write_finds_room_after_finitely_many_moves(
        shares in 2_u64..5,
        open in 1_usize..7,
        physical in 1_u32..12,
        (width, more) in prop_oneof![(Just(1_usize), Just(0_usize)), (1_usize..5, 0_usize..4)],
        steps in proptest::collection::vec((0_u8..40, 0_usize..1000), 1..800),
    ) {
        let count = width + more;
        let (all, logical) = (physical + open as u32 + 1, physical * shares as u32 * count as u32 / width as u32);
        // The helper adds the zone that is kept for moves.
        let zones = zones(count, all - 1, shares, open as u32 + 1);
        let mut parts = Parts::new();
        let mut opened: Vec<u32> = Vec::new();
        for (step, which) in steps {
            match step {
                0..=9 if !parts.is_empty() => {
                    // One zone, or all those with a part on a drive, so that the drives' content is uneven.
                    let is_on = |places: &Vec<Place>| places.iter().any(|place| place.slot.index() == which % count);
                    let ids: Vec<u32> = match step {
                        0 => parts.iter().filter(|(_, places)| is_on(places)).map(|(id, _)| *id).collect(),
                        _ => parts.keys().nth(which % parts.len()).copied().into_iter().collect(),
                    };
                    for id in ids {
                        opened.retain(|other| *other != id);
                        reset(&zones, &mut parts, id);
                    }
                }
                10..=19 if !opened.is_empty() => {
                    let id = opened.swap_remove(which % opened.len());
                    parts[&id].iter().for_each(|at| zones.end(ZoneId(id), *at, PART_ROWS));
                }
                _ => {
                    let free: Vec<u32> = (0..logical).filter(|id| !parts.contains_key(id)).collect();
                    if free.is_empty() || opened.len() == open {
                        continue;
                    }
                    let id = free[which % free.len()];
                    begin(&zones, &mut parts, id, width);
                    opened.push(id);
                }
            }
            for drive in &*zones.drives.lock() {
                let active = drive.used.values().filter(|used| !used.is_full).count();
                prop_assert!(active <= open + 1, "{drive:?}");
            }
        }
    }
}
