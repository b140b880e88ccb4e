//! The rates of profiles beside the published rates of their drives: the rows of `furrow figures profiles`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use figures::closed_loop::{ClosedLoop, Kind, Measured};
use figures::profiles::{self, CheckedRow};
use figures::{PROFILES, Run};

/// Prints all rows and fails with those that miss the published rates.
fn check(rows: zoned::Result<Vec<CheckedRow>>) {
    let rows = rows.unwrap();
    let mut missed = Vec::new();
    for checked in &rows {
        let (row, off) = (&checked.row, checked.row.ratio().unwrap() - 1.0);
        let paper = row.paper.unwrap();
        let (x, unit) = (row.x.to_string(), row.unit.name());
        let line = format!("{x:<44} {paper:>11.3} {:>11.3} {unit:<5} {:>+6.1} %", row.ours, off * 100.0);
        println!("{line}");
        if off.abs() > checked.within {
            missed.push(format!("{line}, {} % allowed", checked.within * 100.0));
        }
    }
    assert!(missed.is_empty(), "{} of {} miss:\n{}", missed.len(), rows.len(), missed.join("\n"));
}

#[test]
fn confzns_is_as_the_zwal_artefact_measured() {
    check(profiles::confzns());
}

#[test]
fn zn540_writes_are_as_published() {
    check(profiles::zn540_writes());
}

#[test]
fn zn540_under_io_uring_is_as_published() {
    check(profiles::zn540_io_uring());
}

#[test]
fn zn540_reads_are_as_published() {
    check(profiles::zn540_reads());
}

#[test]
fn zn540_reads_beside_writes_are_as_published() {
    check(profiles::zn540_reads_beside_writes());
}

#[test]
fn zn540_zone_commands_are_as_published() {
    check(profiles::zn540_zone_commands());
}

#[test]
fn smallzone_is_as_published() {
    check(profiles::smallzone());
}

#[test]
fn the_figure_has_every_published_number_once() {
    let rows = PROFILES.rows(&Run::default()).unwrap();
    let mut names: Vec<String> =
        rows.iter().map(|row| format!("{}, {}, {}", row.series, row.x, row.unit.name())).collect();
    assert_eq!(names.len(), NUMBERS, "{names:#?}");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), NUMBERS);
}

/// Number of published rates: confzns 10, zn540 25 + 5 + 8 + 10 + 16, smallzone 4.
const NUMBERS: usize = 78;

fn run(url: &str, kind: Kind, bytes: usize, depth: u32, count: usize) -> Measured {
    ClosedLoop { kind, bytes, depth, zones: 1, count }.on(url).unwrap()
}

#[test]
fn dilation_stretches_every_time_and_nothing_else() {
    for kind in [Kind::Append, Kind::Random] {
        let plain = run("profile=zn540&zones=4", kind, 8192, 4, 2000);
        let slow = run("profile=zn540&zones=4&dilated=10", kind, 8192, 4, 2000);
        assert_eq!((plain.kiops() * 1e3).round(), (slow.kiops() * 1e4).round());
        assert_eq!((plain.mean() * 10.0).round(), slow.mean().round());
    }
}

#[test]
fn the_same_run_takes_the_same_time() {
    let time = || run("profile=zn540&zones=4", Kind::Random, 4096, 16, 2000).seconds().to_bits();
    assert_eq!(time(), time());
}
