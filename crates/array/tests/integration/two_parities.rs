//! Arrays with two parities: reads, writes, replacements, repairs and spares without any two drives.

use std::sync::Arc;

use array::{
    Array, CheckOptions, CreateOptions, Event, EventKind, Health, Layout, OpenOptions, Parity, Rotation,
    ScrubOptions, Slot, Stripe,
};
use units::block_on;
use zoned::{Action, Blocks, BufMut, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

use crate::common::{BLOCK_BYTES, Bench, METADATA_ZONES, block, blocks, device, verify, write};

const LAYOUT: Layout = Layout { width: 5, parities: 2, unit: 4, part_rows: 480 };
const ROTATION: Rotation = Rotation { drives: 5 };

/// The zones that the tests write, with their numbers of blocks: full, open in every part of a stripe, finished early.
const CONTENT: [(u32, u64); 6] = [(0, 1440), (1, 37), (3, 802), (4, 101), (5, 7), (6, 3)];

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b)))
}

async fn write_content(device: &Arc<dyn ZonedDevice>) {
    for (zone, end) in CONTENT {
        write(device, zone, 0, end).await;
    }
    device.zone(ZoneId(4), Action::Finish).await.expect("finished");
    device.flush().await.expect("flushed");
}

async fn verify_content(device: &Arc<dyn ZonedDevice>) {
    for (zone, end) in CONTENT {
        verify(device, zone, 0, end).await;
    }
}

fn new_drive(bench: &Bench, n: u32) -> Arc<dyn ZonedDevice> {
    Bench::drive(&bench.driver, n)
}

fn content(seed: u64) -> Bench {
    let bench = Bench::with_parities(seed, 2);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
    });
    bench
}

#[test]
fn everything_is_read_without_any_two_drives() {
    let bench = content(1);
    for (a, b) in pairs() {
        let bench = bench.copy();
        block_on(&*bench.driver, async {
            let array = bench.open(&[a, b]).await;
            assert_eq!((array.status().health(), array.status().failures_left()), (Health::Degraded, 0));
            verify_content(&device(&array)).await;
        });
    }
}

#[test]
fn an_array_goes_on_while_two_drives_fail_and_is_whole_once_both_are_replaced() {
    let bench = content(2);
    for (a, b) in pairs() {
        let bench = bench.copy();
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            assert_eq!(array.status().failures_left(), 2);
            array.fail(Slot(a as u32)).await.expect("failed");
            assert_eq!((array.status().health(), array.status().failures_left()), (Health::Degraded, 1));
            write(&dev, 1, 37, 90).await;
            bench.drives[b].unplug(3);
            write(&dev, 1, 90, 140).await;
            write(&dev, 5, 7, 60).await;
            write(&dev, 2, 0, 77).await;
            dev.flush().await.expect("flushed");
            assert_eq!((array.status().health(), array.status().failures_left()), (Health::Degraded, 0));
            assert!(!array.is_broken());
            let third = (0..5).find(|slot| ![a, b].contains(slot)).expect("five drives");
            let refused = array.fail(Slot(third as u32)).await.expect_err("a third one");
            assert!(refused.to_string().contains("the array does without two only"), "{refused}");
            verify_content(&dev).await;
            for (zone, end) in [(1, 140), (5, 60), (2, 77)] {
                verify(&dev, zone, 0, end).await;
            }
            dev.zone(ZoneId(3), Action::Reset).await.expect("reset");
            write(&dev, 3, 0, 50).await;
            for slot in [b, a] {
                let new = new_drive(&bench, 9 + slot as u32);
                array.replace(Slot(slot as u32), new).await.expect("replaced");
            }
            assert_eq!((array.status().health(), array.status().failures_left()), (Health::Clean, 2));
            write(&dev, 3, 50, 61).await;
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.mismatch_count, report.read_errors, report.lost), (0, 0, 0), "{a} {b}");
            for lost in [third, a] {
                array.fail(Slot(lost as u32)).await.expect("failed");
            }
            for (zone, end) in [(0, 1440), (1, 140), (2, 77), (3, 61), (4, 101), (5, 60), (6, 3)] {
                verify(&dev, zone, 0, end).await;
            }
        });
    }
}

#[test]
fn a_third_failure_stops_writes() {
    let bench = content(3);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        for drive in [0, 2, 4] {
            bench.drives[drive].unplug(0);
        }
        let start = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
        let refused = dev.write(start, blocks(1, 37, 60), Durability::Durable).await.expect_err("broken");
        assert_eq!(refused.kind(), ErrorKind::Gone);
        assert!(refused.to_string().contains("three drives"), "{refused}");
        assert_eq!(array.status().health(), Health::Failed);
    });
    let bench = bench.copy();
    block_on(&*bench.driver, async {
        let refused = Array::open(bench.devices(&[0, 1, 2]), OpenOptions::default()).await;
        let refused = refused.expect_err("two of five drives");
        assert_eq!(refused.kind(), ErrorKind::Gone);
        assert!(refused.to_string().contains("does without two drives only"), "{refused}");
    });
}

#[test]
fn rows_that_two_drives_cannot_read_are_answered_and_repaired() {
    let bench = content(4);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        // Row 1 of two units of stripe 2 of zone 0, and different rows of two units of stripe 5.
        let spoil = |stripe: u64, index: u64, row: u64| {
            let role = LAYOUT.data(Stripe(stripe), index);
            let drive = &bench.drives[ROTATION.slot(ZoneId(0), role).index()];
            drive.unreadable.lock().insert(drive.row(0, LAYOUT.row(Stripe(stripe)) + row));
        };
        for (stripe, index, row) in [(2, 0, 1), (2, 2, 1), (5, 0, 0), (5, 1, 3), (5, 2, 1)] {
            spoil(stripe, index, row);
        }
        verify(&dev, 0, 0, 1440).await;
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.lost, report.mismatch_count), (0, 0));
        let again = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((again.read_errors, again.lost), (0, 0), "everything was relocated");
        verify(&dev, 0, 0, 1440).await;
        // A row that three drives cannot read is lost.
        for index in 0..3 {
            spoil(9, index, 2);
        }
        let lost = dev.geometry().start(ZoneId(0)).plus(LAYOUT.unit_start(Stripe(9), 0)).plus(Blocks(2));
        let refused = dev.read(lost, BufMut::zeroed(BLOCK_BYTES)).await.expect_err("three drives");
        assert_eq!(refused.kind(), ErrorKind::Media);
    });
}

/// A new drive is filled while another drive's part of a zone is offline and a third drive cannot read some rows: these rows are lost
/// where three parts lack them, and the rest of the zone is there.
#[test]
fn a_rebuild_beside_an_offline_part_loses_only_rows_that_a_third_drive_cannot_read() {
    let bench = content(12);
    for (missing, step) in (0..5).flat_map(|missing| [(missing, 1), (missing, 3)]) {
        for (zone, end) in [(0, 1440), (1, 37), (3, 802), (4, 101)] {
            let bench = bench.copy();
            let (offline, bad) = ((missing + step) % 5, (missing + 2) % 5);
            block_on(&*bench.driver, async {
                let array = bench.open(&[missing]).await;
                bench.drives[offline].inner.wear(ZoneId(zone + METADATA_ZONES), ZoneState::Offline);
                let last = LAYOUT.stripe_of(Blocks(end - 1));
                let spoiled: Vec<u64> = [Stripe(1), last].map(|stripe| LAYOUT.row(stripe)).into();
                for row in &spoiled {
                    bench.drives[bad].unreadable.lock().insert(bench.drives[bad].row(zone, *row));
                }
                let new = new_drive(&bench, 9);
                array.replace(Slot(missing as u32), new).await.expect("replaced");
                let dev = device(&array);
                let state = dev.report(zone..zone + 1).await.expect("reported")[0].state;
                assert_ne!(state, ZoneState::Offline, "zone {zone}: {missing} {offline} {bad}");
                for n in 0..end {
                    let piece = LAYOUT.locate(Blocks(n));
                    let at = dev.geometry().start(ZoneId(zone)).plus(Blocks(n));
                    match dev.read(at, BufMut::zeroed(BLOCK_BYTES)).await {
                        Ok(found) => assert!(*found == block(zone, n)[..], "block {n} of zone {zone}"),
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::Media, "{e}");
                            let row = LAYOUT.row(piece.stripe) + piece.row;
                            assert!(spoiled.contains(&row), "block {n} of zone {zone}, row {row}: {e}");
                        }
                    }
                }
            });
        }
    }
}

#[test]
fn a_scrub_finds_and_repairs_either_parity() {
    for parity in [Parity::P, Parity::Q] {
        let bench = content(5);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let slot = ROTATION.slot(ZoneId(3), LAYOUT.parity(Stripe(7), parity));
            let drive = &bench.drives[slot.index()];
            drive.flipped.lock().insert(drive.row(3, LAYOUT.row(Stripe(7)) + 2));
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.mismatch_count, report.parity_rewritten), (1, 0), "{parity:?}");
            let repair = ScrubOptions { repair_parity: true, ..ScrubOptions::default() };
            let report = array.scrub(repair).await.expect("scrubbed");
            assert_eq!((report.mismatch_count, report.parity_rewritten), (1, 1), "{parity:?}");
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!(report.mismatch_count, 0, "{parity:?}");
        });
        let devices = bench.devices(&[]);
        let report = block_on(&*bench.driver, array::check(&devices, CheckOptions { deep: true }));
        assert!(report.expect("checked").is_sound(), "{parity:?}");
    }
}

#[test]
fn a_scrub_without_any_drive_repairs_and_compares_with_the_other_parity() {
    let bench = content(9);
    for lacking in 0..5 {
        let bench = bench.copy();
        let (zone, stripe) = (ZoneId(3), Stripe(7));
        block_on(&*bench.driver, async {
            let array = bench.open(&[lacking]).await;
            let clean = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((clean.mismatch_count, clean.read_errors, clean.lost), (0, 0, 0), "{clean:?}");
            assert!(clean.stripes > 100 && clean.bytes.0 % 4 == 0, "four drives are read: {clean:?}");
            for wrong in (0..5).filter(|slot| *slot != lacking) {
                let drive = &bench.drives[wrong];
                let row = drive.row(zone.0, LAYOUT.row(stripe) + 2);
                drive.flipped.lock().insert(row);
                let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
                assert_eq!((report.mismatch_count, report.lost), (1, 0), "{wrong}, without {lacking}");
                assert_eq!(report.mismatches[0].stripe, stripe);
                drive.flipped.lock().clear();
            }
            // An unreadable unit follows from what is left; a second one of the stripe is lost.
            let others: Vec<usize> = (0..5).filter(|slot| *slot != lacking).collect();
            for (count, drive) in (1..).zip(&others[..2]) {
                let drive = &bench.drives[*drive];
                drive.unreadable.lock().insert(drive.row(0, LAYOUT.row(Stripe(count)) + 1));
            }
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.read_errors, report.repaired, report.lost), (2, 2, 0), "{report:?}");
            for drive in &others[..2] {
                let drive = &bench.drives[*drive];
                drive.unreadable.lock().insert(drive.row(0, LAYOUT.row(Stripe(9)) + 1));
            }
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!((report.repaired, report.lost), (0, 2), "{report:?}");
        });
    }
}

#[test]
fn a_scrub_without_a_drive_rewrites_parity_only_from_data_that_is_there() {
    let bench = content(10);
    let stripe = Stripe(7);
    let slot = |role| ROTATION.slot(ZoneId(3), role).index();
    let q = slot(LAYOUT.parity(stripe, Parity::Q));
    for (lacking, rewritten) in
        [(slot(LAYOUT.parity(stripe, Parity::P)), 1), (slot(LAYOUT.data(stripe, 1)), 0)]
    {
        let bench = bench.copy();
        block_on(&*bench.driver, async {
            let array = bench.open(&[lacking]).await;
            let drive = &bench.drives[q];
            drive.flipped.lock().insert(drive.row(3, LAYOUT.row(stripe) + 2));
            let repair = ScrubOptions { repair_parity: true, ..ScrubOptions::default() };
            let report = array.scrub(repair).await.expect("scrubbed");
            assert_eq!((report.mismatch_count, report.parity_rewritten), (1, rewritten), "without {lacking}");
            let again = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!(again.mismatch_count, 1 - rewritten, "without {lacking}");
        });
    }
}

#[test]
fn a_scrub_goes_on_when_one_drive_fails_and_ends_with_the_second() {
    let bench = content(11);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        bench.drives[2].unplug(3);
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed without a drive");
        assert_eq!((report.mismatch_count, report.read_errors, report.lost), (0, 0, 0), "{report:?}");
        assert_eq!((array.status().health(), array.status().failures_left()), (Health::Degraded, 1));
        bench.drives[4].unplug(3);
        let ended = array.scrub(ScrubOptions::default()).await.expect_err("two drives are gone");
        assert_eq!(ended.kind(), ErrorKind::Gone);
        assert!(ended.to_string().contains("drives 2 and 4 are lacking"), "{ended}");
        verify_content(&device(&array)).await;
    });
}

#[test]
fn two_spares_take_the_places_of_two_drives_one_after_the_other() {
    let bench = content(6);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let events = array.events();
        for n in [7, 8] {
            array.add_spare(new_drive(&bench, n)).await.expect("a spare");
        }
        array.fail(Slot(1)).await.expect("failed");
        array.fail(Slot(3)).await.expect("failed");
        let mut ended = 0;
        while ended < 2 {
            if let Event { kind: EventKind::RebuildEnded { error, .. }, .. } = events.next().await {
                assert_eq!(error, None);
                ended += 1;
            }
        }
        assert_eq!(array.status().health(), Health::Clean);
        assert_eq!(array.status().spares, []);
        for lost in [0, 4] {
            array.fail(Slot(lost)).await.expect("failed");
        }
        verify_content(&device(&array)).await;
    });
}

#[test]
fn a_zone_fails_only_when_three_drives_lack_their_parts() {
    let bench = content(7);
    let worn = |bench: &Bench, drive: usize| {
        bench.drives[drive].inner.wear(ZoneId(METADATA_ZONES), ZoneState::Offline);
    };
    worn(&bench, 2);
    for (lost, expected) in [(&[0][..], false), (&[0, 4], true)] {
        let bench = bench.copy();
        worn(&bench, 2);
        block_on(&*bench.driver, async {
            let array = bench.open(lost).await;
            let dev = device(&array);
            // Zone 1 may have its part in the same physical zone.
            let failed = (0..crate::SHARES).map(ZoneId).filter(|_| expected).collect::<Vec<_>>();
            assert_eq!(array.status().failed_zones, failed);
            if !expected {
                verify(&dev, 0, 0, 1440).await;
            }
            verify(&dev, 3, 0, 802).await;
        });
    }
}

#[test]
fn two_parities_need_four_drives() {
    let bench = Bench::with_parities(8, 2);
    let plan = |drives: &[usize], parities| {
        let options = CreateOptions {
            stripe_unit: Bytes(2048),
            parities,
            placement: crate::PLACEMENT,
            shares: crate::SHARES,
            ..CreateOptions::default()
        };
        array::plan(&bench.devices(drives), &options).map_err(|error| error.to_string())
    };
    assert_eq!(plan(&[0], 2).expect("four drives").parities, 2);
    let refused = plan(&[0, 1], 2).expect_err("three drives");
    assert!(refused.contains("3 drives; an array with two parities has 4 to 64"), "{refused}");
    let refused = plan(&[], 3).expect_err("three parities");
    assert!(refused.contains("3 units of parity in a stripe: an array has 1 to 2"), "{refused}");
    assert!(plan(&[], 0).is_err());
}
