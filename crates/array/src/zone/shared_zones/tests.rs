//! Tests of `zone::shared_zones`.

use proptest::prelude::*;

use super::*;

const PART_ROWS: u64 = 10;

/// Drives of `zones` empty physical zones each and one that is kept for moves. A physical zone holds `shares` parts, and no more than
/// `max_active` may be active.
fn zones(drives: usize, zones: u32, shares: u64, max_active: u32) -> SharedZones {
    let drive = SharedZonesOfDrive {
        empty: (3..4 + zones).map(ZoneId).collect(),
        max_active: Some(max_active),
        ..SharedZonesOfDrive::default()
    };
    SharedZones::new(shares * PART_ROWS, PART_ROWS, vec![drive; drives])
}

/// The places of the next part of `id` on drive 0.
fn take(zones: &SharedZones, id: u32) -> Result<Place, Slot> {
    zones.take(ZoneId(id), &[Slot(0)], Taker::FirstWrite, |_, _| true).map(|places| places[0])
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
    let taken = zones.take(ZoneId(1), &[Slot(0)], Taker::FirstWrite, |_, id| id != ZoneId(0));
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

/// Moves the parts out of the next victim. False if there is none.
fn reclaim(zones: &SharedZones, parts: &mut std::collections::BTreeMap<u32, Place>) -> bool {
    let Some(victim) = zones.victim(Slot(0), 0, |_| true) else { return false };
    for id in &victim.tenants {
        let taken = zones.take(*id, &[Slot(0)], Taker::Move, |_, _| true);
        let to = taken.expect("a part that moves finds room")[0];
        let from = parts.insert(id.0, to).expect("a part with a place");
        zones.end(*id, to, PART_ROWS);
        if zones.leave(*id, from) == Left::Garbage {
            zones.give_back(from);
        }
    }
    assert!(zones.drives.lock()[0].empty.contains(&victim.zone), "the physical zone is free");
    true
}

proptest! {
    /// With one physical zone for each zone that may be active and one more in reserve, beside the one that may wear out, the first
    /// write of a zone finds room after a few reclaims, in whatever order zones are filled and reset; and no drive has more active zones
    /// than the array allows, and one.
    #[test]
    fn a_first_write_finds_room_after_finitely_many_moves(
        shares in 2_u64..5, open in 1_usize..7, physical in 1_u32..12, steps in proptest::collection::vec((0_u8..3, 0_usize..1000), 1..800),
    ) {
        let (all, logical) = (physical + open as u32 + 1, physical * shares as u32);
        // The helper adds the zone that is kept for moves.
        let zones = zones(1, all - 1, shares, open as u32 + 1);
        let mut parts: std::collections::BTreeMap<u32, Place> = Default::default();
        let mut opened: Vec<u32> = Vec::new();
        for (step, which) in steps {
            match step {
                0 if !parts.is_empty() => {
                    let id = *parts.keys().nth(which % parts.len()).expect("a part");
                    let at = parts.remove(&id).expect("a part");
                    opened.retain(|other| *other != id);
                    if zones.leave(ZoneId(id), at) == Left::Garbage {
                        zones.give_back(at);
                    }
                }
                1 if !opened.is_empty() => {
                    let id = opened.swap_remove(which % opened.len());
                    zones.end(ZoneId(id), parts[&id], PART_ROWS);
                }
                _ => {
                    let free: Vec<u32> = (0..logical).filter(|id| !parts.contains_key(id)).collect();
                    if free.is_empty() || opened.len() == open {
                        continue;
                    }
                    let (id, mut reclaims) = (free[which % free.len()], 0);
                    let at = loop {
                        match take(&zones, id) {
                            Ok(at) => break at,
                            Err(_) => prop_assert!(reclaim(&zones, &mut parts), "zone {id}: {:?}", zones.drives.lock()),
                        }
                        reclaims += 1;
                        prop_assert!(reclaims <= all, "zone {id}: {:?}", zones.drives.lock());
                    };
                    parts.insert(id, at);
                    opened.push(id);
                }
            }
            let active = zones.drives.lock()[0].used.values().filter(|used| !used.is_full).count();
            prop_assert!(active <= open + 1, "{:?}", zones.drives.lock());
        }
    }
}
