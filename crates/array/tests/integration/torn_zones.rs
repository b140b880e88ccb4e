//! Zones that a power cut leaves full and torn: data and parity of one stripe come from different moments.
#![allow(clippy::indexing_slicing, reason = "a test: a wrong index is a failure like any other")]

use std::sync::Arc;

use crate::ground::{ArrayFixture, BLOCK_BYTES, METADATA_ZONES, data_slot, parity_slot};
use array::{Array, CreateOptions, Layout, OpenOptions, Rotation, Slot, Stripe};
use zoned::emu::{FaultOp, FaultSpec};
use zoned::{Action, Blocks, Buf, BufMut, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

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

/// Asserts that a mount without any one drive, and another mount, shows the same content.
fn assert_content_stays(ground: &ArrayFixture, shown: &[(ZoneState, Vec<u8>)]) {
    // A mount with all drives resyncs parity: those without a drive come before it, on copies of the drives.
    for when in ["at once", "after another mount"] {
        for lost in 0..ground.emus.len() {
            let again = ArrayFixture::of(ground.emus.iter().map(|emu| emu.media()));
            let array = again.open_without(lost);
            assert!(zone_contents(&again, &array) == shown, "without drive {lost}, {when}");
        }
        let array = ground.open(OpenOptions::default());
        assert!(zone_contents(ground, &array) == shown, "after another mount");
    }
}

/// From one stripe on, all stripes of every zone are torn. The parity of the torn stripes is several times as
/// large as the logs.
#[test]
fn a_checkpoint_fits_however_many_stripes_of_full_zones_are_torn() {
    let layout = Layout { width: 3, parities: 1, unit: 1, part_rows: 48 };
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

/// As above, with atomic writes: each zone ends behind a whole write, inside the torn stripe or a stripe below, whose parity is that of
/// the blocks that are left.
#[test]
fn a_zone_of_atomic_writes_that_ends_inside_a_torn_stripe_keeps_parity_of_what_is_left() {
    for (width, parities, piece) in [(3, 1, 7), (3, 1, 17), (5, 2, 19), (5, 2, 31)] {
        let layout = Layout { width, parities, unit: 4, part_rows: 400 };
        let (first_torn, written) = (5, layout.start(Stripe(19)).0 / piece * piece);
        let options = CreateOptions {
            atomic_writes: true,
            parities,
            placement: crate::PLACEMENT,
            stripe_unit: Bytes(layout.unit * u64::from(BLOCK_BYTES)),
            ..CreateOptions::default()
        };
        let ground = ArrayFixture::created(width, ZONES, layout.part_rows, 8, &options);
        let array = ground.open(OpenOptions::default());
        for (from, to) in [(0, piece), (piece, written)] {
            (0..ZONES).for_each(|zone| ground.write(&array, ZoneId(zone), 1, from, to, piece));
            if from == 0 {
                ground.wait((&*array as &dyn ZonedDevice).flush()).expect("flushed");
            }
        }
        drop(array);
        // The power cut tears the parity of all stripes from one on, and fills all physical zones.
        for (zone, slot) in (0..ZONES).flat_map(|zone| (0..width).map(move |slot| (ZoneId(zone), Slot(slot))))
        {
            ground.rewrite(slot.index(), zone, |row| {
                let stripe = Stripe(row / layout.unit);
                let role = layout.roles().find(|role| Rotation { drives: width }.slot(zone, *role) == slot);
                stripe.0 >= first_torn && role.is_some_and(|role| layout.parity_on(stripe, role).is_some())
            });
            let device = Arc::clone(&ground.emus[slot.index()]) as Arc<dyn ZonedDevice>;
            ground.wait(device.zone(ZoneId(zone.0 + METADATA_ZONES), Action::Finish)).expect("finished");
        }
        let array = ground.open(OpenOptions::default());
        let shown = zone_contents(&ground, &array);
        let end = layout.end(Stripe(first_torn)).0 / piece * piece;
        assert!(end >= piece && !end.is_multiple_of(layout.unit * layout.data_units()), "{end}");
        let mut ended = 0;
        for (zone, (state, blocks)) in (0..ZONES).zip(&shown) {
            ground.check(&array, ZoneId(zone), 1, end);
            assert_eq!(*state, ZoneState::Full);
            let above = &blocks[end as usize * BLOCK_BYTES as usize..];
            ended += u32::from(above.iter().all(|byte| *byte == 0));
        }
        assert!(ended > 0, "torn zones end because their parity does not fit the logs");
        drop(array);
        assert_content_stays(&ground, &shown);
    }
}

/// A power cut fills a physical zone whose drive lost nearly all of its cache, more than writes may be in flight: the zone ends before
/// the first write that is not there as a whole.
#[test]
fn a_filled_zone_ends_before_the_first_lost_write_however_much_the_cache_lost() {
    let layout = Layout { width: 3, parities: 1, unit: 16, part_rows: 45_000 };
    let (piece, kept_rows, zone) = (16, 100, ZoneId(1));
    let options = CreateOptions {
        atomic_writes: true,
        placement: crate::PLACEMENT,
        stripe_unit: Bytes(layout.unit * u64::from(BLOCK_BYTES)),
        ..CreateOptions::default()
    };
    let ground = ArrayFixture::created(layout.width, 2, layout.part_rows, 8, &options);
    let array = ground.open(OpenOptions::default());
    let written = layout.capacity().0 / piece * piece;
    ground.write(&array, zone, 1, 0, written, piece);
    drop(array);
    let physical = ZoneId(zone.0 + METADATA_ZONES);
    ground.rewrite(1, zone, |row| row >= kept_rows);
    let device = Arc::clone(&ground.emus[1]) as Arc<dyn ZonedDevice>;
    ground.wait(device.zone(physical, Action::Finish)).expect("finished");
    let array = ground.open(OpenOptions::default());
    let device: &dyn ZonedDevice = &*array;
    let at = device.geometry().start(zone);
    // Row 100 of the drive is in stripe 6: its first block is the first that is lost.
    let first_lost = (layout.start(Stripe(kept_rows / layout.unit)).0..written)
        .find(|n| {
            let piece = layout.locate(Blocks(*n));
            let slot = Rotation { drives: layout.width }.slot(zone, piece.role);
            slot == Slot(1) && layout.row(piece.stripe) + piece.row >= kept_rows
        })
        .expect("data on the drive");
    let end = first_lost / piece * piece;
    ground.check(&array, zone, 1, end);
    let into = BufMut::zeroed(64 * BLOCK_BYTES as usize);
    let above = ground.wait(device.read(at.plus(Blocks(end)), into)).expect("a full zone reads zeros");
    assert!(above.iter().all(|byte| *byte == 0), "no part of a write is shown");
}

/// Torn stripes whose parity fits the logs keep their blocks: whether they were durable is unknown.
#[test]
fn a_torn_zone_keeps_its_blocks_if_the_logs_have_room() {
    let layout = Layout { width: 3, parities: 1, unit: 1, part_rows: 48 };
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
    let layout = Layout { width: 3, parities: 1, unit: 5, part_rows: 93 };
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

/// A power cut fills three of four physical zones: the zone ends in the middle of a stripe of zeros, whose parity the cut filled in. The
/// pointer of a physical zone that becomes read-only later does not count filled rows: they are zeros.
#[test]
fn the_last_stripe_of_a_full_zone_is_reconstructed_from_parity_that_a_power_cut_filled_in() {
    let (layout, zone) = (Layout { width: 4, parities: 1, unit: 4, part_rows: 96 }, ZoneId(1));
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
    let (layout, zone) = (Layout { width: 4, parities: 1, unit: 4, part_rows: 96 }, ZoneId(1));
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
    let (layout, zone) = (Layout { width: 4, parities: 1, unit: 4, part_rows: 96 }, ZoneId(1));
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
