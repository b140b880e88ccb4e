//! What becomes of a logical zone at a mount: decided from what is on the drives, without any I/O.
//!
//! A durable block lies on its drive, and so does everything below it, for whoever acknowledges it has flushed all
//! drives. So nothing durable is lost by a pointer at the first block that is not there. On a drive that is missing a
//! block counts as there if it follows from the others:
//!
//! - from partial parity that covers it, with all the data below that record's end there, or
//! - from the parity in its place, of a row whose other data is all there.
//!
//! Blocks above the pointer that some drives hold cannot be written again: they are hidden, and what comes there is
//! relocated (see `patches`). Of a row that was hidden at an earlier mount, the data is there if it is in the log. A
//! drive that filled its zone when it lost power leaves nothing to write on: such a zone comes back full, which is
//! among what the contract allows.

use std::collections::BTreeMap;

use zoned::{Blocks, ZoneId};

use crate::format::zone_entries::ZoneEntry;
use crate::layout::{Layout, Slot, Stripe};
use crate::mount::log_contents::Partial;
use crate::zone::Relocated;
use crate::zone::stale_rows::Patches;

/// A physical zone after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Child {
    /// Its drive is missing, or the zone is offline.
    Missing,
    /// So many blocks are written.
    At(u64),
    /// It is full. Nobody can tell how much was written: drives may fill an open zone when they lose power.
    Full,
}

/// What is known of a logical zone.
pub(crate) struct Evidence<'a> {
    pub layout: Layout,
    pub zone: ZoneId,
    /// Bytes in a block.
    pub block: usize,
    pub children: &'a [Child],
    /// Rows hidden at earlier mounts, and what the logs have for them.
    pub patches: &'a Patches,
    /// Parity that lies in the logs.
    pub relocated: &'a BTreeMap<Stripe, Relocated>,
    pub entry: ZoneEntry,
    /// A reset of this generation was begun.
    pub intent: bool,
    /// Partial parity of this generation by stripe.
    pub partials: &'a BTreeMap<Stripe, Vec<Partial>>,
    /// Stripes that may have been in flight.
    pub doubt: u64,
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Empty, and all physical zones are.
    Empty,
    /// All physical zones are reset: the zone is empty.
    Reset,
    /// Written up to the pointer; it can go on there.
    Open,
    /// The same, once what some drives hold above it is hidden.
    Hide,
    /// Written up to the pointer, and full.
    Full,
    /// Full, with an end that was recorded when everything below it was durable.
    Known,
}

/// The verdict, the pointer, and the first stripe whose parity has to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub verdict: Verdict,
    pub pointer: Blocks,
    pub from: Stripe,
}

/// Decides.
pub(crate) fn decide(evidence: &Evidence<'_>) -> Decision {
    let layout = &evidence.layout;
    let decision = |verdict, pointer, from| Decision { verdict, pointer, from };
    if evidence.intent {
        return decision(Verdict::Reset, Blocks::ZERO, Stripe(0));
    }
    if let Some(end) = evidence.entry.end {
        // The stripe that it ends in may lack its zeros.
        let end = end.min(layout.capacity());
        return decision(Verdict::Known, end, layout.stripe_of(end));
    }
    let at = |slot: Slot| evidence.children.get(slot.index()).copied().unwrap_or(Child::Missing);
    let slots = || (0..layout.drives).map(Slot);
    let missing = |slot| match at(slot) {
        Child::At(row) => {
            let row = evidence.patches.data_row(layout, evidence.block, evidence.zone, slot, row);
            layout.first_missing(evidence.zone, slot, row)
        }
        Child::Full | Child::Missing => layout.capacity(),
    };
    let mut pointer = slots().map(missing).min().unwrap_or(Blocks::ZERO);
    for slot in slots().filter(|slot| at(*slot) == Child::Missing) {
        pointer = pointer.min(recoverable(evidence, slot, pointer));
    }
    let untouched = slots().all(|slot| matches!(at(slot), Child::At(0) | Child::Missing));
    if pointer == Blocks::ZERO {
        return decision(if untouched { Verdict::Empty } else { Verdict::Reset }, pointer, Stripe(0));
    }
    let highest = slots().filter_map(|slot| match at(slot) {
        Child::At(row) => Some(row / layout.unit),
        _ => None,
    });
    let highest = match evidence.patches.is_empty() {
        true => highest.max().unwrap_or(0),
        // What is hidden may lie above all that was written since.
        false => layout.stripe_of(pointer).0,
    };
    // A drive that lost its cache may be below all that was in flight: what it lacks is written again, and the stripe at
    // the pointer is looked at in any case.
    let lowest = lowest(evidence).saturating_sub(1);
    let from = highest.saturating_sub(evidence.doubt).min(lowest).min(layout.stripe_of(pointer).0);
    let from = Stripe(from);
    let above = |slot| match at(slot) {
        Child::At(row) => row > layout.used(evidence.zone, slot, pointer),
        Child::Full | Child::Missing => false,
    };
    let verdict = if pointer == layout.capacity() || slots().any(|slot| at(slot) == Child::Full) {
        Verdict::Full
    } else if slots().any(above) {
        Verdict::Hide
    } else {
        Verdict::Open
    };
    decision(verdict, pointer, from)
}

/// The stripe that the drive is at which has written least: below it every stripe is whole, parity included.
fn lowest(evidence: &Evidence<'_>) -> u64 {
    let rows = evidence.children.iter().filter_map(|child| match child {
        Child::At(row) => Some(row / evidence.layout.unit),
        _ => None,
    });
    rows.min().unwrap_or(evidence.layout.stripes())
}

/// The first block on the missing drive `lost` that does not follow from the others, which hold everything below
/// `pointer`.
fn recoverable(evidence: &Evidence<'_>, lost: Slot, pointer: Blocks) -> Blocks {
    let layout = &evidence.layout;
    let suspects = evidence.patches.suspects(layout, evidence.zone, evidence.relocated);
    let suspect = suspects.first().map_or(u64::MAX, |stripe| stripe.0);
    // Below this every stripe is whole, parity included.
    let first = lowest(evidence).saturating_sub(1).min(suspect);
    for stripe in (first..layout.stripes()).map(Stripe) {
        if layout.start(stripe) >= pointer {
            break;
        }
        let Some(index) = layout.index_on(evidence.zone, stripe, lost) else { continue };
        let parity = evidence.children.get(layout.parity(evidence.zone, stripe).index());
        let in_place = match parity {
            Some(Child::At(row)) => *row >= layout.row(stripe) + layout.unit_of(stripe),
            Some(Child::Full) => true,
            Some(Child::Missing) | None => false,
        };
        let in_place = in_place && !suspects.contains(&stripe);
        // Rows of parity that lie in their place in a stripe that is not whole.
        let first_row = layout.row(stripe);
        let rows = match parity {
            Some(Child::At(row)) => row.saturating_sub(first_row),
            _ => 0,
        };
        let unit_rows = first_row..first_row + layout.unit_of(stripe);
        let rows =
            if evidence.patches.hides(layout.parity(evidence.zone, stripe), &unit_rows) { 0 } else { rows };
        let last = layout.data_units() - 1;
        let row_there = |row: u64| {
            let whole = index == last || layout.unit_start(stripe, last).plus(Blocks(row)) < pointer;
            row < rows && whole
        };
        if in_place && layout.end(stripe) <= pointer {
            continue;
        }
        let start = layout.unit_start(stripe, index);
        let end = start.plus(Blocks(layout.unit_of(stripe))).min(pointer);
        let mut at = start;
        while at < end {
            let partials = evidence.partials.get(&stripe).map_or(&[][..], Vec::as_slice);
            // A mount that found the zone worn logged the parity of what it holds.
            let known = evidence.relocated.get(&stripe).map(|parity| parity.end);
            let known = known.filter(|known| *known <= pointer && at < *known);
            match best(partials, at, pointer).map(|partial| partial.end).or(known) {
                Some(known) => at = known.min(end),
                None if row_there(at.minus(start).0) => at = at.plus(Blocks(1)),
                None => return at,
            }
        }
    }
    pointer
}

/// The record to rebuild the block `at` from: of those that cover it, the one with the least data below its end, for
/// that is the one that was written for this block. What came later may have been in flight.
pub(crate) fn best(partials: &[Partial], at: Blocks, pointer: Blocks) -> Option<&Partial> {
    let covers = |partial: &&Partial| partial.start <= at && at < partial.end && partial.end <= pointer;
    partials.iter().filter(covers).min_by_key(|partial| partial.end)
}

#[cfg(test)]
mod tests {
    use zoned::Buf;

    use super::*;

    fn partial(start: u64, end: u64) -> Partial {
        Partial { start: Blocks(start), end: Blocks(end), rows: Buf::copy_from(&[]) }
    }

    #[test]
    fn a_checkpointed_partial_parity_yields_to_one_that_was_written_for_the_block() {
        // A checkpoint's record covers the stripe from its beginning to the pointer then.
        let (checkpoint, normal) = (partial(0, 20), partial(2, 12));
        for partials in [[checkpoint.clone(), normal.clone()], [normal, checkpoint]] {
            let end = |at, pointer| best(&partials, Blocks(at), Blocks(pointer)).map(|best| best.end.0);
            for (at, pointer, wanted) in [
                (3, 15, Some(12)),
                // What the checkpoint covers never landed in full: it does not count.
                (13, 15, None),
                (0, 15, None),
                (3, 20, Some(12)),
                (13, 20, Some(20)),
                (0, 20, Some(20)),
                (12, 19, None),
                (3, 11, None),
                (20, 30, None),
            ] {
                assert_eq!(end(at, pointer), wanted, "block {at}, pointer {pointer}");
            }
        }
    }

    #[test]
    fn the_pointer_is_at_the_first_block_that_is_not_there() {
        // Four drives, units of 2 blocks, zone 0: stripe 0 has its parity on drive 3, stripe 1 on drive 2.
        let layout = Layout { drives: 4, unit: 2, zone_capacity: 8 };
        let (patches, relocated, stripe) = (Patches::default(), BTreeMap::new(), Stripe(1));
        let none: BTreeMap<Stripe, Vec<Partial>> = BTreeMap::new();
        let one: BTreeMap<Stripe, Vec<Partial>> = [(stripe, vec![partial(6, 8)])].into();
        let later: BTreeMap<Stripe, Vec<Partial>> = [(stripe, vec![partial(6, 10)])].into();
        let known = ZoneEntry { generation: 1, end: Some(Blocks(7)) };
        let open = ZoneEntry { generation: 1, end: None };
        use Child::{At, Full, Missing};
        for (children, partials, entry, intent, wanted) in [
            ([At(0); 4], &none, open, false, (Verdict::Empty, 0)),
            ([At(2); 4], &none, open, false, (Verdict::Open, 6)),
            ([At(2), At(2), At(2), At(0)], &none, open, false, (Verdict::Open, 6)),
            ([At(2), At(1), At(2), At(2)], &none, open, false, (Verdict::Hide, 3)),
            ([At(0), At(2), At(2), At(2)], &none, open, false, (Verdict::Reset, 0)),
            ([At(2), At(2), At(2), Full], &none, open, false, (Verdict::Full, 8)),
            ([At(2); 4], &none, known, false, (Verdict::Known, 7)),
            ([At(2); 4], &none, known, true, (Verdict::Reset, 0)),
            // Stripe 1's first unit is on drive 3: missing, its blocks follow from a record with all its data there.
            ([At(2), At(2), At(2), Missing], &none, open, false, (Verdict::Open, 6)),
            ([At(2), At(2), At(2), Missing], &one, open, false, (Verdict::Open, 8)),
            ([At(2), At(2), At(2), Missing], &later, open, false, (Verdict::Open, 6)),
            ([At(4), At(2), At(2), Missing], &later, open, false, (Verdict::Open, 10)),
        ] {
            let evidence = Evidence {
                layout,
                zone: ZoneId(0),
                block: 512,
                children: &children,
                patches: &patches,
                relocated: &relocated,
                entry,
                intent,
                partials,
                doubt: 4,
            };
            let found = decide(&evidence);
            assert_eq!((found.verdict, found.pointer.0), wanted, "{children:?} {partials:?} {entry:?}");
        }
    }
}
