//! Safety rules that a test can break, to prove that another test finds the fault. Without the feature `broken-rules` no rule can be broken: each function
//! that asks whether a rule is broken is the constant `false`.

units::broken_rules! {
    /// Broken rule: logs are compared by their last index alone, whatever its term.
    IndexAlone asked as compares_indexes_alone,
    /// Broken rule: no backup stands for election. A witness that lacks an entry is to adopt the index of the voter that refuses it, a number without the entry's term, and stays refused.
    AdoptedIndex asked as leaves_elections_to_witnesses,
    /// Broken rule: a new leader discards what one backup lacks, of the entries that it does not know to be committed.
    NullDiscards asked as discards_what_a_backup_lacks,
    /// Broken rule: a leader answers reads before an entry of its term is committed.
    ProvisionalRead asked as answers_before_it_commits,
    /// Broken rule: the leader of the moment counts as a copy that stays. Any leader moves the stable index, and a witness that leads no longer keeps nothing for its office.
    LeaderOfTheMoment asked as takes_any_leader_for_a_copy,
    /// Broken rule: what the leader in office has not written yet counts as a copy.
    Unwritten asked as counts_unwritten,
    /// Broken rule: a group may be without a voting backup, and its stable index moves there.
    StableWithoutBackups asked as needs_no_backup,
    /// Broken rule: a committed value is stable.
    DropAtCommit asked as drops_at_commit,
    /// Broken rule: a replica in office whose office another one has taken keeps no values, relieved or not.
    Unrelieved asked as relieves_by_election,
    /// Broken rule: a replica is removed whatever copies are left.
    FreeRemoval asked as counts_no_copies,
    /// Broken rule: a leader that the change under way removes takes the office.
    LeavingLeader asked as lets_a_leaving_leader_serve,
    /// Broken rule: a replica in office gets a snapshot as any witness, without old values.
    OfficeWithoutValues asked as gives_offices_no_values,
    /// Broken rule: Raft hears of a snapshot before the tables hold it.
    EarlySnapshot asked as takes_snapshots_early,
    /// Broken rule: what a snapshot covers is stable.
    SnapshotIsStable asked as takes_snapshots_for_stable,
    /// Broken rule: entries are retired that are not stable.
    RetireUnstable asked as retires_unstable,
    /// Broken rule: a replica votes while the lease that it acknowledged may last.
    EarlyVote asked as votes_early,
    /// Broken rule: a replica votes right after its start, although it may have acknowledged a lease before.
    ForgottenVote asked as forgets_promises,
    /// Broken rule: a lease counts from the receipt of an acknowledgement instead of from the sending of the heartbeat.
    LeaseFromReceipt asked as counts_from_receipt,
    /// Broken rule: a lease lasts while the leader hands leadership over.
    LeaseInTransfer asked as keeps_lease_in_transfer,
    /// Broken rule: a backup's tables count as current at the time at which an answer came, instead of that at which the question was sent.
    FreshFromReceipt asked as counts_freshness_from_receipt,
    /// Broken rule: a leader raises the group's version without asking whether each member speaks it.
    RaiseUnasked asked as raises_unasked,
    /// Broken rule: a replica writes its log's base in the newest version that its program speaks, whatever the group's version is.
    NewestBase asked as writes_newest_base,
    /// Broken rule: a leader tells backups its commit index without a lease.
    FreshWithoutLease asked as answers_without_lease,
}
