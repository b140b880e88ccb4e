//! Proof that simulated groups find each broken rule of turns, and that the same runs with the rules intact are clean.

use sim::{TurnsReport, TurnsRules, explore_turns};
use turns::BrokenRule;

/// Number of runs within which a broken rule must show.
const MAX_RUNS: u64 = 1000;

fn is_found(seed: u64, rules: TurnsRules) -> String {
    let broken = explore_turns(seed, 0, MAX_RUNS, rules, true);
    let failure =
        broken.failures.first().unwrap_or_else(|| panic!("{rules:?} was not found in {} runs", broken.runs));
    let intact = explore_turns(seed, failure.run, 1, TurnsRules::default(), true);
    assert_eq!(intact.failures, [], "with the rule intact");
    assert_eq!(intact.runs, 1);
    failure.what.clone()
}

fn leader(rule: BrokenRule) -> TurnsRules {
    TurnsRules { leader: Some(rule), ..TurnsRules::default() }
}

#[test]
fn a_lease_that_is_not_waited_out_is_found() {
    let what = is_found(1, leader(BrokenRule::Lease));
    assert!(what.contains("turns at once"), "{what}");
}

#[test]
fn a_drift_that_is_not_waited_out_is_found() {
    let what = is_found(1, leader(BrokenRule::Drift));
    assert!(what.contains("turns at once"), "{what}");
}

#[test]
fn a_grant_that_rests_on_stale_reports_is_found() {
    let what = is_found(1, leader(BrokenRule::StaleReports));
    assert!(what.contains("too few undisturbed voters"), "{what}");
}

#[test]
fn a_turn_that_ends_before_its_snapshot_is_durable_is_found() {
    let what = is_found(1, TurnsRules { written_is_durable: true, ..TurnsRules::default() });
    assert!(what.contains("turns at once") || what.contains("too few undisturbed voters"), "{what}");
}

#[test]
fn the_turn_of_a_node_that_leaves_and_returns_and_is_forgotten_is_found() {
    let what = is_found(1, leader(BrokenRule::RemovedNodes));
    assert!(what.contains("turns at once"), "{what}");
}

#[test]
fn a_leader_that_takes_turns_like_any_node_is_found() {
    let what = is_found(1, leader(BrokenRule::LeaderLikeAny));
    assert!(what.contains("can hand over, and begins a turn"), "{what}");
}

#[test]
fn a_choice_by_entries_and_bytes_is_found() {
    let what = is_found(1, leader(BrokenRule::EntriesAndBytes));
    assert!(what.contains("never had its turn") || what.contains("hard limit"), "{what}");
}

#[test]
fn groups_take_turns_and_a_seed_repeats_them() {
    let runs = |seed| explore_turns(seed, 0, 300, TurnsRules::default(), false);
    let report: TurnsReport = runs(7);
    assert_eq!((report.runs, report.failed), (300, 0), "{:?}", report.failures);
    assert!(report.snapshots > 1_000 && report.forced > 0, "{report:?}");
    assert_eq!(report, runs(7));
}
