//! Broken rules of replicas that the judge of simulated clusters finds.

use replica::BrokenRule;
use sim::{ClusterFailureKind, ClusterRules, explore_cluster};

/// Runs of an exploration that finds a broken rule.
const RUNS: u64 = 40;

/// Breaks a rule of replicas, and expects that a run from number `first` on shows it.
fn is_found(first: u64, broken_rule: BrokenRule, wanted: ClusterFailureKind) {
    let rules = ClusterRules { replica: Some(broken_rule), ..ClusterRules::default() };
    let report = explore_cluster(1, first, RUNS, rules, true);
    let found = report.failures.iter().find(|failure| failure.kind == wanted);
    let Some(found) = found else {
        panic!("{broken_rule:?} was not found in {} runs: {report:#?}", report.runs)
    };
    println!("{broken_rule:?}: run {}, {}", found.run, found.what);
    // A run that fails with the broken rule must not fail with the rule intact.
    let clean = explore_cluster(1, found.run, 1, ClusterRules::default(), false);
    assert_eq!(clean.failed(), 0, "{broken_rule:?}, with the rule intact: {clean:#?}");
}

#[test]
fn the_leader_of_the_moment_as_a_copy_is_found() {
    is_found(3, BrokenRule::LeaderOfTheMoment, ClusterFailureKind::Lost);
}

#[test]
fn a_value_that_the_leader_has_not_written_as_a_copy_is_found() {
    is_found(5, BrokenRule::Unwritten, ClusterFailureKind::Lost);
}

#[test]
fn values_that_are_dropped_at_commit_are_found() {
    is_found(0, BrokenRule::DropAtCommit, ClusterFailureKind::Lost);
}

#[test]
fn an_office_that_ends_by_an_election_is_found() {
    is_found(3, BrokenRule::Unrelieved, ClusterFailureKind::Lost);
}

#[test]
fn a_removal_that_counts_no_copies_is_found() {
    is_found(68, BrokenRule::FreeRemoval, ClusterFailureKind::Lost);
}

#[test]
fn a_snapshot_that_counts_before_the_tables_hold_it_is_found() {
    is_found(4, BrokenRule::EarlySnapshot, ClusterFailureKind::Lost);
}

#[test]
fn a_vote_while_a_lease_lasts_is_found() {
    is_found(180, BrokenRule::EarlyVote, ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_lease_that_lasts_while_leadership_is_handed_over_is_found() {
    is_found(5, BrokenRule::LeaseInTransfer, ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_lease_that_counts_from_the_receipt_is_found() {
    is_found(890, BrokenRule::LeaseFromReceipt, ClusterFailureKind::NotLinearizable);
}
