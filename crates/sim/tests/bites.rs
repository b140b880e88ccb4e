//! Broken rules of replicas and groups that the judge of simulated clusters finds.

use sim::{ClusterFailureKind, ClusterRules, NodeRule, explore_cluster};

/// The most runs of an exploration with a broken rule. Each rule is found in far fewer.
const RUNS: u64 = 2_000;

/// Breaks a rule, and expects that a run shows it. A run that fails with the broken rule must not fail with the rule intact.
fn is_found(rules: ClusterRules, wanted: ClusterFailureKind) {
    // A run that fails in another way first does not count.
    let mut first = 0;
    let found = loop {
        let report = explore_cluster(1, first, RUNS.saturating_sub(first), rules, true);
        let Some(last) = report.failures.last() else { panic!("{rules:?} was not found in {RUNS} runs") };
        first = last.run + 1;
        if let Some(found) = report.failures.into_iter().find(|failure| failure.kind == wanted) {
            break found;
        }
    };
    println!("{rules:?}: run {}, {}", found.run, found.what);
    let clean = explore_cluster(1, found.run, 1, ClusterRules::default(), false);
    assert_eq!(clean.failed(), 0, "{rules:?}, with the rule intact: {clean:#?}");
    // The printed command is one run of that number, which fails again in the same way.
    let command = format!("furrow crash --target cluster --seed 1 --from {} --runs 1", found.run);
    assert_eq!(found.replay_command, command);
    let again = explore_cluster(1, found.run, 1, rules, false);
    assert_eq!(again.failures.first(), Some(&found));
}

fn replica(broken_rule: replica::BrokenRule) -> ClusterRules {
    ClusterRules { replica: Some(broken_rule), ..ClusterRules::default() }
}

fn shard(broken_rule: shard::BrokenRule) -> ClusterRules {
    ClusterRules { shard: Some(broken_rule), ..ClusterRules::default() }
}

fn node(broken_rule: NodeRule) -> ClusterRules {
    ClusterRules { node: Some(broken_rule), ..ClusterRules::default() }
}

#[test]
fn a_replica_that_is_deleted_before_its_group_has_left_it_out_is_found() {
    is_found(node(NodeRule::DeletesUnasked), ClusterFailureKind::Lost);
}

#[test]
fn a_replica_that_begins_again_with_its_old_number_is_found() {
    is_found(node(NodeRule::KeepsName), ClusterFailureKind::Lost);
}

#[test]
fn logs_compared_by_their_indexes_alone_are_found() {
    is_found(replica(replica::BrokenRule::IndexAlone), ClusterFailureKind::Lost);
}

#[test]
fn elections_that_are_left_to_witnesses_are_found() {
    is_found(replica(replica::BrokenRule::AdoptedIndex), ClusterFailureKind::Stuck);
}

#[test]
fn entries_that_are_discarded_because_one_backup_lacks_them_are_found() {
    is_found(replica(replica::BrokenRule::NullDiscards), ClusterFailureKind::Lost);
}

#[test]
fn values_that_are_dropped_at_commit_are_found() {
    is_found(replica(replica::BrokenRule::DropAtCommit), ClusterFailureKind::Lost);
}

#[test]
fn the_leader_of_the_moment_as_a_copy_is_found() {
    is_found(replica(replica::BrokenRule::LeaderOfTheMoment), ClusterFailureKind::Lost);
}

#[test]
fn a_stable_index_without_backups_is_found() {
    is_found(replica(replica::BrokenRule::StableWithoutBackups), ClusterFailureKind::Lost);
}

#[test]
fn a_leader_that_reads_before_it_commits_is_found() {
    is_found(replica(replica::BrokenRule::ProvisionalRead), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_pull_that_is_answered_by_an_older_record_is_found() {
    is_found(shard(shard::BrokenRule::PullWithoutIndex), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_vote_while_a_lease_lasts_is_found() {
    is_found(replica(replica::BrokenRule::EarlyVote), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_removal_that_counts_no_copies_is_found() {
    is_found(replica(replica::BrokenRule::FreeRemoval), ClusterFailureKind::Lost);
}

#[test]
fn a_vote_right_after_a_start_is_found() {
    is_found(replica(replica::BrokenRule::ForgottenVote), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_lease_that_counts_from_the_receipt_is_found() {
    is_found(replica(replica::BrokenRule::LeaseFromReceipt), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_lease_that_lasts_while_leadership_is_handed_over_is_found() {
    is_found(replica(replica::BrokenRule::LeaseInTransfer), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_key_that_expires_by_each_clock_is_found() {
    is_found(shard(shard::BrokenRule::ExpiryByClock), ClusterFailureKind::NotLinearizable);
}

#[test]
fn a_value_that_the_leader_has_not_written_as_a_copy_is_found() {
    is_found(replica(replica::BrokenRule::Unwritten), ClusterFailureKind::Lost);
}

#[test]
fn an_office_that_ends_by_an_election_is_found() {
    is_found(replica(replica::BrokenRule::Unrelieved), ClusterFailureKind::Lost);
}

#[test]
fn a_snapshot_that_counts_before_the_tables_hold_it_is_found() {
    is_found(replica(replica::BrokenRule::EarlySnapshot), ClusterFailureKind::Lost);
}

#[test]
fn a_group_that_is_raised_above_a_member_s_program_is_found() {
    is_found(replica(replica::BrokenRule::RaiseUnasked), ClusterFailureKind::Stuck);
}

#[test]
fn a_base_in_a_version_that_the_group_has_not_is_found() {
    is_found(replica(replica::BrokenRule::NewestBase), ClusterFailureKind::Stuck);
}
