//! Zones with blocks above their pointer after a mount: their content is relocated, or the zone is rewritten.

use std::sync::Arc;

use crate::PLACEMENT;
use crate::ground::{ArrayFixture, parity_slot};
use array::{Layout, OpenOptions, Placement, Role, Slot, Stripe};
use units::{Driver, VirtualDriver};
use zoned::emu::{Emu, FaultOp, FaultSpec, Latency};
use zoned::{Action, Bytes, ZoneId, ZoneState, ZonedDevice};

const ZONE: ZoneId = ZoneId(2);
/// Blocks that are written durably before the unacknowledged ones: a stripe and a half, in units of 4 blocks
/// on 4 drives.
const DURABLE_BLOCKS: u64 = 18;
const ZONE_BLOCKS: u64 = 128;

/// An array with 7 unacknowledged blocks on drives 0 and 3, across the end of a stripe unit: in places of parity and of data.
fn array_with_stale_rows() -> ArrayFixture {
    let ground = ArrayFixture::new(4, 5, ZONE_BLOCKS, 4);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, ZONE, 1, 0, DURABLE_BLOCKS, 3);
    drop(array);
    ground.leave_behind(0, ZONE, 7);
    ground.leave_behind(3, ZONE, 7);
    ground
}

fn options_without_rewrite() -> OpenOptions {
    OpenOptions { rebuild_above: Bytes(1 << 20), ..OpenOptions::default() }
}

#[test]
fn a_zone_with_stale_rows_takes_writes() {
    let ground = array_with_stale_rows();
    let array = ground.open(options_without_rewrite());
    let info = ground.zone(&array, ZONE);
    assert_eq!((info.state, info.pointer.0), (ZoneState::Closed, DURABLE_BLOCKS));
    ground.write(&array, ZONE, 1, DURABLE_BLOCKS, 70, 5);
    let counters = array.counters();
    assert!(counters.relocations >= 5, "{counters:?}");
    ground.check(&array, ZONE, 1, 70);
    ground.write(&array, ZONE, 1, 70, 3 * ZONE_BLOCKS, 11);
    assert_eq!(ground.zone(&array, ZONE).state, ZoneState::Full);
    ground.check(&array, ZONE, 1, 3 * ZONE_BLOCKS);
    // Only content of stale rows is written to the logs.
    assert_eq!(array.counters().relocations, counters.relocations);
}

#[test]
fn relocated_units_survive_restarts_and_the_loss_of_any_drive() {
    for to in [DURABLE_BLOCKS + 1, 25, 40, 70, 3 * ZONE_BLOCKS] {
        for lost in 0..4 {
            let ground = array_with_stale_rows();
            let array = ground.open(options_without_rewrite());
            ground.write(&array, ZONE, 1, DURABLE_BLOCKS, to, 2);
            drop(array);
            for _ in 0..2 {
                let array = ground.open(options_without_rewrite());
                ground.check(&array, ZONE, 1, to);
                assert_eq!(ground.zone(&array, ZONE).pointer.0, to);
            }
            let array = ground.open_without(lost);
            ground.check(&array, ZONE, 1, to);
            if to < 80 {
                ground.write(&array, ZONE, 1, to, 80, 3);
                ground.check(&array, ZONE, 1, 80);
            }
        }
    }
}

#[test]
fn a_drive_that_fails_beside_relocated_units_is_reconstructed_and_replaced() {
    let ground = array_with_stale_rows();
    let array = ground.open(options_without_rewrite());
    ground.write(&array, ZONE, 1, DURABLE_BLOCKS, 30, 2);
    let lost = Slot(2);
    ground.wait(array.fail(lost)).expect("failed");
    ground.check(&array, ZONE, 1, 30);
    let new = ArrayFixture::new(4, 5, ZONE_BLOCKS, 4).emus[0].media();
    let new = Emu::from_media(new, "new", Latency::NONE, Arc::clone(&ground.driver));
    ground.wait(array.replace(lost, new)).expect("replaced");
    ground.write(&array, ZONE, 1, 30, 90, 4);
    ground.check(&array, ZONE, 1, 90);
}

/// With the fixed placement a mount rewrites the zone's parts in place; with stored maps they move once the array is open.
#[test]
fn a_zone_with_too_many_stale_rows_has_its_content_in_place_again() {
    let ground = array_with_stale_rows();
    let array = ground.open(OpenOptions { rebuild_above: Bytes(0), ..OpenOptions::default() });
    ground.settle();
    let records: Vec<String> = ground
        .wait(array::dump(&ground.devices()))
        .expect("dumped")
        .into_iter()
        .flat_map(|drive| drive.records)
        .filter(|record| record.kind == "swap" || record.kind == "hidden")
        .map(|record| format!("{} {}", record.kind, record.text))
        .collect();
    let swaps = records.iter().filter(|text| text.starts_with("swap")).count();
    let rewritten = records.iter().filter(|text| text.contains("rebuilt")).count();
    let is_in_first_place = |slot: &Slot| {
        let part = (0..4).filter_map(|role| array.place(ZONE, Role(role))).find(|(of, _)| of == slot);
        part.expect("a part").1 == ZoneId(ZONE.0 + crate::ground::METADATA_ZONES)
    };
    match PLACEMENT {
        Placement::Fixed => assert_eq!((swaps, rewritten), (2, 2), "{records:?}"),
        Placement::Stored => {
            assert_eq!((swaps, rewritten), (0, 0), "{records:?}");
            let left: Vec<Slot> = (0..4).map(Slot).filter(|slot| !is_in_first_place(slot)).collect();
            assert_eq!(left, [Slot(0), Slot(3)], "the drives with stale rows");
        }
    }
    assert_eq!(ground.zone(&array, ZONE).pointer.0, DURABLE_BLOCKS);
    ground.write(&array, ZONE, 1, DURABLE_BLOCKS, 100, 5);
    assert_eq!(array.counters().relocations, 0);
    drop(array);
    let array = ground.open_without(3);
    ground.check(&array, ZONE, 1, 100);
}

#[test]
fn zones_whose_relocated_content_does_not_fit_the_logs_are_rewritten() {
    let ground = array_with_stale_rows();
    // The logs may hold relocated units in a quarter of a metadata zone: 32 blocks in this array.
    for zone in [1, 3].map(ZoneId) {
        let array = ground.open(options_without_rewrite());
        ground.write(&array, zone, 1, 0, DURABLE_BLOCKS, 3);
        drop(array);
        ground.leave_behind(0, zone, 9);
    }
    let array = ground.open(options_without_rewrite());
    let drives = ground.wait(array::dump(&ground.devices())).expect("dumped");
    let of = |kind: &str| drives[0].records.iter().filter(|record| record.kind == kind).count();
    assert!(of("swap") >= 1 && of("hidden") > of("swap"), "{} swaps, {} hidden", of("swap"), of("hidden"));
    for zone in (1..4).map(ZoneId) {
        assert_eq!(ground.zone(&array, zone).pointer.0, DURABLE_BLOCKS);
        ground.write(&array, zone, 1, DURABLE_BLOCKS, 60, 7);
        ground.check(&array, zone, 1, 60);
    }
    drop(array);
    let array = ground.open(options_without_rewrite());
    (1..4).map(ZoneId).for_each(|zone| ground.check(&array, zone, 1, 60));
}

#[test]
fn a_log_without_room_for_the_records_of_a_zone_rewrite_rolls_first() {
    // Twenty zones with stale rows, and with all their partial parity in the log of drive 0.
    let (zones, capacity) = (20, if PLACEMENT == Placement::Stored { 110 } else { 94 });
    let ground = ArrayFixture::with_open(4, zones, capacity, 1, zones + 2);
    let layout = Layout { width: 4, parities: 1, unit: 1, part_rows: capacity };
    let parity_on_0 =
        |zone| (1..).map(Stripe).find(|stripe| parity_slot(&layout, ZoneId(zone), *stripe) == Slot(0));
    let before = |zone| layout.start(parity_on_0(zone).expect("one in four")).0 + 1;
    let array = ground.open(options_without_rewrite());
    (0..zones).for_each(|zone| ground.write(&array, ZoneId(zone), 1, 0, before(zone), 3));
    drop(array);
    (0..zones).for_each(|zone| ground.leave_behind(0, ZoneId(zone), 2));
    let array = ground.open(OpenOptions { rebuild_above: Bytes(0), ..OpenOptions::default() });
    (0..zones).for_each(|zone| {
        ground.check(&array, ZoneId(zone), 1, before(zone));
        ground.write(&array, ZoneId(zone), 1, before(zone), 40, 3);
    });
    drop(array);
    let array = ground.open_without(0);
    (0..zones).for_each(|zone| ground.check(&array, ZoneId(zone), 1, 40));
}

/// The log holds relocated parity of a stripe whose blocks did not all land before the power cut: the parity matches neither
/// the zone's content after the mount nor later writes.
#[test]
fn relocated_parity_of_blocks_that_never_landed_is_forgotten() {
    for lost in 0..4 {
        let mut ground = array_with_stale_rows();
        let array = ground.open(options_without_rewrite());
        // Drive 2's place of the stripe's first blocks is above the pointer: these blocks stay in the drive's
        // cache. The place of the parity is stale.
        let stays = ground.emus[2].media();
        ground.write(&array, ZONE, 9, DURABLE_BLOCKS, 24, 6);
        drop(array);
        let driver: Arc<dyn Driver> = VirtualDriver::new(2);
        let again = |(n, emu): (usize, &Arc<Emu>)| {
            let media = if n == 2 { stays.clone() } else { emu.media() };
            Emu::from_media(media, &format!("emu:{n}"), Latency::NONE, Arc::clone(&driver))
        };
        ground.emus = ground.emus.iter().enumerate().map(again).collect();
        ground.driver = driver;
        let array = ground.open(options_without_rewrite());
        assert_eq!(ground.zone(&array, ZONE).pointer.0, DURABLE_BLOCKS);
        ground.wait(array.fail(Slot(lost))).expect("failed");
        ground.check(&array, ZONE, 1, DURABLE_BLOCKS);
        ground.write(&array, ZONE, 1, DURABLE_BLOCKS, 21, 1);
        ground.check(&array, ZONE, 1, 21);
        ground.write(&array, ZONE, 1, 21, 60, 7);
        ground.check(&array, ZONE, 1, 60);
        drop(array);
        let array = ground.open_without(lost as usize);
        ground.check(&array, ZONE, 1, 60);
    }
}

#[test]
fn a_reset_forgets_relocated_content() {
    let ground = array_with_stale_rows();
    let array = ground.open(options_without_rewrite());
    ground.write(&array, ZONE, 1, DURABLE_BLOCKS, 40, 3);
    let device: &dyn ZonedDevice = &*array;
    ground.wait(device.zone(ZONE, Action::Reset)).expect("reset");
    ground.write(&array, ZONE, 2, 0, 90, 7);
    ground.check(&array, ZONE, 2, 90);
    drop(array);
    let array = ground.open(options_without_rewrite());
    ground.check(&array, ZONE, 2, 90);
}

#[test]
fn a_finish_over_stale_rows_keeps_the_content() {
    for lost in 0..4 {
        let ground = array_with_stale_rows();
        let array = ground.open(options_without_rewrite());
        ground.write(&array, ZONE, 1, DURABLE_BLOCKS, DURABLE_BLOCKS + 3, 3);
        let device: &dyn ZonedDevice = &*array;
        ground.wait(device.zone(ZONE, Action::Finish)).expect("finished");
        ground.check(&array, ZONE, 1, DURABLE_BLOCKS + 3);
        drop(array);
        let array = ground.open_without(lost);
        assert_eq!(ground.zone(&array, ZONE).state, ZoneState::Full);
        ground.check(&array, ZONE, 1, DURABLE_BLOCKS + 3);
    }
}

/// Parity that a resync recomputes is relocated too, without stale rows: it counts towards the bound, and a zone rewrite puts it
/// in its place if the logs have no room.
#[test]
fn relocated_parity_without_stale_rows_is_bounded_too() {
    let (drive, zones, end) = (1, 6, 100);
    let layout = Layout { width: 4, parities: 1, unit: 4, part_rows: ZONE_BLOCKS };
    let ground = ArrayFixture::new(4, zones, ZONE_BLOCKS, 4);
    let array = ground.open(OpenOptions::default());
    (0..zones).for_each(|zone| ground.write(&array, ZoneId(zone), 1, 0, end, 12));
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    drop(array);
    // At least two stripes of each zone have their parity on drive 0: the logs have no room for any relocated
    // parity.
    for zone in (0..zones).map(ZoneId) {
        let rows = layout.stripe_of(zoned::Blocks(end)).0 * layout.unit;
        ground.rewrite(drive, zone, |row| {
            row < rows && parity_slot(&layout, zone, Stripe(row / layout.unit)) == Slot(drive as u32)
        });
    }
    for (options, most) in [
        (options_without_rewrite(), 32),
        (OpenOptions { rebuild_above: Bytes(0), ..options_without_rewrite() }, 0),
    ] {
        let array = ground.open(options);
        ground.settle();
        let drives = ground.wait(array::dump(&ground.devices())).expect("dumped");
        let of =
            |kind: &str| drives[drive].records.iter().filter(|record| record.kind == kind).count() as u64;
        // Parts of zones with stored maps move instead, once what is relocated fits the logs.
        let is_rewritten = most > 0 || PLACEMENT == Placement::Fixed;
        assert_eq!(of("swap") >= 1, is_rewritten, "{} swaps", of("swap"));
        // Records from before the zone's rewrite are still in the log.
        drop(array);
        let array = ground.open(options_without_rewrite());
        let drives = ground.wait(array::dump(&ground.devices())).expect("dumped");
        let left = drives[drive].records.iter().filter(|record| record.kind == "relocated").count();
        assert!(left as u64 * (layout.unit + 1) <= most, "{left} units");
        (0..zones).for_each(|zone| ground.check(&array, ZoneId(zone), 1, end));
        drop(array);
    }
    for lost in 0..4 {
        let emus = ground
            .emus
            .iter()
            .map(|emu| Emu::from_media(emu.media(), "again", Latency::NONE, Arc::clone(&ground.driver)));
        let again = ArrayFixture { driver: Arc::clone(&ground.driver), emus: emus.collect() };
        let array = again.open_without(lost);
        (0..zones).for_each(|zone| again.check(&array, ZoneId(zone), 1, end));
    }
}

/// Unreadable rows of a part do not stop a mount: the drive's part with such rows is not rewritten, and its
/// relocated content stays in the log.
#[test]
fn a_part_that_cannot_be_read_is_not_rewritten_and_stays_readable_elsewhere() {
    for slot in [0, 3] {
        let ground = array_with_stale_rows();
        let physical = ZoneId(ZONE.0 + crate::ground::METADATA_ZONES);
        ground.emus[slot].fail(FaultSpec::all(FaultOp::Read).in_zone(physical));
        let rebuild = || OpenOptions { rebuild_above: Bytes(0), ..OpenOptions::default() };
        let array = ground.open(rebuild());
        ground.check(&array, ZONE, 1, DURABLE_BLOCKS);
        ground.write(&array, ZONE, 1, DURABLE_BLOCKS, 60, 5);
        ground.check(&array, ZONE, 1, 60);
        drop(array);
        ground.emus[slot].clear_faults();
        let array = ground.open(rebuild());
        ground.check(&array, ZONE, 1, 60);
        drop(array);
        let array = ground.open_without(3 - slot);
        ground.check(&array, ZONE, 1, 60);
    }
}
