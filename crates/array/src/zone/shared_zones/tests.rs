//! Tests of `zone::shared_zones`.

use proptest::prelude::*;

use super::*;

const PART_ROWS: u64 = 10;

/// Drives of `zones` empty physical zones each, which hold `shares` parts and have no more than `max_active` active zones.
fn zones(drives: usize, zones: u32, shares: u64, max_active: u32) -> SharedZones {
    let drive = SharedZonesOfDrive {
        empty: (3..3 + zones).map(ZoneId).collect(),
        max_active: Some(max_active),
        ..SharedZonesOfDrive::default()
    };
    SharedZones::new(shares * PART_ROWS, PART_ROWS, vec![drive; drives])
}

/// The places of the next part of `id` on drive 0.
fn take(zones: &SharedZones, id: u32) -> Result<Place, Slot> {
    zones.take(ZoneId(id), &[Slot(0)], |_, _| true).map(|places| places[0])
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
    assert_eq!(zones.settle(ZoneId(2), place(4, 10), 7), Some(place(4, 7)), "the drive knows better");
    assert_eq!(zones.leave(ZoneId(1), place(4, 0)), Left::InUse);
    assert_eq!(zones.leave(ZoneId(2), place(4, 7)), Left::Garbage);
    zones.give_back(place(4, 0));
    assert_eq!(take(&zones, 1), Ok(place(4, 0)));
}

#[test]
fn a_physical_zone_without_room_behind_its_last_part_is_spent() {
    let zones = zones(1, 2, 2, 9);
    assert_eq!(take(&zones, 0), Ok(place(3, 0)));
    zones.end(ZoneId(0), place(3, 0), PART_ROWS);
    assert_eq!(take(&zones, 1), Ok(place(3, 10)));
    // Zone 1 is reset before it is full: nothing fits behind its rows.
    assert_eq!(zones.leave(ZoneId(1), place(3, 10)), Left::Spent);
    assert_eq!(take(&zones, 1), Ok(place(4, 0)));
    zones.end(ZoneId(1), place(4, 0), 3);
    assert_eq!(take(&zones, 2), Ok(place(4, 3)), "behind the rows of a zone that was finished early");
    assert_eq!(zones.settle(ZoneId(2), place(4, 3), 11), None, "no part fits behind row 11");
    assert_eq!(zones.cancel(ZoneId(2), place(4, 3)), Left::Spent);
    assert_eq!(take(&zones, 2), Err(Slot(0)));
    assert_eq!(zones.leave(ZoneId(0), place(3, 0)), Left::Garbage);
    zones.give_back(place(3, 0));
    assert_eq!(take(&zones, 2), Ok(place(3, 0)));
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
    let taken = zones.take(ZoneId(1), &[Slot(0)], |_, id| id != ZoneId(0));
    assert_eq!(taken, Ok(vec![place(4, 0)]));
}

proptest! {
    /// Logical zones that are opened and reset in turn always find room, if two physical zones more are in reserve than zones are
    /// open at a time; and no drive has more active zones than the array allows, and one.
    #[test]
    fn zones_that_are_reset_in_the_order_of_their_opening_find_room(
        shares in 2_u64..5, open in 1_usize..7, physical in 1_u32..12, steps in proptest::collection::vec(0_usize..100, 1..600),
    ) {
        let reserve = open as u32 + 2;
        let logical = (physical * shares as u32) as usize;
        let zones = zones(1, physical + reserve, shares, open as u32 + 1);
        let (mut next, mut opened): (u32, Vec<(u32, Place)>) = (0, Vec::new());
        let mut valid: std::collections::VecDeque<(u32, Place)> = std::collections::VecDeque::new();
        for step in steps {
            if opened.len() == open {
                let (id, at) = opened.remove(step % open);
                zones.end(ZoneId(id), at, PART_ROWS);
            }
            while valid.len() >= logical {
                let (id, at) = valid.pop_front().expect("there are some");
                opened.retain(|(other, _)| *other != id);
                if zones.leave(ZoneId(id), at) == Left::Garbage {
                    zones.give_back(at);
                }
            }
            let id = next % (2 * logical as u32);
            next += 1;
            let at = take(&zones, id);
            prop_assert!(at.is_ok(), "zone {id}: {:?}", zones.drives.lock());
            opened.push((id, at.unwrap()));
            valid.push_back((id, at.unwrap()));
            let active = zones.drives.lock()[0].used.values().filter(|used| !used.is_full).count();
            prop_assert!(active <= open + 1);
        }
    }
}
