//! Drives that refuse writes, flushes or zone commands during a mount: the array is opened without one such
//! drive. Two such drives are an error that names them, and nothing is lost.

use std::sync::Arc;

use crate::common::{
    BLOCKS_BY_ZONE, Bench, METADATA_ZONES, blocks, device, verify, verify_all, write, write_content,
};
use array::{Array, CheckOptions, Health, MemberState, OpenOptions, ScrubOptions, Severity, Slot};
use units::block_on;
use zoned::emu::{FaultOp, FaultSpec};
use zoned::{Blocks, Bytes, Durability, ErrorKind, ZoneId, ZoneState, ZonedDevice};

const FAULT_KINDS: [FaultOp; 3] = [FaultOp::Write, FaultOp::Flush, FaultOp::Zone];

/// An array whose mount has to record stale rows, complete a reset and write parity.
fn array_with_content() -> Bench {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
        drop(array);
        // Blocks above the pointers stand for blocks that were in flight at the power cut.
        for (slot, zone, count) in [(1, 3, 6), (3, 3, 2), (2, 5, 3), (4, 1, 9)] {
            let raw = Arc::clone(&bench.drives[slot].inner) as Arc<dyn ZonedDevice>;
            let zone = ZoneId(zone + METADATA_ZONES);
            let info = raw.report(zone.0..zone.0 + 1).await.expect("reported")[0];
            let at = raw.geometry().start(zone).plus(Blocks(info.pointer.0));
            raw.write(at, blocks(9, 0, count), Durability::Durable).await.expect("written");
        }
    });
    bench
}

/// Mount options: stale rows stay, or every zone with stale rows is rewritten.
fn options_with_rebuild_above(rebuild_above: u64) -> OpenOptions {
    OpenOptions { rebuild_above: Bytes(rebuild_above), ..OpenOptions::default() }
}

/// Opens an array of which one drive fails some operations. True if the drive failed during the mount; it may
/// also fail in a later operation. Asserts that the array has all its content, now and after a power cut.
fn assert_opens_without(bench: &Bench, slot: usize, options: &OpenOptions, what: &str) -> bool {
    let (met, left_out) = block_on(&*bench.driver, async {
        let array = Array::open(bench.devices(&[]), options.clone()).await;
        let array = array.unwrap_or_else(|e| panic!("{what}: {e}"));
        let dev = device(&array);
        verify_all(&dev).await;
        let status = array.status();
        for member in &status.members {
            let good = member.slot.0 as usize != slot || status.health() == Health::Clean;
            assert_eq!(member.state == MemberState::Good, good, "{what}: {member:?}");
        }
        assert_eq!(array.counters().drive_failures, u64::from(status.health() == Health::Degraded), "{what}");
        write(&dev, 2, 0, 50).await;
        dev.flush().await.expect("flushed");
        (status.health() == Health::Degraded, array.status().health() == Health::Degraded)
    });
    assert!(left_out || !met, "{what}");
    // The drive that refused operations works again, and is still left out.
    let again = bench.cut(7);
    block_on(&*again.driver, async {
        let reported = array::status(&again.devices(&[])).await.expect("status").health();
        assert_eq!(reported == Health::Degraded, left_out, "{what}");
        let array = again.open(&[]).await;
        verify_all(&device(&array)).await;
        verify(&device(&array), 2, 0, 50).await;
        let state = array.status().members[slot].state;
        assert_eq!(state == MemberState::Failed, left_out, "{what}");
        if left_out {
            let same = Arc::clone(&again.drives[slot]) as Arc<dyn ZonedDevice>;
            array.replace(Slot(slot as u32), same).await.expect("replaced by itself");
        }
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.lost, report.mismatch_count), (0, 0), "{what}: {report:?}");
        verify(&device(&array), 2, 0, 50).await;
    });
    met
}

#[test]
fn a_drive_that_fails_any_operation_of_a_mount_is_left_out() {
    let bench = array_with_content();
    for rebuild_above in [0, 1 << 20] {
        for slot in 0..5 {
            for op in FAULT_KINDS {
                let mut met = 0;
                for after in 0.. {
                    let again = bench.copy();
                    again.drives[slot].inner.fail(FaultSpec { after, ..FaultSpec::all(op) });
                    let what = format!("drive {slot}, {op:?} after {after}, above {rebuild_above}");
                    block_on(&*again.driver, async {
                        let reported = array::status(&again.devices(&[])).await.expect("status");
                        assert_eq!(reported.health(), Health::Clean, "a status submits no writes");
                    });
                    if !assert_opens_without(&again, slot, &options_with_rebuild_above(rebuild_above), &what)
                    {
                        break;
                    }
                    met += 1;
                }
                assert!(met > 0, "{op:?}: a mount submits some");
            }
        }
    }
}

#[test]
fn a_drive_that_disappears_at_any_moment_of_a_mount_is_left_out() {
    let bench = array_with_content();
    for rebuild_above in [0, 1 << 20] {
        for slot in [0, 3] {
            let mut after = 0;
            loop {
                let again = bench.copy();
                again.drives[slot].unplug(after);
                let what = format!("drive {slot} goes after {after}, above {rebuild_above}");
                // Operations after the mount would fail the drive too, so that the test mounts only.
                let health = block_on(&*again.driver, async {
                    let array =
                        Array::open(again.devices(&[]), options_with_rebuild_above(rebuild_above)).await;
                    let array = array.unwrap_or_else(|e| panic!("{what}: {e}"));
                    let health = array.status().health();
                    verify_all(&device(&array)).await;
                    health
                });
                if health == Health::Clean {
                    break;
                }
                after += 1;
            }
            assert!(after > 20, "a mount submits operations to each drive");
        }
    }
}

#[test]
fn a_drive_that_came_up_read_only_is_left_out() {
    let bench = array_with_content();
    for state in [ZoneState::ReadOnly, ZoneState::Offline] {
        for slot in 0..5 {
            let again = bench.copy();
            (0..11).for_each(|zone| again.drives[slot].inner.wear(ZoneId(zone), state));
            block_on(&*again.driver, async {
                let devices = again.devices(&[]);
                let reported = array::status(&devices).await.expect("status");
                assert_eq!(reported.health(), Health::Degraded, "{state:?}: a mount would do without it");
                let report = array::check(&devices, CheckOptions::default()).await.expect("checked");
                assert!(report.is_sound(), "{report:?}");
                if state == ZoneState::ReadOnly {
                    let mut problems = report.problems.iter().filter(|p| p.slot == Some(Slot(slot as u32)));
                    assert!(problems.any(|p| p.what.contains("works without the drive")), "{report:?}");
                }
                let array = again.open(&[]).await;
                verify_all(&device(&array)).await;
                write(&device(&array), 3, 802, 850).await;
                assert_eq!(array.status().members[slot].state, MemberState::Failed);
                assert!(array.status().worn.is_empty(), "no zone of the array is worn");
                device(&array).flush().await.expect("flushed");
                drop(array);
                let array = again.open(&[]).await;
                verify(&device(&array), 3, 0, 850).await;
            });
        }
    }
}

/// Errors of drives whose zone reports show no fault: a drive may refuse writes like a read-only one.
#[test]
fn an_error_of_the_host_fails_no_drive() {
    let bench = array_with_content();
    for (kind, blamed) in [
        (ErrorKind::Host, false),
        (ErrorKind::Unknown, false),
        (ErrorKind::Denied, false),
        (ErrorKind::TooManyActive, false),
        (ErrorKind::ZoneReadOnly, true),
    ] {
        let again = bench.copy();
        *again.drives[1].refuses.lock() = Some(kind);
        block_on(&*again.driver, async {
            let opened = Array::open(again.devices(&[]), OpenOptions::default()).await;
            if blamed {
                assert_eq!(opened.expect("opened").status().members[1].state, MemberState::Failed);
                return;
            }
            assert_eq!(opened.expect_err("refused").kind(), kind);
            *again.drives[1].refuses.lock() = None;
            let array = again.open(&[]).await;
            assert_eq!(array.status().health(), Health::Clean, "{kind:?}");
            verify_all(&device(&array)).await;
        });
    }
}

#[test]
fn a_second_drive_that_fails_at_a_mount_is_an_error_that_names_both() {
    let bench = array_with_content();
    for op in FAULT_KINDS {
        for (first, second) in [(0, 1), (3, 1), (2, 4)] {
            for missing in [true, false] {
                let again = bench.copy();
                let fail = |slot: usize| again.drives[slot].inner.fail(FaultSpec::all(op));
                fail(second);
                let without = if missing { vec![first] } else { vec![] };
                if !missing {
                    fail(first);
                }
                block_on(&*again.driver, async {
                    for _ in 0..2 {
                        let opened = Array::open(again.devices(&without), OpenOptions::default()).await;
                        let error = opened.expect_err("two drives are too many");
                        let words = error.to_string();
                        assert!(words.contains("the array does without one only"), "{op:?}: {words}");
                        assert!(words.contains(&format!("emu:{}", first.max(second))) || missing, "{words}");
                    }
                });
                // All drives work again: at most one has failed, and nothing is lost.
                let again = again.cut(3);
                block_on(&*again.driver, async {
                    let array = again.open(&[]).await;
                    assert!(array.status().health() <= Health::Degraded, "{:?}", array.status());
                    verify_all(&device(&array)).await;
                });
            }
        }
    }
}

#[test]
fn two_drives_that_came_up_read_only_are_refused_before_anything_is_written() {
    let bench = array_with_content();
    let again = bench.copy();
    for slot in [1, 4] {
        (0..11).for_each(|zone| again.drives[slot].inner.wear(ZoneId(zone), ZoneState::ReadOnly));
    }
    block_on(&*again.driver, async {
        let error = Array::open(again.devices(&[]), OpenOptions::default()).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
        assert!(error.to_string().contains("1 takes no writes, 4 takes no writes"), "{error}");
        let reported = array::status(&again.devices(&[])).await.expect("status");
        assert!(reported.superblock.members.iter().all(|member| !member.failed), "{reported:?}");
        assert_eq!((reported.health(), &reported.mount_error), (Health::Failed, &Some(error.to_string())));
        assert!(reported.advice()[0].starts_with(&format!("The array cannot be mounted: {error}")));
        let report = array::check(&again.devices(&[]), CheckOptions::default()).await.expect("checked");
        let errors: Vec<_> = report.problems.iter().filter(|p| p.severity == Severity::Error).collect();
        assert!(matches!(&errors[..], [one] if one.what == error.to_string()), "{report:?}");
    });
}

#[test]
fn a_status_finds_an_error_that_stops_a_mount_behind_the_logs() {
    let bench = array_with_content();
    let drive = &bench.drives[2];
    // The drive denies reads of its parts of zones with content.
    for (zone, _) in BLOCKS_BY_ZONE {
        drive.unreadable.lock().extend((0..480).map(|row| drive.row(zone, row)));
    }
    *drive.says.lock() = ErrorKind::Denied;
    block_on(&*bench.driver, async {
        let reported = array::status(&bench.devices(&[])).await.expect("status");
        let error = Array::open(bench.devices(&[]), OpenOptions::default()).await.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert_eq!((reported.health(), reported.mount_error), (Health::Failed, Some(error.to_string())));
        // An error of the host says nothing of the array.
        *drive.says.lock() = ErrorKind::Host;
        let unknown = array::status(&bench.devices(&[])).await.expect_err("unknown");
        assert_eq!(unknown.kind(), ErrorKind::Host);
        drive.unreadable.lock().clear();
        let reported = array::status(&bench.devices(&[])).await.expect("status");
        assert_eq!(reported.health(), Health::Clean, "{reported:?}");
    });
}

#[test]
fn a_status_changes_no_drive_and_agrees_with_the_mount_after_it() {
    let bench = array_with_content();
    let fingerprints =
        |of: &Bench| of.drives.iter().map(|drive| drive.inner.media().fingerprint()).collect::<Vec<_>>();
    for seed in 0..20 {
        let again = bench.cut(seed);
        for without in [&[][..], &[seed as usize % 5]] {
            let before = fingerprints(&again);
            block_on(&*again.driver, async {
                // Every write, flush and zone command that reached a drive would be an error.
                again.drives.iter().for_each(|drive| *drive.refuses.lock() = Some(ErrorKind::Denied));
                let reported = array::status(&again.devices(without)).await.expect("status");
                assert_eq!(reported.mount_error, None);
                assert_eq!(fingerprints(&again), before);
                again.drives.iter().for_each(|drive| *drive.refuses.lock() = None);
                let array = again.open(without).await;
                verify_all(&device(&array)).await;
                let mounted = array.status();
                assert_eq!(reported.health(), mounted.health());
                assert_eq!((&reported.worn, &reported.failed_zones), (&mounted.worn, &mounted.failed_zones));
            });
        }
    }
}
