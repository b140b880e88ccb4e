//! Traces in which rules of chapter 3 of the CANDStore thesis lose an acknowledged update, answer a read with the past, or stop a group, and what Furrow's rules make of the same steps.
//!
//! Replicas: a primary `P`, backups `B1` and `B2`, witnesses `W1` and `W2`.

#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test may panic")]

#[path = "thesis/exhaustive.rs"]
mod exhaustive;
#[path = "thesis/model.rs"]
mod model;
#[path = "thesis/walk.rs"]
mod walk;

use model::{Drop, Group, LogOrder, Quorum, Read, Replica, Rules};
use replica::Role;

const P: Replica = 0;
const B1: Replica = 1;
const B2: Replica = 2;
const W1: Replica = 3;
const W2: Replica = 4;

/// An update `update` on all of `to`, acknowledged.
fn write(group: &mut Group, leader: Replica, update: u32, to: &[Replica]) {
    group.append(leader, update);
    to.iter().for_each(|to| group.send(leader, *to));
    group.commit(leader);
    assert!(group.has_acknowledged(update), "{group:?}");
}

/// Section 3.5.1: logs compared by their last index.
#[test]
fn an_index_alone_elects_who_lacks_a_committed_update() {
    let run = |rules: Rules| {
        let mut group = Group::new(2, rules);
        group.append(P, 1);
        assert!(group.elect(W1, &[W2, B1, B2]));
        write(&mut group, W1, 2, &[B1, B2]);
        let wins = group.elect(P, &[W2, B1]);
        (wins, wins && !group.lost(P, 0).is_empty())
    };
    assert_eq!(run(Rules::THESIS), (true, true));
    assert_eq!(run(Rules { order: LogOrder::TermAndIndex, ..Rules::THESIS }), (false, false));
    assert_eq!(run(Rules::FURROW), (false, false));
}

/// Section 3.5.1: a refused witness adopts the voter's index. The reply has no term, so that a comparison of terms refuses the witness for ever, and a backup may not stand.
#[test]
fn an_adopted_index_elects_nobody() {
    let run = |rules: Rules| {
        let mut group = Group::new(2, rules);
        write(&mut group, P, 1, &[B1, B2]);
        group.lose(P);
        for _ in 0..3 {
            if group.elect(W1, &[W2, B1, B2]) || group.elect(W2, &[W1, B1, B2]) {
                return Some(W1);
            }
        }
        // A backup that refuses a stale witness stands itself, and hands over.
        (group.elect(B1, &[B2, W1, W2]) && group.hand_over(B1, W1, &[B2, W2])).then(|| {
            assert!(group.lost(W1, 0).is_empty());
            W1
        })
    };
    assert_eq!(run(Rules { order: LogOrder::TermAndIndex, ..Rules::THESIS }), None);
    assert_eq!(run(Rules::FURROW), Some(W1));
}

/// Sections 3.5.2 and 3.7.1: one backup's null discards, but a witness stood in for that backup.
#[test]
fn a_null_discards_what_a_witness_committed() {
    let run = |rules: Rules| {
        let mut group = Group::new(2, rules);
        group.suspect(B2);
        write(&mut group, P, 1, &[B1, W1]);
        group.lose(P);
        if group.elect(W2, &[W1, B2]) {
            group.reconcile(W2, B2);
            return group.lost(W2, 0);
        }
        assert!(group.elect(W1, &[W2, B2]));
        group.reconcile(W1, B1);
        group.lost(W1, 0)
    };
    assert_eq!(run(Rules::THESIS), [1]);
    assert!(run(Rules::FURROW).is_empty());
}

/// Section 3.4: a witness drops an update's value when the update is committed.
#[test]
fn a_commit_without_backups_leaves_no_value() {
    let run = |rules: Rules| {
        let mut group = Group::new(2, rules);
        write(&mut group, P, 1, &[W1, W2]);
        for witness in [W1, W2] {
            group.send(P, witness);
            group.drop_values(witness);
        }
        group.lose(P);
        assert!(group.elect(W1, &[W2, B1, B2]));
        group.lost(W1, 0)
    };
    assert_eq!(run(Rules { quorum: Quorum::Majority, ..Rules::THESIS }), [1]);
    assert!(run(Rules::FURROW).is_empty());
}

/// A copy at the leader of the moment, instead of one at who holds the office, counts for the stable index.
#[test]
fn the_leader_of_the_moment_is_no_copy() {
    // One backup and one witness.
    let (backup, witness) = (1, 2);
    let run = |rules: Rules| {
        let mut group = Group::new(1, rules);
        assert!(group.elect(witness, &[backup]));
        group.reconcile(witness, backup);
        write(&mut group, witness, 1, &[backup]);
        assert!(group.elect(backup, &[witness]));
        group.reconcile(backup, backup);
        group.append(backup, 2);
        group.send(backup, witness);
        group.commit(backup);
        group.send(backup, witness);
        group.drop_values(witness);
        group.lose(backup);
        assert!(group.elect(witness, &[P]));
        group.lost(witness, 0)
    };
    assert_eq!(run(Rules { drop: Drop::WithLeaderOfTheMoment, ..Rules::FURROW }), [1, 2]);
    assert!(run(Rules::FURROW).is_empty());
}

/// Whether a new leader reads the update before the last acknowledged one, which `B1` has in its log and does not know to be committed. `commits`: the leader commits an entry of its own first.
fn reads_the_past(rules: Rules, commits: bool) -> bool {
    let mut group = Group::new(2, rules);
    write(&mut group, P, 1, &[B1, B2, W1]);
    group.send(P, B1);
    group.index(B1);
    write(&mut group, P, 2, &[B1, B2, W1]);
    group.lose(P);
    assert!(group.elect(W1, &[W2, B1, B2]));
    group.reconcile(W1, B1);
    if commits {
        group.append(W1, 3);
        for to in [B1, B2] {
            group.send(W1, to);
        }
        group.commit(W1);
    }
    let read = group.read(W1, B1);
    // Once the backup knows of the commit and has applied it, each rule answers.
    if commits {
        group.send(W1, B1);
        group.index(B1);
        assert_eq!(group.read(W1, B1), Some(3));
    }
    read == Some(1)
}

/// Section 3.5.2: a provisional leader answers reads.
#[test]
fn a_provisional_primary_reads_the_past() {
    assert!(reads_the_past(Rules::THESIS, false));
    assert!(!reads_the_past(Rules::FURROW, false));
}

/// Section 3.6.2: a PriorityPull looks into the backup's index in memory, which lags behind its buffer.
#[test]
fn a_pull_misses_the_buffer() {
    assert!(reads_the_past(Rules { read: Read::FromIndexAfterCommit, ..Rules::FURROW }, true));
    assert!(!reads_the_past(Rules::FURROW, true));
}

/// Section 3.4: leases, without a word on restarts.
#[test]
fn a_restarted_voter_breaks_a_lease() {
    let run = |rules: Rules| {
        let mut group = Group::new(2, rules);
        for voter in [B1, B2, W1] {
            group.promise(voter);
        }
        group.restart(B1);
        group.restart(B2);
        group.elect(W2, &[B1, B2]);
        group.leaders()
    };
    assert_eq!(run(Rules::THESIS), [P, W2]);
    assert_eq!(run(Rules::FURROW), [P]);
}

/// Section 3.7.1: replicas that failed are removed, whatever copies are left.
#[test]
fn a_removal_counts_whole_copies() {
    let run = |rules: Rules| {
        let mut group = Group::new(2, rules);
        write(&mut group, P, 1, &[B1, B2]);
        group.lose(B2);
        let before = group.remove(B2);
        // A new primary, which has not yet every value, takes the old one's place.
        group.join(Role::Witness);
        let after = group.remove(P);
        (before, after, group.whole_copies())
    };
    assert_eq!(run(Rules::THESIS), (true, true, 1));
    assert_eq!(run(Rules::FURROW), (true, false, 2));
}
