//! Rebuilds whose sources have transient or persistent read errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{
    BLOCK_BYTES, BLOCKS_BY_ZONE, Bench, block, blocks, device, verify, verify_all, write_content,
};
use crate::ground::parity_slot;
use array::{Array, EventKind, Health, Layout, RebuildOptions, Rotation, ScrubOptions, Slot, Stripe};
use units::{block_on, sleep_until};
use zoned::{Action, Blocks, BufMut, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

/// The slot of the drive that is rebuilt.
const REBUILT_SLOT: usize = 2;

/// Rows of the drives that a rebuild reads: rows in the middle of a full zone, and all rows of a zone that
/// has a stripe and a half.
fn rows() -> impl Iterator<Item = (usize, u32, u64)> {
    let rows = || [(0, 7)].into_iter().chain((0..12).map(|row| (1, row)));
    [0, 1, 3, 4].into_iter().flat_map(move |slot| rows().map(move |(zone, row)| (slot, zone, row)))
}

#[test]
fn a_transient_error_does_not_end_a_rebuild() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
    });
    let mut met = 0;
    for (n, (slot, zone, row)) in (2..).zip(rows()) {
        let mut bench = bench.cut(n);
        let drive = Arc::clone(&bench.drives[slot]);
        let new = Bench::drive(&bench.driver, 9);
        block_on(&*bench.driver, async {
            let array = bench.open(&[REBUILT_SLOT]).await;
            *drive.says.lock() = ErrorKind::Host;
            drive.fails.store(5, Ordering::Relaxed);
            drive.unreadable.lock().insert(drive.row(zone, row));
            let device = Arc::clone(&new) as Arc<dyn ZonedDevice>;
            let rebuilt = array.replace(Slot(REBUILT_SLOT as u32), device).await;
            rebuilt.unwrap_or_else(|e| panic!("row {row} of zone {zone} on drive {slot}: {e}"));
            assert_eq!(array.status().health(), Health::Clean);
            met += u32::from(drive.fails.load(Ordering::Relaxed) < 0);
        });
        drive.unreadable.lock().clear();
        bench.drives[REBUILT_SLOT] = new;
        block_on(&*bench.driver, async {
            let array = bench.open(&[(REBUILT_SLOT + 1) % 5]).await;
            verify_all(&device(&array)).await;
        });
    }
    assert!(met >= 20, "only {met} of the rows are read");
}

#[test]
fn a_persistent_error_ends_a_rebuild_with_advice() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        array.fail(Slot(REBUILT_SLOT as u32)).await.expect("failed");
        let drive = &bench.drives[4];
        *drive.says.lock() = ErrorKind::Host;
        drive.unreadable.lock().insert(drive.row(0, 7));
        let new = Bench::drive(&bench.driver, 9) as Arc<dyn ZonedDevice>;
        let error = array.replace(Slot(REBUILT_SLOT as u32), new).await.expect_err("it does not pass");
        assert_eq!(error.kind(), ErrorKind::Host, "{error}");
        assert!(error.to_string().contains("drive 4 could not be read while drive 2"), "{error}");
        assert!(!array.is_broken());
        assert_eq!(array.status().health(), Health::Degraded);
        drive.unreadable.lock().clear();
        verify_all(&device(&array)).await;
    });
}

/// The test array's layout: units of 4 blocks.
const LAYOUT: Layout = Layout { width: 5, parities: 1, unit: 4, part_rows: 480 };

/// Data blocks of a zone that lie in row `row` of the drives in `slots`.
fn blocks_of(zone: u32, slots: &[usize], row: u64) -> BTreeSet<u64> {
    let end = BLOCKS_BY_ZONE.iter().find(|(known, _)| *known == zone).map_or(0, |(_, end)| *end);
    let here = |n: &u64| {
        let piece = LAYOUT.locate(Blocks(*n));
        slots.contains(&Rotation { drives: LAYOUT.width }.slot(ZoneId(zone), piece.role).index())
            && LAYOUT.row(piece.stripe) + piece.row == row
    };
    (0..end).filter(here).collect()
}

/// Reads all blocks of the array one by one: a block has the right content, or an error with advice if the
/// block may be bad. Returns the blocks that cannot be read.
async fn read_all(array: &Arc<Array>) -> BTreeSet<(u32, u64)> {
    let dev = device(array);
    let mut errors = BTreeSet::new();
    for (zone, end) in BLOCKS_BY_ZONE {
        for n in 0..end {
            let at = dev.geometry().start(ZoneId(zone)).plus(Blocks(n));
            match dev.read(at, BufMut::zeroed(BLOCK_BYTES)).await {
                Ok(found) => assert!(*found == block(zone, n)[..], "block {n} of zone {zone} is wrong"),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Media, "{e}");
                    errors.insert((zone, n));
                }
            }
        }
    }
    errors
}

#[test]
fn a_row_that_two_drives_lack_becomes_bad_and_the_rest_is_rebuilt() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
    });
    let (mut kinds, mut recomputed) = (BTreeSet::new(), 0);
    for (n, (slot, zone, row)) in (2..).zip(rows().chain((20..27).map(|row| (4, 4, row)))) {
        let what = format!("row {row} of zone {zone} on drive {slot}");
        let mut bench = bench.cut(n);
        let new = Bench::drive(&bench.driver, 9);
        let bad = Arc::clone(&bench.drives[slot]);
        bad.unreadable.lock().insert(bad.row(zone, row));
        let both = blocks_of(zone, &[slot, REBUILT_SLOT], row);
        let was_lost = AtomicBool::new(false);
        let lost = block_on(&*bench.driver, async {
            let array = bench.open(&[REBUILT_SLOT]).await;
            let events = array.events();
            array
                .replace(Slot(REBUILT_SLOT as u32), Arc::clone(&new) as Arc<dyn ZonedDevice>)
                .await
                .expect(&what);
            let status = array.status();
            assert_eq!(status.health(), Health::Clean, "{what}");
            let errors = read_all(&array).await;
            assert!(
                errors.iter().all(|(of, n)| *of == zone && both.contains(n)),
                "{what}: {errors:?}, {both:?}"
            );
            let published = std::iter::from_fn(|| events.try_next());
            let published =
                published.filter(|event| matches!(event.kind, EventKind::BlocksLost { .. })).count();
            // A mount may find that the parity of a stripe in doubt cannot be known, because another drive
            // has bad rows.
            let new = status.lost.iter().filter(|lost| lost.slot == Slot(REBUILT_SLOT as u32)).count();
            was_lost.store(!status.lost.is_empty(), Ordering::Relaxed);
            assert_eq!(published, new, "{what}: {status:?}");
            for (zone, n) in errors.iter().take(1) {
                let at = device(&array).geometry().start(ZoneId(*zone)).plus(Blocks(*n));
                let error =
                    device(&array).read(at, BufMut::zeroed(BLOCK_BYTES)).await.expect_err("lost").to_string();
                assert!(error.contains("lost") && error.contains("reset"), "{error}");
                assert!(
                    status.advice().iter().any(|advice| advice.contains("reset it")),
                    "{:?}",
                    status.advice()
                );
            }
            kinds.insert((
                blocks_of(zone, &[REBUILT_SLOT], row).len(),
                blocks_of(zone, &[slot], row).len(),
                errors.len(),
            ));
            errors
        });
        bench.drives[REBUILT_SLOT] = new;
        // Reads after a power cut, with all drives and without any single one, return the right content.
        for without in [None, Some((slot + 1) % 5), Some(REBUILT_SLOT), Some(slot)] {
            let bench = bench.cut(n);
            let without: Vec<usize> = without.into_iter().collect();
            block_on(&*bench.driver, async {
                let array = bench.open(&without).await;
                let errors = read_all(&array).await;
                if without.is_empty() {
                    assert!(
                        lost.is_subset(&errors) || lost.is_empty(),
                        "{what}: {errors:?}, {lost:?} before"
                    );
                }
                assert!(errors.iter().all(|(of, _)| *of == zone), "{what}, without {without:?}: {errors:?}");
            });
        }
        let was_lost = was_lost.load(Ordering::Relaxed);
        // The unreadable row is readable again, and so is everything reconstructed from the row. No parity
        // mismatches.
        let again = bench.cut(n);
        again.drives[slot].unreadable.lock().clear();
        block_on(&*again.driver, async {
            let array = again.open(&[]).await;
            // A mount recomputes bad parity if all data of the stripe is readable, which is so unless the new drive has bad data rows.
            if parity_slot(&LAYOUT, ZoneId(zone), Stripe(row / LAYOUT.unit)) == Slot(REBUILT_SLOT as u32) {
                assert_eq!(array.status().lost, [], "{what}");
                recomputed += u32::from(was_lost);
            }
            read_all(&array).await;
            let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
            assert_eq!(report.mismatch_count, 0, "{what}: {report:?}");
            // A reset of the zones clears the bad rows.
            let dev = device(&array);
            dev.zone(ZoneId(zone), Action::Reset).await.expect("reset");
            crate::common::write(&dev, zone, 0, 200).await;
            verify(&dev, zone, 0, 200).await;
            assert_eq!(array.status().lost, [], "{what}");
            dev.flush().await.expect("flushed");
        });
        let again = again.cut(n);
        block_on(&*again.driver, async {
            let array = again.open(&[(slot + 1) % 5]).await;
            verify(&device(&array), zone, 0, 200).await;
            assert_eq!(array.status().lost, [], "{what}");
        });
    }
    assert!(recomputed > 3, "bad parity was recomputed {recomputed} times");
    // The tested cases: data on both drives, parity on either, and rows without content.
    let (data, parity) =
        (kinds.contains(&(1, 1, 2)), kinds.iter().any(|(new, other, _)| (*new, *other) == (0, 1)));
    assert!(data && parity && kinds.iter().any(|(new, other, _)| (*new, *other) == (1, 0)), "{kinds:?}");
}

#[test]
fn bad_rows_are_known_after_a_restart_during_the_rebuild() {
    for zones in 1..=5 {
        let mut bench = Bench::new(zones);
        let new = Bench::drive(&bench.driver, 9);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            write_content(&device(&array)).await;
            array.fail(Slot(REBUILT_SLOT as u32)).await.expect("failed");
            for (zone, row) in [(0, 7), (3, 100), (4, 9)] {
                bench.drives[4].unreadable.lock().insert(bench.drives[4].row(zone, row));
            }
            let drive = Arc::clone(&new) as Arc<dyn ZonedDevice>;
            let rebuild =
                array.start_replace(Slot(REBUILT_SLOT as u32), drive, RebuildOptions::default()).await;
            let rebuild = rebuild.expect("begun");
            while u64::from(rebuild.progress().zones_done) < zones && !rebuild.is_over() {
                sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(50))).await;
            }
        });
        bench.drives[REBUILT_SLOT] = new;
        let bench = bench.cut(zones);
        let lost = block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            if let Some(rebuild) = array.rebuild() {
                rebuild.wait().await.expect("rebuilt");
            }
            assert_eq!(array.status().health(), Health::Clean);
            let errors = read_all(&array).await;
            let may: BTreeSet<(u32, u64)> = [(0, 7), (3, 100), (4, 9)]
                .into_iter()
                .flat_map(|(zone, row)| {
                    blocks_of(zone, &[4, REBUILT_SLOT], row).into_iter().map(move |n| (zone, n))
                })
                .collect();
            assert_eq!(errors, may, "after {zones} zones");
            errors
        });
        let bench = bench.cut(zones + 10);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            assert_eq!(read_all(&array).await, lost, "after {zones} zones");
            let full = device(&array).report(0..1).await.expect("reported");
            assert_eq!(full.first().map(|info| info.state), Some(ZoneState::Full));
        });
    }
}

#[test]
fn too_many_unreadable_rows_end_a_rebuild() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        array.fail(Slot(REBUILT_SLOT as u32)).await.expect("failed");
        let drive = &bench.drives[4];
        drive.unreadable.lock().extend((0..100).map(|row| drive.row(0, row)));
        let new = Bench::drive(&bench.driver, 9) as Arc<dyn ZonedDevice>;
        let error = array.replace(Slot(REBUILT_SLOT as u32), new).await.expect_err("too much").to_string();
        assert!(error.contains("drive 4 cannot read what drive 2"), "{error}");
        assert_eq!(array.status().health(), Health::Degraded);
        let at = device(&array).geometry().start(ZoneId(7));
        device(&array).write(at, blocks(7, 0, 9), Durability::Cached).await.expect("the array works");
    });
}
