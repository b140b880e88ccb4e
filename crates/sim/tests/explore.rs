//! Short crash explorations of every target: every count of defects is zero. `FURROW_CRASH_STATES=N` asks for N states per target;
//! `scripts/crash.sh` explores many more.

use std::fmt::Write as _;

use sim::{CrashOptions, Report, Target, crash};

fn explore(target: Target, seed: u64, states: u64) {
    run(CrashOptions::new(target, seed, states));
}

fn run(options: CrashOptions) {
    let asked = std::env::var("FURROW_CRASH_STATES").ok().and_then(|n| n.parse().ok());
    let (target, states) = (options.target, asked.unwrap_or(options.states));
    let options = CrashOptions { states, ..options };
    let report = crash(&options).expect("the exploration runs");
    assert!(report.is_clean(), "{target}: {}", describe(&report));
    assert!(report.states >= states, "{target}: {} of {states} states", report.states);
}

fn describe(report: &Report) -> String {
    let mut text = format!(
        "{} states: {} lost, {} invented, {} mount failures, {} check failures",
        report.states, report.lost, report.invented, report.mount_failures, report.check_failures
    );
    for failure in report.failures.iter().take(8) {
        let _infallible =
            write!(text, "\n  {:?}: {}\n    {}", failure.kind, failure.what, failure.replay_command);
    }
    text
}

#[test]
fn no_power_cut_breaks_the_file_system() {
    explore(Target::Fs, 1, 4_000);
}

#[test]
fn no_power_cut_breaks_a_log() {
    explore(Target::Log, 2, 3_000);
}

#[test]
fn no_power_cut_breaks_a_parallel_log() {
    explore(Target::Waltz, 4, 3_000);
}

#[test]
fn no_power_cut_breaks_a_stage() {
    explore(Target::Stage, 9, 3_000);
}

#[test]
fn no_power_cut_breaks_a_log_in_a_file() {
    explore(Target::Prio, 10, 3_000);
}

#[test]
fn no_power_cut_breaks_the_log_of_groups() {
    explore(Target::Groups, 11, 3_000);
}

#[test]
fn no_power_cut_breaks_the_tables_of_groups() {
    explore(Target::Tables, 12, 1_000);
}

#[test]
fn no_power_cut_breaks_the_engine() {
    explore(Target::Engine, 3, 1_000);
}

#[test]
fn no_power_cut_breaks_leveldb() {
    explore(Target::LevelDb, 7, 2_000);
}

#[test]
fn no_power_cut_breaks_leveldb_on_an_array() {
    run(CrashOptions { on_array: true, ..CrashOptions::new(Target::LevelDb, 8, 300) });
}

#[test]
fn no_power_cut_breaks_the_file_system_on_an_array() {
    run(CrashOptions { on_array: true, ..CrashOptions::new(Target::Fs, 5, 300) });
}

#[test]
fn no_power_cut_breaks_the_engine_on_an_array() {
    run(CrashOptions { on_array: true, ..CrashOptions::new(Target::Engine, 6, 200) });
}

#[test]
fn no_power_cut_breaks_an_array() {
    explore(Target::Array, 4, 1_000);
}

/// Checks one state of the target `array` alone.
fn check_array_state(seed: u64, state: &str) {
    let only = Some(state.parse().expect("a state's name"));
    let report = crash(&CrashOptions { only, ..CrashOptions::new(Target::Array, seed, 1) })
        .expect("the workload has this state: where workloads change, look for another one");
    assert_eq!((report.states, report.is_clean()), (1, true), "{:?}", report.failures);
}

/// A write of a zone is refused while a part of the zone is copied from the other parts: the zone's end falls back into a stripe that was whole when the copy began.
/// The state was found by an exploration with `during: Reclaim`.
#[test]
fn a_part_that_is_copied_while_a_write_is_refused_keeps_what_is_durable() {
    check_array_state(180_558_309, "197.3018.s0");
}

/// A drive fills its part of a zone at a power cut, inside the zone's last stripe; the power is cut again while the mount writes that stripe's parity, and the drive is lost.
#[test]
fn a_mount_that_is_cut_adds_no_block_to_the_last_stripe_of_a_zone() {
    check_array_state(161_253_710, "12.3512.s0");
}
