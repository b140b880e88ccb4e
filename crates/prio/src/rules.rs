//! Safety rules that a test can break, to prove that the crash explorer finds the loss.

units::broken_rules! {
    /// A sync counts the highest finished write, though a lower one is in flight.
    SyncOvertakesLowerBlock asked as sync_overtakes_lower_block,
    /// The last block is written again without the bytes that it has already.
    TailWithoutItsBlock asked as tail_without_its_block,
    /// The last block is written again while its write before is in flight.
    TwoTailsInFlight asked as two_tails_in_flight,
    /// A write does not wait for zeros in flight to the same blocks.
    ZerosOverEntries asked as zeros_over_entries,
}
