//! Check, dump and destruction of an array that is not assembled.

use crate::common::{Bench, device, write_content};
use array::{Array, CheckOptions, MemberState, OpenOptions, Severity, Slot, check, destroy, dump, status};
use units::block_on;
use zoned::{ErrorKind, ZoneState};

const DEEP_CHECK: CheckOptions = CheckOptions { deep: true };

fn array_with_content(seed: u64) -> Bench {
    let bench = Bench::new(seed);
    block_on(&*bench.driver, async {
        let array = bench.open(&[]).await;
        write_content(&device(&array)).await;
    });
    bench
}

#[test]
fn a_check_of_a_sound_array_reports_nothing_and_writes_nothing() {
    let bench = array_with_content(1);
    block_on(&*bench.driver, async {
        let before = dump(&bench.devices(&[])).await.expect("dumped");
        for options in [CheckOptions::default(), DEEP_CHECK] {
            let report = check(&bench.devices(&[]), options).await.expect("checked");
            assert_eq!(report.problems, [], "{report:?}");
            assert_eq!((report.zones, report.is_sound()), (5, true));
        }
        assert_eq!(dump(&bench.devices(&[])).await.expect("dumped"), before);
    });
}

#[test]
fn a_check_finds_mismatches_and_unreadable_blocks() {
    let bench = array_with_content(2);
    block_on(&*bench.driver, async {
        bench.drives[2].flipped.lock().insert(bench.drives[2].row(0, 41));
        bench.drives[3].unreadable.lock().insert(bench.drives[3].row(4, 9));
        let shallow = check(&bench.devices(&[]), CheckOptions::default()).await.expect("checked");
        assert!(shallow.is_sound());
        let report = check(&bench.devices(&[]), DEEP_CHECK).await.expect("checked");
        let found: Vec<(Severity, Option<Slot>, u32)> = report
            .problems
            .iter()
            .map(|problem| (problem.severity, problem.slot, problem.zone.expect("of a zone").0))
            .collect();
        assert_eq!(found, [(Severity::Error, None, 0), (Severity::Error, Some(Slot(3)), 4)], "{report:?}");
        assert!(report.problems[0].what.contains("stripe 10 "), "{report:?}");
    });
}

#[test]
fn a_missing_drive_and_worn_zones_are_warnings_and_two_missing_drives_an_error() {
    let bench = array_with_content(3);
    block_on(&*bench.driver, async {
        bench.drives[0].inner.wear(zoned::ZoneId(5), ZoneState::ReadOnly);
        let report = check(&bench.devices(&[4]), DEEP_CHECK).await.expect("checked");
        assert!(report.is_sound() && report.zones == 5, "{report:?}");
        assert_eq!(report.status.members[4].state, MemberState::Missing);
        assert!(report.problems.iter().any(|p| p.slot == Some(Slot(4)) && p.what.contains("missing")));
        assert!(report.problems.iter().any(|p| p.slot == Some(Slot(0)) && p.what.contains("ReadOnly")));
        let report = check(&bench.devices(&[1, 4]), DEEP_CHECK).await.expect("checked");
        assert!(!report.is_sound());
        assert!(report.problems[0].what.contains("does without one drive only"), "{report:?}");
    });
}

#[test]
fn a_dump_lists_the_records() {
    let bench = array_with_content(4);
    block_on(&*bench.driver, async {
        let drives = dump(&bench.devices(&[])).await.expect("dumped");
        assert_eq!(drives.len(), 5);
        for (drive, slot) in drives.iter().zip((0..).map(Slot)) {
            let (claimed, superblock) = drive.claim.as_ref().expect("a member");
            assert_eq!((*claimed, superblock.members.len(), drive.zones.len()), (slot, 5, 3));
            let kinds: Vec<&str> = drive.records.iter().map(|record| record.kind).collect();
            assert_eq!(kinds.first(), Some(&"superblock"));
            assert!(kinds.contains(&"zones") && kinds.contains(&"checkpoint-end"), "{kinds:?}");
        }
        let all = || drives.iter().flat_map(|drive| &drive.records);
        let partial = all().find(|record| record.kind == "partial-parity").expect("some");
        assert!(partial.text.contains("zone") && partial.text.contains("bytes"), "{partial:?}");
        assert!(all().all(|record| record.block + record.blocks <= 480));
    });
}

#[test]
fn a_destroyed_array_is_not_found() {
    let bench = array_with_content(5);
    block_on(&*bench.driver, async {
        let names = destroy(&bench.devices(&[2])).await.expect("ended");
        assert_eq!(names.len(), 4);
        let error = status(&bench.devices(&[2])).await.expect_err("none");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(destroy(&bench.devices(&[2])).await.expect_err("none").kind(), ErrorKind::NotFound);
        // A member that was absent when the array was destroyed cannot be mounted alone.
        assert!(Array::open(bench.devices(&[]), OpenOptions::default()).await.is_err());
        assert!(dump(&bench.devices(&[2])).await.expect("dumped").iter().all(|drive| drive.claim.is_none()));
    });
}
