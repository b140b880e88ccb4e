//! Safety rules of the file system that a test can break, to prove that another test finds the fault. Without
//! the feature `broken-rules` no rule can be broken: each function that asks whether a rule is broken is the
//! constant `false`, and the branch behind it is not compiled.

units::broken_rules! {
    /// Broken rule: `sync` does not flush the device.
    Sync asked as skips_flushes,
    /// Broken rule: a rename removes the old name first and adds the new one second.
    Rename asked as splits_renames,
    /// Broken rule: a mount writes metadata behind a torn tail.
    TornTail asked as writes_behind_torn_tails,
    /// Broken rule: a zone is reset before the metadata that frees it is durable.
    Reset asked as resets_early,
    /// Broken rule: a zone is used under a generation that the metadata may give again.
    Generation asked as reuses_generations,
    /// Broken rule: an ordered log's recovery keeps entries behind a gap.
    Gap asked as keeps_entries_behind_gaps,
    /// Broken rule: a block of an ordered log that is rewritten in place keeps its sequence.
    RewriteSequence asked as keeps_sequences_of_rewritten_blocks,
    /// Broken rule: a durable write of an ordered log counts for the log's bytes in other zones too.
    DurableWrite asked as trusts_durable_writes_of_other_zones,
    /// Broken rule: an ordered log does not wait at its barriers.
    Barrier asked as ignores_barriers,
    /// Broken rule: `sync` of an ordered log waits for the operations in flight before the buffer is sent,
    /// and not for the buffer.
    SyncOrder asked as syncs_before_the_buffer,
    /// Broken rule: a parallel log's recovery keeps entries although a ticket that they need is missing.
    Needs asked as keeps_entries_with_missing_needs,
    /// Broken rule: a parallel log on an array does not list the acknowledged tickets above `needs`.
    Known asked as omits_known_tickets,
    /// Broken rule: a parallel log writes no void entries.
    Void asked as omits_voids,
    /// Broken rule: a parallel log leaves a zone with appends in flight, and drops entries that land behind
    /// the padding.
    Replacement asked as leaves_zones_early,
    /// Broken rule: `sync` of a data file writes the full buffers, and forgets the end of the file in memory.
    ForgottenTail asked as forgets_tails,
    /// Broken rule: a rename or a link does not wait for the file's data.
    NameBeforeData asked as names_before_data,
    /// Broken rule: bytes that no zone takes count as written.
    LostBytes asked as forgets_lost_bytes,
    /// Broken rule: no blocks are reserved for accepted bytes.
    NoReservation asked as reserves_nothing,
    /// Broken rule: a truncation leaves the pages behind the file's new end in the page cache.
    StalePage asked as keeps_truncated_pages,
}
