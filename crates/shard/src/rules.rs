//! Safety rules that a test can break, to prove that another test finds the fault. Without the feature `broken-rules` no rule can be broken: each function
//! that asks whether a rule is broken is the constant `false`.

units::broken_rules! {
    /// Broken rule: the first record of a group does not keep the log from being retired while it is in flight.
    NewGroup asked as forgets_new_groups,
    /// Broken rule: a record whose entries are replaced from some index on is needed no more, also for those below.
    Replaced asked as forgets_replaced_records,
    /// Broken rule: a group's vote is needed no more once another record of the group is there.
    Vote asked as forgets_votes,
    /// Broken rule: the log is retired before a base or a copy that takes the place of its records is durable.
    EarlyRetirement asked as retires_early,
}
