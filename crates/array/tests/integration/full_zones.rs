//! Full zones whose content ends inside a stripe: the parity of that stripe is in its place, and takes no room of the logs.

use std::sync::Arc;

use crate::ground::{ArrayFixture, METADATA_ZONES, data_slot, parity_slot};
use array::{Array, Layout, OpenOptions, Slot};
use zoned::emu::{Emu, Latency};
use zoned::{Action, Blocks, Bytes, ZoneId, ZoneState, ZonedDevice};

const LAYOUT: Layout = Layout { width: 4, parities: 1, unit: 4, part_rows: 96 };
/// More zones than a metadata zone holds units of parity of, on each of four drives: 19.
const ZONES: u32 = 90;
/// Ends of zones inside a stripe of 12 blocks: in its first and in its last unit, and behind a whole stripe.
const ENDS: [u64; 4] = [3, 11, 14, 22];

fn end_of(zone: ZoneId) -> u64 {
    ENDS[zone.index() % ENDS.len()]
}

fn zones() -> impl Iterator<Item = ZoneId> {
    (0..ZONES).map(ZoneId)
}

fn drives() -> ArrayFixture {
    ArrayFixture::new(LAYOUT.width, ZONES, LAYOUT.part_rows, LAYOUT.unit)
}

fn write_and_finish(ground: &ArrayFixture, array: &Arc<Array>, zones: impl Iterator<Item = ZoneId>) {
    for zone in zones {
        ground.write(array, zone, 1, 0, end_of(zone), 3);
        ground.wait((&**array as &dyn ZonedDevice).zone(zone, Action::Finish)).expect("finished");
    }
}

/// Writes zones, and fills their open physical zones as a power cut may, but for one: the drive with a zone's next block shows where
/// the content ends.
fn fill_by_power_cut(ground: &ArrayFixture, zones: &[ZoneId]) {
    let array = ground.open(OpenOptions::default());
    zones.iter().for_each(|zone| ground.write(&array, *zone, 1, 0, end_of(*zone), 3));
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    drop(array);
    for zone in zones {
        let next = LAYOUT.locate(Blocks(end_of(*zone)));
        let open = data_slot(&LAYOUT, *zone, next.stripe, next.index);
        for (_, device) in ground.devices().iter().enumerate().filter(|(slot, _)| *slot != open.index()) {
            let part = ZoneId(zone.0 + METADATA_ZONES);
            ground.wait(device.zone(part, Action::Finish)).expect("finished");
        }
    }
}

/// Asserts the state and the content of all zones, with all drives and without any one drive.
fn assert_all_content(ground: &ArrayFixture) {
    let check = |ground: &ArrayFixture, array: &Arc<Array>| {
        for zone in zones() {
            assert_eq!(ground.zone(array, zone).state, ZoneState::Full);
            ground.check(array, zone, 1, end_of(zone));
        }
    };
    check(ground, &ground.open(OpenOptions::default()));
    for lost in 0..ground.emus.len() {
        let again = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
        check(&again, &again.open_without(lost));
        // The first mount without the drive computed parity, and the second mount takes that parity.
        check(&again, &again.open_without(lost));
    }
}

/// The number of records of a kind in all logs.
fn records(ground: &ArrayFixture, kind: &str) -> usize {
    let drives = ground.wait(array::dump(&ground.devices())).expect("dumped");
    drives.iter().flat_map(|drive| &drive.records).filter(|record| record.kind == kind).count()
}

#[test]
fn any_number_of_zones_may_be_finished_inside_a_stripe() {
    let ground = drives();
    let array = ground.open(OpenOptions::default());
    write_and_finish(&ground, &array, zones());
    drop(array);
    for _ in 0..2 {
        drop(ground.open(OpenOptions::default()));
        assert_eq!((records(&ground, "relocated"), records(&ground, "swap")), (0, 0));
    }
    assert_all_content(&ground);
}

/// Power cuts fill open zones of drives: no parity is in place there, and each mount rewrites what exceeds the logs' share, once.
#[test]
fn any_number_of_zones_may_be_filled_by_power_cuts_inside_a_stripe() {
    let ground = drives();
    // Relocated content takes a quarter of a metadata zone at most: four units and their headers on each drive.
    let most = LAYOUT.width as usize * 4;
    let all: Vec<ZoneId> = zones().collect();
    let mut rewritten = 0;
    for filled in all.chunks(6) {
        fill_by_power_cut(&ground, filled);
        drop(ground.open(OpenOptions::default()));
        rewritten += records(&ground, "swap");
        drop(ground.open(OpenOptions::default()));
        assert_eq!(records(&ground, "swap"), 0, "no zone is rewritten again");
        assert!(records(&ground, "relocated") <= most);
    }
    assert!(rewritten > 0, "zones are rewritten");
    assert_all_content(&ground);
}

#[test]
fn a_new_drive_gets_the_parity_of_finished_zones_in_place() {
    let ground = drives();
    let array = ground.open(OpenOptions::default());
    write_and_finish(&ground, &array, zones());
    drop(array);
    let array = ground.open_without(2);
    let new = Emu::from_media(drives().emus[0].media(), "new", Latency::NONE, Arc::clone(&ground.driver));
    ground.wait(array.replace(Slot(2), Arc::clone(&new) as Arc<dyn ZonedDevice>)).expect("replaced");
    drop(array);
    let mut emus = ground.emus.clone();
    emus[2] = new;
    let ground = ArrayFixture { driver: Arc::clone(&ground.driver), emus };
    assert_all_content(&ground);
    assert_eq!(records(&ground, "relocated"), 0);
}

/// A zone is finished with stale rows and then exceeds the logs' share: of the part that is rewritten, the parity of the zone's last
/// stripe is in place and in no log.
#[test]
fn a_zone_rewrite_keeps_the_parity_of_the_last_stripe() {
    let (zone, durable, end) = (ZoneId(ZONES - 1), Blocks(18), Blocks(76));
    let stripe = LAYOUT.stripe_of(durable);
    let slot = data_slot(&LAYOUT, zone, stripe, 2);
    assert_eq!(slot, parity_slot(&LAYOUT, zone, LAYOUT.stripe_of(end)));
    let ground = drives();
    let array = ground.open(OpenOptions::default());
    ground.write(&array, zone, 1, 0, durable.0, 3);
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    drop(array);
    ground.leave_behind(slot.index(), zone, 12);
    let array = ground.open(OpenOptions { rebuild_above: Bytes(1 << 20), ..OpenOptions::default() });
    ground.write(&array, zone, 1, durable.0, end.0, 5);
    ground.wait((&*array as &dyn ZonedDevice).zone(zone, Action::Finish)).expect("finished");
    drop(array);
    let others: Vec<ZoneId> = (0..12).map(ZoneId).collect();
    for some in others.chunks(6) {
        fill_by_power_cut(&ground, some);
    }
    let check = |ground: &ArrayFixture, array: &Arc<Array>| {
        ground.check(array, zone, 1, end.0);
        others.iter().for_each(|zone| ground.check(array, *zone, 1, end_of(*zone)));
    };
    let options = || OpenOptions { rebuild_above: Bytes(1 << 20), ..OpenOptions::default() };
    check(&ground, &ground.open(options()));
    let drives = ground.wait(array::dump(&ground.devices())).expect("dumped");
    let rewritten = drives[slot.index()].records.iter().filter(|record| record.kind == "swap");
    assert!(rewritten.count() > 0, "the zone with stale rows is rewritten first");
    for lost in 0..ground.emus.len() {
        let again = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
        check(&again, &again.open_without(lost));
    }
}
