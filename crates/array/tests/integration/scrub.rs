//! Blocks that a drive cannot read, or reads wrongly: repaired by clients' reads and by scrubs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{BLOCK_BYTES, Bench, Flaky, block, device, verify, verify_all, write, write_content};
use array::{Array, CheckOptions, EventKind, Health, MANY_ERRORS, OpenOptions, ScrubOptions, Slot, Stripe};
use units::{Driver, block_on, sleep_until, spawn};
use zoned::{Action, Blocks, BufMut, Error, ErrorKind, Geometry, Io, Op, ZoneId, ZoneState, ZonedDevice};

async fn wait_for_repairs(bench: &Bench) {
    sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_millis(5))).await;
}

#[test]
fn an_unreadable_block_is_repaired_once() {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write_content(&dev).await;
        let events = array.events();
        // Unreadable rows of a full zone, of an open one, and of a finished one.
        for (zone, row) in [(0, 13), (3, 30), (4, 2)] {
            bench.drives[2].unreadable.lock().insert(bench.drives[2].row(zone, row));
        }
        verify_all(&dev).await;
        wait_for_repairs(&bench).await;
        let first = array.counters();
        assert!(first.read_errors == 3 && first.read_errors == first.read_repairs, "{first:?}");
        assert!(first.relocations == 3, "{first:?}");
        // The second read of an unreadable row finds the relocated content.
        verify_all(&dev).await;
        wait_for_repairs(&bench).await;
        assert_eq!(array.counters().read_errors, first.read_errors);
        assert_eq!(array.status().members[2].media_errors, first.read_errors);
        let published: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
        let repaired =
            |kind: &EventKind| matches!(kind, EventKind::Repaired { relocated: true, slot: Slot(2), .. });
        assert!(published.iter().all(|event| repaired(&event.kind)), "{published:?}");
        assert_eq!(published.len() as u64, first.read_repairs);
        dev.flush().await.expect("flushed");
    });
    block_on(&*bench.driver, async {
        // The relocated content is found after a restart too, with the drive or without.
        let array = bench.open(&[]).await;
        verify_all(&device(&array)).await;
        assert_eq!(array.counters().read_errors, 0);
        write(&device(&array), 3, 802, 900).await;
        verify(&device(&array), 3, 0, 900).await;
    });
    block_on(&*bench.driver, async {
        let array = bench.open(&[4]).await;
        verify_all(&device(&array)).await;
        assert_eq!(array.counters().read_errors, 0);
    });
}

#[test]
fn a_reset_forgets_repaired_blocks() {
    let bench = Bench::new(2);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write_content(&dev).await;
        bench.drives[1].unreadable.lock().insert(bench.drives[1].row(0, 5));
        verify_all(&dev).await;
        wait_for_repairs(&bench).await;
        bench.drives[1].unreadable.lock().clear();
        dev.zone(ZoneId(0), Action::Reset).await.expect("reset");
        let data = BufMut::zeroed(64 * BLOCK_BYTES).freeze();
        dev.write(dev.geometry().start(ZoneId(0)), data, zoned::Durability::Cached).await.expect("written");
        let found =
            dev.read(dev.geometry().start(ZoneId(0)), BufMut::zeroed(64 * BLOCK_BYTES)).await.expect("read");
        assert!(found.iter().all(|byte| *byte == 0));
    });
}

#[test]
fn two_unreadable_blocks_of_a_row_are_an_error_and_never_wrong_data() {
    let bench = Bench::new(3);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write_content(&dev).await;
        for slot in [0, 3] {
            bench.drives[slot].unreadable.lock().insert(bench.drives[slot].row(0, 8));
        }
        let mut errors = 0;
        for n in 0..1920 {
            let at = dev.geometry().start(ZoneId(0)).plus(Blocks(n));
            match dev.read(at, BufMut::zeroed(BLOCK_BYTES)).await {
                Ok(found) => assert!(found[..] == block(0, n)[..], "block {n}"),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Media, "{e}");
                    errors += 1;
                }
            }
        }
        assert!((1..=2).contains(&errors), "{errors}");
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.lost, report.repaired), (2, 0), "{report:?}");
    });
}

#[test]
fn a_scrub_repairs_unreadable_units_and_reports_mismatches() {
    let bench = Bench::new(4);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write_content(&dev).await;
        let clean = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((clean.read_errors, clean.mismatch_count, clean.zones), (0, 0, 5), "{clean:?}");
        // A scrub reads full zones and whole stripes of open ones: 480 rows of zone 0, and some of 1, 3 and 4
        // (filled up with zeros), of five drives.
        assert_eq!(clean.bytes.0, (480 + 200 + 28 + 8) * 5 * BLOCK_BYTES as u64, "{clean:?}");
        assert_eq!(clean.stripes, (480 + 200 + 28 + 8) / 4);
        // Every drive gets a bad row in a stripe of its own: four units of data and one of parity.
        for (slot, drive) in bench.drives.iter().enumerate() {
            drive.unreadable.lock().insert(drive.row(0, 4 * slot as u64 + 1));
        }
        let flipped = bench.drives[1].row(3, 50);
        bench.drives[1].flipped.lock().insert(flipped);
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.read_errors, report.repaired, report.lost), (5, 5, 0), "{report:?}");
        assert_eq!((report.mismatch_count, report.parity_rewritten), (1, 0), "{report:?}");
        assert_eq!((report.mismatches[0].zone, report.mismatches[0].stripe), (ZoneId(3), Stripe(12)));
        let counters = array.counters();
        assert_eq!((counters.scrub_errors, counters.scrub_mismatches), (5, 1), "{counters:?}");
        verify(&dev, 0, 0, 1920).await;
        assert_eq!(array.counters().read_repairs, 0, "the scrub recorded them");
        // A second scrub has nothing left to repair. Parity is rewritten from the data on request only.
        let again = array.scrub(ScrubOptions { repair_parity: true, ..ScrubOptions::default() }).await;
        let again = again.expect("scrubbed");
        assert_eq!((again.read_errors, again.mismatch_count, again.parity_rewritten), (0, 1, 1), "{again:?}");
        let last = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((last.read_errors, last.mismatch_count), (0, 0), "{last:?}");
        assert!(array.scrubbing().expect("there was one").progress().finished_fraction() > 0.99);
        dev.flush().await.expect("flushed");
    });
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.read_errors, report.mismatch_count), (0, 0), "after a restart: {report:?}");
        verify(&device(&array), 0, 0, 1920).await;
    });
}

#[test]
fn a_scrub_runs_beside_clients_and_refuses_an_array_that_lacks_a_drive() {
    let bench = Bench::new(5);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write_content(&dev).await;
        let scrub = array.start_scrub(ScrubOptions::default()).expect("begun");
        assert!(array.start_scrub(ScrubOptions::default()).is_err());
        // Zones are written and reset while the scrub runs.
        write(&dev, 3, 802, 1500).await;
        dev.zone(ZoneId(0), Action::Reset).await.expect("reset");
        write(&dev, 0, 0, 300).await;
        write(&dev, 7, 0, 300).await;
        let report = scrub.wait().await.expect("scrubbed");
        assert_eq!((report.read_errors, report.mismatch_count), (0, 0), "{report:?}");
        let scrub = array.start_scrub(ScrubOptions::default()).expect("begun");
        scrub.cancel();
        assert!(scrub.wait().await.expect_err("cancelled").to_string().contains("cancelled"));
        bench.drives[3].unplug(3);
        let error = array.scrub(ScrubOptions::default()).await.expect_err("a drive is lost");
        assert!(error.to_string().contains("drive 3 is lacking"), "{error}");
        assert_eq!(array.status().health(), Health::Degraded);
        let error = array.start_scrub(ScrubOptions::default()).expect_err("nothing to compare");
        assert_eq!(error.kind(), ErrorKind::Gone);
        verify(&dev, 3, 0, 1500).await;
    });
}

#[test]
fn an_offline_zone_is_read_from_the_other_drives() {
    let bench = Bench::new(6);
    // Worn parts of zones with stored maps stay where they are.
    let open = || {
        let options = OpenOptions { resume: false, ..OpenOptions::default() };
        Array::open(bench.devices(&[]), options)
    };
    block_on(&*bench.driver, async {
        let array = open().await.expect("opened");
        let dev = device(&array);
        let events = array.events();
        write_content(&dev).await;
        bench.drives[0].inner.wear(ZoneId(3 + crate::common::METADATA_ZONES), ZoneState::Offline);
        bench.drives[1].inner.wear(ZoneId(1 + crate::common::METADATA_ZONES), ZoneState::ReadOnly);
        verify_all(&dev).await;
        let worn = array.status().worn;
        assert_eq!((worn.len(), worn[0].slot, worn[0].state), (1, Slot(0), ZoneState::Offline));
        assert_eq!(array.status().health(), Health::Clean, "a zone is not a drive");
        assert!(array.status().advice()[0].contains("wore out"), "{:?}", array.status().advice());
        // Only a write reveals that a zone is read-only.
        let at = dev.geometry().start(ZoneId(1)).plus(Blocks(37));
        let error = dev
            .write(at, crate::common::blocks(1, 37, 70), zoned::Durability::Cached)
            .await
            .expect_err("worn");
        assert_eq!(error.kind(), ErrorKind::ZoneReadOnly);
        verify(&dev, 1, 0, 37).await;
        assert_eq!(array.status().worn.len(), 2);
        let published = std::iter::from_fn(|| events.try_next()).filter(|e| e.kind.name() == "zone-worn");
        assert_eq!(published.count(), 2);
    });
    block_on(&*bench.driver, async {
        let array = open().await.expect("opened");
        verify(&device(&array), 3, 0, 802).await;
        verify(&device(&array), 1, 0, 37).await;
        assert_eq!(array.status().worn.len(), 2);
    });
}

#[test]
fn many_media_errors_are_reported_and_fail_no_drive() {
    let bench = Bench::new(7);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        let events = array.events();
        write_content(&dev).await;
        for row in 0..480 {
            bench.drives[4].unreadable.lock().insert(bench.drives[4].row(0, row));
        }
        verify(&dev, 0, 0, 1920).await;
        wait_for_repairs(&bench).await;
        let status = array.status();
        assert!(status.members[4].media_errors > MANY_ERRORS);
        assert_eq!(status.health(), Health::Clean);
        assert!(status.advice().iter().any(|a| a.contains("replace it soon")), "{:?}", status.advice());
        let published = std::iter::from_fn(|| events.try_next()).filter(|e| e.kind.name() == "many-errors");
        assert_eq!(published.count(), 1);
        // The log has room for some unreadable rows of a zone; the rest is reconstructed at each read.
        assert!(array.counters().relocations > 0);
        verify(&dev, 0, 0, 1920).await;
    });
}

#[test]
fn a_power_cut_during_read_repairs_loses_nothing() {
    let mut repairing = 0;
    for seed in 0..40_u64 {
        let bench = Bench::new(seed);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_content(&dev).await;
            // The unreadable rows of one drive, of data and of parity.
            let drive = &bench.drives[seed as usize % 5];
            for (zone, row) in [(0, 13), (0, 18), (0, 301), (3, 30), (3, 199), (4, 2), (4, 17)] {
                drive.unreadable.lock().insert(drive.row(zone, row));
            }
            let reader = device(&array);
            drop(spawn(&*bench.driver, "reader", async move { verify_all(&reader).await }));
            let scrub = array.start_scrub(ScrubOptions::default()).expect("begun");
            sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(seed * 15))).await;
            repairing += u64::from(scrub.is_over() || array.counters().relocations > 0);
        });
        // The power is cut twice: the second cut follows the first mount's recovery.
        let again = bench.cut(seed);
        for bench in [again.cut(seed + 1), again] {
            block_on(&*bench.driver, async {
                let array = bench.open(&[]).await;
                verify_all(&device(&array)).await;
                let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
                assert_eq!((report.lost, report.mismatch_count), (0, 0), "seed {seed}: {report:?}");
                verify_all(&device(&array)).await;
            });
        }
    }
    assert!((8..40).contains(&repairing), "{repairing}: the cuts miss the repairs");
}

#[test]
fn a_read_that_fails_with_a_host_error_fails_no_drive() {
    for kind in [ErrorKind::Host, ErrorKind::Unknown] {
        let bench = Bench::new(1);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            let dev = device(&array);
            write_content(&dev).await;
            *bench.drives[2].says.lock() = kind;
            for row in [13, 30] {
                bench.drives[2].unreadable.lock().insert(bench.drives[2].row(0, row));
            }
            verify_all(&dev).await;
            wait_for_repairs(&bench).await;
            let counters = array.counters();
            assert_eq!(array.status().health(), Health::Clean, "{kind:?}");
            assert!(counters.degraded_reads > 0 && counters.relocations == 0, "{kind:?}: {counters:?}");
        });
    }
}

/// A drive with a small maximum transfer.
#[derive(Debug)]
struct ShortTransferDrive {
    inner: Arc<Flaky>,
    geometry: Geometry,
    refused: AtomicU32,
}

impl ShortTransferDrive {
    /// The drive's maximum transfer: more than a stripe unit and a header, and less than any part of the
    /// array would read at once.
    const MAX_TRANSFER: Blocks = Blocks(8);

    fn over(inner: &Arc<Flaky>) -> Arc<ShortTransferDrive> {
        let geometry =
            Geometry { max_transfer: ShortTransferDrive::MAX_TRANSFER, ..inner.geometry().clone() };
        Arc::new(ShortTransferDrive { inner: Arc::clone(inner), geometry, refused: AtomicU32::new(0) })
    }
}

impl ZonedDevice for ShortTransferDrive {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, op: Op) -> Io {
        let len = match &op {
            Op::Read { into, .. } => into.len(),
            Op::Write { data, .. } | Op::Append { data, .. } => data.len(),
            _ => 0,
        };
        if len > BLOCK_BYTES * 8 {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Io::ready(Err(Error::new(ErrorKind::TooLarge, &self.geometry.name, op.name())));
        }
        self.inner.submit(op)
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.inner.driver()
    }
}

#[test]
fn scrub_check_and_rebuild_respect_the_drives_maximum_transfer() {
    let bench = Bench::new(31);
    let short: Vec<Arc<ShortTransferDrive>> = bench.drives.iter().map(ShortTransferDrive::over).collect();
    let devices = || short.iter().map(|drive| Arc::clone(drive) as Arc<dyn ZonedDevice>).collect::<Vec<_>>();
    block_on(&*bench.driver, async {
        let array = Array::open(devices(), OpenOptions::default()).await.expect("opened");
        write_content(&device(&array)).await;
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert!(report.stripes > 100 && report.read_errors == 0 && report.mismatch_count == 0, "{report:?}");
    });
    block_on(&*bench.driver, async {
        let checked = array::check(&devices(), CheckOptions { deep: true }).await.expect("checked");
        assert_eq!(checked.problems, [], "{checked:?}");
        let array = Array::open(devices(), OpenOptions::default()).await.expect("opened");
        // A new drive with a larger maximum transfer replaces drive 0.
        array.fail(Slot(0)).await.expect("failed");
        let new = Bench::drive(&bench.driver, 7);
        array.replace(Slot(0), new).await.expect("rebuilt");
        verify_all(&device(&array)).await;
    });
    let refused: u32 = short.iter().map(|drive| drive.refused.load(Ordering::Relaxed)).sum();
    assert_eq!(refused, 0);
}
