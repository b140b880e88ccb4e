//! Rules that tests break on purpose, to prove that a broken rule is noticed. One of them loses nothing, and a measurement breaks it
//! ([`Rules::keeps_streams_apart`]).
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
    /// Rule: a mount completes a reset that had begun once all drives know of it.
    completes_known_resets: MountedReset,
    /// Rule: partial parity is logged.
    logs_partial_parity: PartialParity,
    /// Rule: the partial parity of the second parity is logged.
    logs_second_parity: SecondParity,
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
    /// Rule: each frame is in the logs of more drives than may be lost.
    logs_all_frame_copies: FrameCopies,
    /// Rule: a zone rewrite records where the copy of the zone lies.
    records_zone_copies: ZoneRewrite,
    /// Rule: the logged parity of appends that were reordered is corrected before they are acknowledged.
    corrects_reordered: Reordered,
    /// Rule: no block of a zone is acknowledged before the zone's map has landed.
    awaits_maps: MapAwaited,
    /// Rule: the map of a zone is recorded on two drives.
    copies_maps: MapCopies,
    /// Rule: a part goes behind another one in a physical zone when the rows of that one are durable.
    flushes_parts_below: PartBelow,
    /// Rule: parts of zones that follow one another by number share physical zones, and other parts begin empty ones. Broken, each part
    /// takes the first room there is, as in RAIZN+'s measurements (section 5.2.9); nothing is lost.
    keeps_streams_apart: Streams,
    /// Rule: the sections of a joined zone end at the first block that one of them lacks.
    ends_sections_at_gap: SectionGap,
    /// Rule: physical zones are reset after the record that ends their map.
    ends_maps_first: MapEnd,
    /// Rule: a moved part has its new place once the map that names the place is durable.
    awaits_moved_maps: MovedMapAwaited,
    /// Rule: the physical zone that a part leaves is reset after the map that names the new place.
    moves_maps_first: MoveEnd,
    /// Rule: a first write at the limit of active zones waits for full zones whose physical zones a power cut may reopen.
    awaits_full_zones: FullZones,
    /// Rule: the content of a moved part is durable before a map names its new place.
    flushes_moved_parts: MovedPart,
}
