//! Rules that tests break on purpose, to prove that a broken rule is noticed.
//!
//! [`Rules`] answers one question for each rule. Without the feature `broken-rules` every answer is a constant, and
//! [`BrokenRule`] does not exist.

/// The array's safety rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules {
    #[cfg(feature = "broken-rules")]
    pub broken: Option<BrokenRule>,
}

/// Declares the variants of [`BrokenRule`], and one method for each rule: true if the rule holds.
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
    /// Rule: the intent of a reset is logged.
    logs_reset_intents: ResetIntent,
    /// Rule: partial parity is logged.
    logs_partial_parity: PartialParity,
    /// Rule: the next generation of a reset zone is recorded.
    records_generations: Generation,
    /// Rule: a durable write is flushed before its acknowledgement.
    flushes_durable_writes: DurableWrite,
    /// Rule: a mount recomputes the parity of stripes that were in flight.
    resyncs: Resync,
    /// Rule: a durable write flushes every drive that holds unflushed blocks of its zone.
    flushes_all_slots: FlushedSlots,
    /// Rule: a resumed rebuild copies a zone again that was changed since its first copy.
    checks_rebuild_notes: RebuildNotes,
    /// Rule: stale rows are recorded.
    records_stale_rows: StaleRows,
    /// Rule: a zone rewrite records where the copy of the zone lies.
    records_zone_copies: ZoneRewrite,
}
