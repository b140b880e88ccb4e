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
    /// Broken rule: the index of a group's tables is written in a batch of its own, behind the entries.
    IndexApart asked as writes_index_apart,
    /// Broken rule: tables count as durable without a flush.
    Unflushed asked as trusts_memtables,
    /// Broken rule: an entry takes the place of a record of a later one.
    LaterRecord asked as replaces_later_records,
    /// Broken rule: the number and the answer of a command that runs once are not put into the tables with the command's writes.
    ForgottenAnswer asked as forgets_answers,
    /// Broken rule: a replica answers a pull with whatever record its tables have, which may lag behind the record that is named.
    PullWithoutIndex asked as pulls_without_index,
    /// Broken rule: a key expires by each leader's clock, without a write.
    ExpiryByClock asked as expires_by_clock,
}
