//! Tests of a program that kills itself at random moments, while its threads run every operation that can end a
//! record's life in the parallel log.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::disallowed_methods, reason = "a test")]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

mod common;
use common::{compile, drive_url, output_text, plugin};

/// Environment variable that overrides the number of runs of the killed program.
const RUNS_VARIABLE: &str = "FURROW_KILLED_RUNS";
const DEFAULT_RUNS: u64 = 24;
/// The number of runs of the killed program on one drive.
const RUNS_PER_DRIVE: u64 = 6;

/// The program on half of the drives uses merges and ingested files, so that its batches get marks.
#[test]
fn a_program_that_is_killed_at_random_finds_what_was_acknowledged() {
    let program = compile("killed.cc", "killed", &[]);
    let runs = std::env::var(RUNS_VARIABLE).map_or(DEFAULT_RUNS, |runs| runs.parse().unwrap());
    for first in (1..=runs).step_by(usize::try_from(RUNS_PER_DRIVE).unwrap()) {
        let drive = tempfile::tempdir().unwrap();
        let journal = drive.path().join("journal");
        let way = if (first / RUNS_PER_DRIVE).is_multiple_of(2) { "plain" } else { "exact" };
        let mut asserted = 0;
        let mut run = |seed: u64, way: &str| {
            let wal = if seed.is_multiple_of(2) { "waltz" } else { "auto" };
            let mut command = Command::new(&program);
            command.arg(drive_url(drive.path())).arg(&journal).arg(seed.to_string()).arg(way);
            let output = command.env("FURROW_WAL", wal).env("LD_PRELOAD", plugin()).output().unwrap();
            let killed = way != "check" && output.status.signal() == Some(9);
            // Debian's RocksDB 7.8 asserts that all families of a flush have one reason, which two racing flushes can
            // violate. The assertion counts as a kill.
            let abort = way != "check" && output.status.signal() == Some(6);
            let reason = abort && output_text(&output).contains("GetFlushReason()");
            asserted += usize::from(reason);
            let fine = output.status.success() || killed || reason;
            assert!(fine, "seeds {first} to {seed}, {way}, {wal}: {}", output_text(&output));
        };
        (first..first + RUNS_PER_DRIVE).for_each(|seed| run(seed, way));
        run(first + RUNS_PER_DRIVE, "check");
        assert!(
            asserted <= 1,
            "{asserted} of {RUNS_PER_DRIVE} runs from seed {first} ended in RocksDB's assertion"
        );
    }
}
