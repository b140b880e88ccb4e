//! Rules that tests break on purpose, to prove that a broken rule is noticed.
//!
//! [`Rules`] answers one question for each rule. Without the feature `broken-rules` every answer is a constant, and
//! [`BrokenRule`] does not exist.

/// The rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "broken-rules")]
    pub broken: Option<BrokenRule>,
}

/// The variants of [`BrokenRule`], and one method for each rule: true if the rule holds.
macro_rules! rules {
    ($($(#[$doc:meta])* $method:ident: $rule:ident,)*) => {
        /// A rule that a test breaks. Each variant is documented by the rule that does not hold.
        #[cfg(feature = "broken-rules")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum BrokenRule {
            $($(#[$doc])* $rule,)*
        }

        impl Rules {
            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $method(self) -> bool {
                    #[cfg(feature = "broken-rules")]
                    return self.broken != Some(BrokenRule::$rule);
                    #[cfg(not(feature = "broken-rules"))]
                    return true;
                }
            )*
        }
    };
}

rules! {
    /// The intent of a reset is logged.
    logs_reset_intents: ResetIntent,
    /// Partial parity is logged.
    logs_partial_parity: PartialParity,
    /// The next generation of a reset zone is recorded.
    records_generations: Generation,
    /// A durable write is flushed before its acknowledgement.
    flushes_durable_writes: DurableWrite,
    /// A mount recomputes the parity of stripes that were in flight.
    resyncs: Resync,
    /// A durable write flushes every drive that holds unflushed blocks of its zone.
    flushes_all_slots: FlushedSlots,
    /// A resumed rebuild copies a zone again that was changed since it was copied.
    checks_rebuild_notes: RebuildNotes,
    /// Stale rows are recorded.
    records_stale_rows: StaleRows,
    /// A zone rewrite records where the copy of the zone lies.
    records_zone_copies: ZoneRewrite,
}
