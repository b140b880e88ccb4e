//! A rebuild whose sources cannot be read, for a moment or for good.
#![expect(clippy::indexing_slicing, reason = "a test: a wrong index is a failure like any other")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use array::{Health, Slot};
use common::{Bench, device, furnish, verify_all};
use units::block_on;
use zoned::{ErrorKind, ZonedDevice};

/// The drive that is rebuilt.
const SLOT: usize = 2;

/// Rows of the drives that a rebuild reads: in the middle of a full zone, and all of those of a zone that has a stripe and a half.
fn rows() -> impl Iterator<Item = (usize, u32, u64)> {
    let rows = || [(0, 7)].into_iter().chain((0..12).map(|row| (1, row)));
    [0, 1, 3, 4].into_iter().flat_map(move |slot| rows().map(move |(zone, row)| (slot, zone, row)))
}

#[test]
fn an_error_that_passes_does_not_end_a_rebuild() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        furnish(&device(&array)).await;
    });
    let mut met = 0;
    for (n, (slot, zone, row)) in (2..).zip(rows()) {
        let mut bench = bench.cut(n);
        let drive = Arc::clone(&bench.drives[slot]);
        let new = Bench::drive(&bench.driver, 9);
        block_on(&*bench.driver, async {
            let array = bench.open(&[SLOT]).await;
            *drive.says.lock() = ErrorKind::Host;
            drive.fails.store(5, Ordering::Relaxed);
            drive.unreadable.lock().insert(drive.row(zone, row));
            let device = Arc::clone(&new) as Arc<dyn ZonedDevice>;
            let rebuilt = array.replace(Slot(SLOT as u32), device).await;
            rebuilt.unwrap_or_else(|e| panic!("row {row} of zone {zone} on drive {slot}: {e}"));
            assert_eq!(array.status().health(), Health::Clean);
            met += u32::from(drive.fails.load(Ordering::Relaxed) < 0);
        });
        drive.unreadable.lock().clear();
        bench.drives[SLOT] = new;
        block_on(&*bench.driver, async {
            let array = bench.open(&[(SLOT + 1) % 5]).await;
            verify_all(&device(&array)).await;
        });
    }
    assert!(met >= 20, "only {met} of the rows are read");
}

#[test]
fn an_error_that_does_not_pass_ends_a_rebuild_in_clear_words() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        furnish(&device(&array)).await;
        array.fail(Slot(SLOT as u32)).await.expect("failed");
        let drive = &bench.drives[4];
        *drive.says.lock() = ErrorKind::Host;
        drive.unreadable.lock().insert(drive.row(0, 7));
        let new = Bench::drive(&bench.driver, 9) as Arc<dyn ZonedDevice>;
        let error = array.replace(Slot(SLOT as u32), new).await.expect_err("it does not pass");
        assert_eq!(error.kind(), ErrorKind::Host, "{error}");
        assert!(error.to_string().contains("drive 4 cannot read what drive 2"), "{error}");
        assert!(!array.is_broken());
        assert_eq!(array.status().health(), Health::Degraded);
        drive.unreadable.lock().clear();
        verify_all(&device(&array)).await;
    });
}
