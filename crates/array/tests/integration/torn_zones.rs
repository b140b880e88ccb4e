//! Zones that a power cut leaves full and torn: data and parity of one stripe come from different moments.
#![allow(clippy::indexing_slicing, reason = "a test: a wrong index is a failure like any other")]

use std::sync::Arc;

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, data_slot, parity_slot};
use array::{Array, Layout, OpenOptions, Slot, Stripe};
use zoned::emu::{FaultOp, FaultSpec};
use zoned::{Action, Blocks, Buf, BufMut, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

const ZONES: u32 = 6;

/// Three drives with six zones, all full; the first `durable` blocks of each are flushed.
fn drives_with_full_zones(layout: Layout, durable: u64) -> ArrayFixture {
    let ground = ArrayFixture::new(layout.width, ZONES, layout.part_rows, layout.unit);
    let array = ground.open(OpenOptions::default());
    for (from, to) in [(0, durable), (durable, layout.capacity().0)] {
        (0..ZONES).for_each(|zone| ground.write(&array, ZoneId(zone), 1, from, to, 8));
        if from == 0 {
            ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
        }
    }
    ground
}

/// The state of each zone, and the content of all its blocks.
fn zone_contents(ground: &ArrayFixture, array: &Arc<Array>) -> Vec<(ZoneState, Vec<u8>)> {
    let device: &dyn ZonedDevice = &**array;
    let read = |zone: ZoneId| {
        let info = ground.zone(array, zone);
        let into = BufMut::zeroed(info.pointer.0 as usize * BLOCK_BYTES as usize);
        let found = ground.wait(device.read(device.geometry().start(zone), into)).expect("read");
        (info.state, found.to_vec())
    };
    (0..ZONES).map(ZoneId).map(read).collect()
}

/// The number of records of a kind in the log of each drive.
fn record_counts(ground: &ArrayFixture, kind: &str) -> Vec<usize> {
    let drives = ground.wait(array::dump(&ground.devices())).expect("dumped");
    drives.iter().map(|drive| drive.records.iter().filter(|record| record.kind == kind).count()).collect()
}

/// Asserts that another mount, and a mount without any one drive, shows the same content.
fn assert_content_stays(ground: &ArrayFixture, shown: &[(ZoneState, Vec<u8>)]) {
    let array = ground.open(OpenOptions::default());
    assert!(zone_contents(ground, &array) == shown, "after another mount");
    drop(array);
    for lost in 0..ground.emus.len() {
        let again = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
        let array = again.open_without(lost);
        assert!(zone_contents(&again, &array) == shown, "without drive {lost}");
    }
}

/// From one stripe on, all stripes of every zone are torn. The parity of the torn stripes is several times as
/// large as the logs.
#[test]
fn a_checkpoint_fits_however_many_stripes_of_full_zones_are_torn() {
    let layout = Layout { width: 3, unit: 1, part_rows: 48 };
    let (durable, first_torn) = (20, 12);
    let ground = drives_with_full_zones(layout, durable);
    (0..ZONES).for_each(|zone| ground.rewrite(1, ZoneId(zone), |row| row >= first_torn));
    let array = ground.open(OpenOptions::default());
    let shown = zone_contents(&ground, &array);
    (0..ZONES).for_each(|zone| ground.check(&array, ZoneId(zone), 1, durable));
    let end = layout.end(Stripe(first_torn)).0 as usize * BLOCK_BYTES as usize;
    for (state, blocks) in &shown {
        assert_eq!(*state, ZoneState::Full);
        assert!(blocks[end..].iter().all(|byte| *byte == 0), "what was never durable is not shown");
    }
    drop(array);
    assert_content_stays(&ground, &shown);
}

/// Torn stripes whose parity fits the logs keep their blocks: whether they were durable is unknown.
#[test]
fn a_torn_zone_keeps_its_blocks_if_the_logs_have_room() {
    let layout = Layout { width: 3, unit: 1, part_rows: 48 };
    let ground = drives_with_full_zones(layout, 20);
    // Only two stripes of the zone have mismatching parity.
    ground.rewrite(0, ZoneId(2), |row| {
        row > 12 && row < 19 && parity_slot(&layout, ZoneId(2), Stripe(row)) == Slot(0)
    });
    let array = ground.open(OpenOptions::default());
    (0..ZONES).for_each(|zone| ground.check(&array, ZoneId(zone), 1, layout.capacity().0));
    let shown = zone_contents(&ground, &array);
    drop(array);
    assert_content_stays(&ground, &shown);
}

/// The parity of one torn stripe of each zone exceeds the bound of relocated content: zones are rewritten.
#[test]
fn full_zones_are_rewritten_if_their_parity_does_not_fit_the_logs() {
    let layout = Layout { width: 3, unit: 5, part_rows: 93 };
    let drive = 0;
    let ground = drives_with_full_zones(layout, 20);
    for zone in (0..ZONES).map(ZoneId) {
        let torn = (4..).map(Stripe).find(|stripe| parity_slot(&layout, zone, *stripe) == Slot(drive));
        let first = layout.row(torn.expect("one in three"));
        ground.rewrite(drive as usize, zone, |row| (first..first + layout.unit).contains(&row));
    }
    let array = ground.open(OpenOptions::default());
    let swaps = record_counts(&ground, "swap");
    assert!(swaps[drive as usize] > 0, "{swaps:?}");
    (0..ZONES).for_each(|zone| ground.check(&array, ZoneId(zone), 1, layout.capacity().0));
    let shown = zone_contents(&ground, &array);
    drop(array);
    assert_content_stays(&ground, &shown);
    // Relocated content may take a quarter of a metadata zone, counted in units and their headers.
    let left = record_counts(&ground, "relocated")[drive as usize] as u64;
    assert!(left * (layout.unit + 1) <= layout.part_rows / 4, "{left} units");
}

/// A power cut fills three of four physical zones: the zone ends in the middle of a stripe of zeros. The pointer of a physical zone
/// that becomes read-only later does not tell which rows of parity were filled: the log must hold the parity of that stripe.
#[test]
fn the_last_stripe_of_a_full_zone_is_reconstructed_from_the_log() {
    let (layout, zone) = (Layout { width: 4, unit: 4, part_rows: 96 }, ZoneId(1));
    let (written, end) = (12, 20);
    for missing in [0, 1] {
        let ground = ArrayFixture::new(layout.width, ZONES, layout.part_rows, layout.unit);
        let array = ground.open(OpenOptions::default());
        ground.write(&array, zone, 1, 0, written, 4);
        ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
        drop(array);
        let part = ZoneId(zone.0 + METADATA_ZONES);
        let open = data_slot(&layout, zone, Stripe(1), 2);
        for (_, emu) in ground.emus.iter().enumerate().filter(|(slot, _)| *slot != open.index()) {
            let device = Arc::clone(emu) as Arc<dyn ZonedDevice>;
            ground.wait(device.zone(part, Action::Finish)).expect("finished");
        }
        drop(ground.open(OpenOptions::default()));
        ground.emus[parity_slot(&layout, zone, Stripe(1)).index()].wear(part, ZoneState::ReadOnly);
        let array = ground.open_without(data_slot(&layout, zone, Stripe(1), missing).index());
        ground.check(&array, zone, 1, written);
        let device: &dyn ZonedDevice = &*array;
        let start = device.geometry().start(zone).plus(Blocks(written));
        let into = BufMut::zeroed((end - written) as usize * BLOCK_BYTES as usize);
        let found = ground.wait(device.read(start, into)).expect("one drive is missing");
        assert!(found.iter().all(|byte| *byte == 0));
    }
}

/// A block is lost if its drive's part of the zone is offline and another drive cannot read the parity; the
/// zone itself has not failed.
#[test]
fn a_block_that_cannot_be_reconstructed_is_a_media_error() {
    let (layout, zone) = (Layout { width: 4, unit: 4, part_rows: 96 }, ZoneId(1));
    let ground = ArrayFixture::new(4, ZONES, layout.part_rows, layout.unit);
    let array = ground.open(OpenOptions::default());
    ground.write(&array, zone, 1, 0, 48, 4);
    let device: &dyn ZonedDevice = &*array;
    ground.wait(device.flush()).expect("flushed");
    let (offline, unreadable) =
        (data_slot(&layout, zone, Stripe(0), 1), parity_slot(&layout, zone, Stripe(0)));
    let part = ZoneId(zone.0 + METADATA_ZONES);
    ground.emus[offline.index()].wear(part, ZoneState::Offline);
    ground.emus[unreadable.index()].fail(FaultSpec::all(FaultOp::Read).in_zone(part));
    let start = device.geometry().start(zone);
    let read = |from: u64, to: u64| {
        let into = BufMut::zeroed((to - from) as usize * BLOCK_BYTES as usize);
        ground.wait(device.read(start.plus(Blocks(from)), into))
    };
    // The lost block is read alone, and as a part of a longer read.
    for (from, to) in [(4, 5), (0, 8)] {
        let error = read(from, to).expect_err("two drives lack their parts");
        assert_eq!(error.kind(), ErrorKind::Media, "{error}");
        assert!(error.to_string().contains("offline") && error.to_string().contains("medium"), "{error}");
    }
    assert!(*read(0, 4).expect("another drive's") == *crate::ground::blocks(1, 0, 4));
    ground.emus[unreadable.index()].clear_faults();
    assert!(*read(0, 48).expect("it can be read again") == *crate::ground::blocks(1, 0, 48));
}

/// A stripe's parity unit begins with a stale row, and a power cut tears the write of the rows above, which is submitted with the stripe's
/// last row. The rows that landed are never written again.
#[test]
fn parity_rows_above_a_stale_row_that_landed_are_not_written_again() {
    let (layout, zone) = (Layout { width: 4, unit: 4, part_rows: 96 }, ZoneId(1));
    let ground = ArrayFixture::new(layout.width, ZONES, layout.part_rows, layout.unit);
    let write_raw = |slot: Slot, row: u64, rows: usize| {
        let device = Arc::clone(&ground.emus[slot.index()]) as Arc<dyn ZonedDevice>;
        let at = device.geometry().start(ZoneId(zone.0 + METADATA_ZONES)).plus(Blocks(row));
        let data = Buf::copy_from(&vec![7; rows * BLOCK_BYTES as usize]);
        ground.wait(device.write(at, data, Durability::Durable)).expect("written");
    };
    let array = ground.open(OpenOptions::default());
    ground.write(&array, zone, 1, 0, 8, 4);
    ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
    drop(array);
    let parity = parity_slot(&layout, zone, Stripe(0));
    write_raw(parity, 0, 1);
    drop(ground.open(OpenOptions::default()));
    write_raw(data_slot(&layout, zone, Stripe(0), 2), 0, 3);
    write_raw(parity, 1, 1);
    let array = ground.open(OpenOptions::default());
    let device: &dyn ZonedDevice = &*array;
    let at = device.geometry().start(zone).plus(Blocks(11));
    let data = Buf::copy_from(&vec![9; BLOCK_BYTES as usize]);
    ground.wait(device.write(at, data, Durability::Durable)).expect("the stripe becomes whole");
    ground.check(&array, zone, 1, 8);
}
