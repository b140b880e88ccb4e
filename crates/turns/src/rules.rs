//! Safety rules that a test can break, to prove that another test finds the fault. Without the feature `broken-rules` no rule can be broken: each function
//! that asks whether a rule is broken is the constant `false`.

units::broken_rules! {
    /// Broken rule: a leader takes a turn to be over once a report shows none, although the grant may be on its way, and a new leader does not wait.
    Lease asked as waits_for_no_lease,
    /// Broken rule: a leader takes a lease to end by the holder's clock when it ends by the leader's own.
    Drift asked as ignores_drift,
    /// Broken rule: a grant rests on reports of any age.
    StaleReports asked as trusts_stale_reports,
    /// Broken rule: a leader grants itself turns as any other node.
    LeaderLikeAny asked as treats_leaders_like_any,
    /// Broken rule: a leader forgets the turn of a node that is no voter any more.
    RemovedNodes asked as forgets_removed_nodes,
    /// Broken rule: only a node with both the most entries and the most bytes since its snapshot gets a turn (ZOOKEEPER-3657).
    EntriesAndBytes asked as wants_most_entries_and_bytes,
}
