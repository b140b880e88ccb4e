//! Rules that a test can break, to prove that another test finds the fault. Without the feature `broken-rules` no rule can be
//! broken: each question below is the constant `false`, and the branch behind the question is not compiled.

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident asked as $question:ident,)*) => {
        /// A rule that a mount breaks on purpose.
        #[cfg(feature = "broken-rules")]
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum BrokenRule {
            $($(#[$doc])* $variant,)*
        }

        /// The rule that a mount or a log breaks, if any.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub(crate) struct Rules {
            #[cfg(feature = "broken-rules")]
            pub(crate) broken: Option<BrokenRule>,
        }

        impl Rules {
            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $question(self) -> bool {
                    #[cfg(feature = "broken-rules")]
                    return self.broken == Some(BrokenRule::$variant);
                    #[cfg(not(feature = "broken-rules"))]
                    return false;
                }
            )*
        }
    };
}

rules! {
    /// `sync` does not flush the device.
    Sync asked as skips_flushes,
    /// A rename removes the old name first and adds the new one second.
    Rename asked as splits_renames,
    /// A mount writes metadata behind a torn tail.
    TornTail asked as writes_behind_torn_tails,
    /// A zone is reset before the metadata that frees it is durable.
    Reset asked as resets_early,
    /// A zone is used under a generation that the metadata may give again.
    Generation asked as reuses_generations,
    /// An ordered log's recovery keeps entries behind a gap.
    Gap asked as keeps_entries_behind_gaps,
    /// An ordered log does not wait at its barriers.
    Barrier asked as ignores_barriers,
    /// `sync` of an ordered log waits for the operations in flight before the buffer is sent, and not for the buffer.
    SyncOrder asked as syncs_before_the_buffer,
    /// A parallel log's recovery keeps entries although a ticket that they need is missing.
    Needs asked as keeps_entries_with_missing_needs,
    /// A parallel log on an array does not list the acknowledged tickets above `needs`.
    Known asked as omits_known_tickets,
    /// A parallel log writes no void entries.
    Void asked as omits_voids,
    /// A parallel log leaves a zone with appends in flight, and drops entries that land behind the padding.
    Replacement asked as leaves_zones_early,
}
