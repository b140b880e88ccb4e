//! Unreadable blocks of a metadata log at a mount: the drive is left out whichever records are unreadable, the drive is not
//! overwritten before its replacement, and nothing is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::PLACEMENT;
use crate::common::{Bench, METADATA_ZONES, device, verify, verify_all, write, write_content};
use array::{
    Array, CheckOptions, Health, MemberState, OpenOptions, Placement, RecordDump, ScrubOptions, Slot,
};
use units::{block_on, sleep_until};
use zoned::{Action, Blocks, Bytes, Durability, ErrorKind, Lba, ZoneId, ZonedDevice};

/// An array with log records of every kind that an array in use writes.
fn array_with_records() -> Bench {
    let bench = Bench::new(1);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        let dev = device(&array);
        write(&dev, 5, 0, 60).await;
        write_content(&dev).await;
        dev.zone(ZoneId(5), Action::Reset).await.expect("reset");
        // Every drive gets unreadable rows of data and of parity, each in a stripe of its own.
        for stripe in 0..25 {
            let drive = &bench.drives[stripe as usize / 5];
            drive.unreadable.lock().insert(drive.row(0, 4 * stripe + 1));
        }
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.repaired, report.lost), (report.read_errors, 0), "{report:?}");
        dev.flush().await.expect("flushed");
    });
    bench
}

fn log_records(bench: &Bench, slot: usize) -> Vec<RecordDump> {
    let drive = Arc::clone(&bench.drives[slot]) as Arc<dyn ZonedDevice>;
    block_on(&*bench.driver, array::dump(&[drive])).expect("dumped").remove(0).records
}

/// Opens an array whose drive in `slot` has unreadable metadata, replaces the drive, and waits for the rebuild.
fn assert_rebuilt(bench: &Bench, slot: usize, what: &str) {
    block_on(&*bench.driver, async {
        let reported = array::status(&bench.devices(&[])).await.expect("status");
        let array = bench.open(&[]).await;
        verify_all(&device(&array)).await;
        let state = array.status().members[slot].state;
        // A drive with an unreadable superblock belongs to no known array.
        let reported = reported.members[slot].state;
        assert!(
            reported == state || reported == MemberState::Missing,
            "{what}: {reported:?} before the mount, {state:?} after"
        );
        match array.rebuild() {
            Some(rebuild) => {
                assert_eq!(state, MemberState::Rebuilding, "{what}");
                rebuild.wait().await.expect("rebuilt");
            }
            // A drive that was a good member is not reset without an order.
            None => {
                assert_eq!(state, MemberState::Failed, "{what}");
                let same = Arc::clone(&bench.drives[slot]) as Arc<dyn ZonedDevice>;
                array.replace(Slot(slot as u32), same).await.expect("replaced by itself");
            }
        }
        assert_eq!(array.status().health(), Health::Clean, "{what}");
        verify_all(&device(&array)).await;
        let report = array.scrub(ScrubOptions::default()).await.expect("scrubbed");
        assert_eq!((report.lost, report.mismatch_count), (0, 0), "{what}: {report:?}");
        device(&array).flush().await.expect("flushed");
    });
    // Blocks that were unreadable are readable after they are written again.
    bench.drives[slot].unreadable.lock().clear();
    block_on(&*bench.driver, async {
        let array = bench.open(&[(slot + 1) % 5]).await;
        assert!(array.rebuild().is_none(), "{what}");
        verify_all(&device(&array)).await;
    });
}

#[test]
fn an_unreadable_record_of_any_kind_loses_no_data() {
    let bench = array_with_records();
    let mut kinds = BTreeSet::new();
    for slot in 0..5 {
        let mut seen = BTreeSet::new();
        for record in log_records(&bench, slot).into_iter().rev() {
            if !seen.insert(record.kind) {
                continue;
            }
            kinds.insert(record.kind);
            // The record's unreadable block is its header, or the end of its payload.
            for block in BTreeSet::from([record.block, record.block + record.blocks - 1]) {
                let again = bench.cut(slot as u64);
                let at = again.drives[slot].inner.geometry().start(record.metadata_zone).plus(Blocks(block));
                again.drives[slot].unreadable.lock().insert(at);
                assert_rebuilt(&again, slot, &format!("drive {slot}, block {block}: {record:?}"));
            }
        }
    }
    let wanted = BTreeSet::from([
        "superblock",
        "zones",
        // A stored map ends without an intent.
        if PLACEMENT == Placement::Stored { "maps" } else { "reset-intent" },
        "partial-parity",
        "relocated",
        "relocated-data",
        "hidden",
        "checkpoint-end",
    ]);
    assert_eq!(kinds, wanted);
}

/// The last block of the last record of a kind in a drive's log.
fn last_block_of_kind(bench: &Bench, slot: usize, kind: &str) -> Option<Lba> {
    let record = log_records(bench, slot).into_iter().rfind(|record| record.kind == kind)?;
    let start = bench.drives[slot].inner.geometry().start(record.metadata_zone);
    Some(start.plus(Blocks(record.block + record.blocks - 1)))
}

#[test]
fn zones_whose_rebuild_notes_are_unreadable_are_copied_again() {
    let bench = array_with_records();
    let new = Bench::drive(&bench.driver, 9);
    block_on(&*bench.driver, async {
        let array = bench.open(&[2]).await;
        let device = Arc::clone(&new) as Arc<dyn ZonedDevice>;
        let rebuild = array.start_replace(Slot(2), device, array::RebuildOptions::default()).await;
        let rebuild = rebuild.expect("begun");
        while rebuild.progress().zones_done < 2 {
            sleep_until(&*bench.driver, bench.driver.now().after(Duration::from_micros(50))).await;
        }
    });
    let mut bench = bench;
    bench.drives[2] = new;
    let bench = bench.cut(3);
    let noted = last_block_of_kind(&bench, 2, "rebuilt").expect("zones are noted");
    bench.drives[2].unreadable.lock().insert(noted);
    assert_rebuilt(&bench, 2, "a note");
}

#[test]
fn a_zone_whose_copy_is_unreadable_is_rebuilt_from_the_other_drives() {
    let mut met = 0;
    for after in (4..200).step_by(3) {
        let bench = array_with_records();
        // Garbage above the pointer of zone 3 makes rows stale: the mount rewrites the zone, and the power is cut during the
        // rewrite. A zone with a stored map is rewritten if its relocated content does not fit the logs.
        let garbage = if PLACEMENT == Placement::Stored { 3 } else { 1 };
        let raw = Arc::clone(&bench.drives[1].inner) as Arc<dyn ZonedDevice>;
        block_on(&*bench.driver, async {
            let zone = ZoneId(3 + METADATA_ZONES);
            let info = raw.report(zone.0..zone.0 + 1).await.expect("reported")[0];
            let at = raw.geometry().start(zone).plus(Blocks(info.pointer.0));
            for n in 0..garbage {
                let blocks = crate::common::blocks(9, 46 * n, 46 * (n + 1));
                raw.write(at.plus(Blocks(46 * n)), blocks, Durability::Durable).await.expect("written");
            }
            bench.drives[1].unplug(after);
            let options = OpenOptions { rebuild_above: Bytes(0), ..OpenOptions::default() };
            drop(Array::open(bench.devices(&[]), options).await);
            bench.drives[1].unplug(i64::MAX);
        });
        let Some(record) = last_block_of_kind(&bench, 1, "swap") else { continue };
        met += 1;
        // The copy of the zone is in the metadata zone behind the next one.
        let copied = ZoneId((record.0 as u32 / 512 + 2) % METADATA_ZONES);
        for bad in [record, bench.drives[1].inner.geometry().start(copied).plus(Blocks(1))] {
            let again = bench.cut(after as u64);
            again.drives[1].unreadable.lock().insert(bad);
            assert_rebuilt(&again, 1, &format!("after {after}, block {bad:?}"));
        }
        if met == 3 {
            break;
        }
    }
    assert_eq!(met, 3, "no mount was cut while a zone was being rewritten");
}

/// The epoch of the first record in each metadata zone of a drive, and whether its checkpoint is complete.
fn epochs_in_metadata_zones(bench: &Bench, slot: usize) -> Vec<(u64, bool, Lba)> {
    let records = log_records(bench, slot);
    let whole = |epoch| records.iter().any(|r| r.epoch == epoch && r.kind == "checkpoint-end");
    let start = |zone| bench.drives[slot].inner.geometry().start(zone);
    // The unreadable record is one behind the superblock, which makes the drive a member.
    let second = records.iter().filter(|record| matches!(record.kind, "zones" | "maps"));
    let mut found: Vec<_> =
        second.map(|r| (r.epoch, whole(r.epoch), start(r.metadata_zone).plus(Blocks(r.block)))).collect();
    found.sort_unstable();
    found.dedup_by_key(|(epoch, ..)| *epoch);
    found
}

#[test]
fn an_unreadable_block_of_an_old_epoch_leaves_no_drive_out() {
    let (mut over, mut counts) = (0, 0);
    for after in 8..120 {
        let bench = array_with_records();
        // A mount that a power cut ends leaves two epochs.
        block_on(&*bench.driver, async {
            bench.drives.iter().for_each(|drive| drive.unplug(after));
            drop(Array::open(bench.devices(&[]), OpenOptions::default()).await);
        });
        let bench = bench.cut(after as u64);
        let all: Vec<_> = (0..5).map(|slot| epochs_in_metadata_zones(&bench, slot)).collect();
        let Some((old, _, at)) = all[1].first().copied().filter(|_| all[1].len() > 1) else { continue };
        let newest = all[1][1].0;
        let is_over =
            all.iter().all(|known| known.iter().any(|(epoch, whole, _)| (*epoch, *whole) == (newest, true)));
        bench.drives[1].unreadable.lock().insert(at);
        block_on(&*bench.driver, async {
            let array = bench.open(&[]).await;
            verify_all(&device(&array)).await;
            let health = array.status().health();
            let wanted = if is_over { Health::Clean } else { Health::Degraded };
            assert_eq!(health, wanted, "after {after}: epochs {old} and {newest}: {all:?}");
        });
        over += u32::from(is_over);
        counts += u32::from(!is_over);
    }
    assert!(over > 0 && counts > 0, "{over} mounts were cut after the new epoch counted, {counts} before");
}

#[test]
fn two_drives_with_unreadable_metadata_are_an_error_that_names_them() {
    let bench = array_with_records();
    for slot in [1, 3] {
        let at = last_block_of_kind(&bench, slot, "partial-parity").expect("logged");
        bench.drives[slot].unreadable.lock().insert(at);
    }
    block_on(&*bench.driver, async {
        for without in [&[][..], &[1], &[4]] {
            let error =
                Array::open(bench.devices(without), OpenOptions::default()).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Gone, "{error}");
            assert!(error.to_string().contains("3 cannot read its metadata"), "{error}");
        }
        // Reading an array's status writes nothing, and reports what a mount would do.
        bench.drives[1].unreadable.lock().clear();
        let report = array::check(&bench.devices(&[]), CheckOptions::default()).await.expect("checked");
        let words = report.problems.iter().filter(|problem| problem.slot == Some(Slot(3)));
        assert!(words.clone().any(|problem| problem.what.contains("works without the drive")), "{report:?}");
        let status = array::status(&bench.devices(&[])).await.expect("status");
        assert_eq!((status.health(), status.members[3].state), (Health::Degraded, MemberState::Failed));
        let array = bench.open(&[]).await;
        verify(&device(&array), 3, 0, 802).await;
    });
}

#[test]
fn a_drive_that_does_not_answer_is_left_out() {
    let bench = array_with_records();
    bench.drives[2].unplug(0);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        verify_all(&device(&array)).await;
        assert_eq!(array.status().health(), Health::Degraded);
        assert_eq!(array.status().members[2].state, MemberState::Failed);
    });
}
