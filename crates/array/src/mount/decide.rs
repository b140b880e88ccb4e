//! Decides the state of a logical zone at a mount, from the drives' pointers and logs. Pure: no I/O.
//!
//! Every block below a durable block is durable too, because a durable write flushes all drives that hold lower
//! blocks. So a pointer at the first missing block loses nothing durable. A block of a missing drive counts as
//! present if it can be reconstructed:
//!
//! - from partial parity that covers the block, if all data below the end of that record is present, or
//! - from parity in place, if all other data of the row is present.
//!
//! Of an array with two parities, two drives may be missing, and a block may follow from both parities together. Each parity's
//! record is chosen for itself: the one that was written for the block, in that parity's log. If the block was durable, so was all
//! data that either record covers, whatever their ends.
//!
//! Blocks that a drive holds above the pointer become stale rows (see `zone::stale_rows`). Data of rows that were
//! stale before is present if the log holds its content. A drive may fill an open zone when it loses power: the
//! logical zone is full then, which the device contract allows.

use std::collections::{BTreeMap, BTreeSet};

use zoned::Blocks;

use crate::degraded::equation::{Equations, Unit};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::{Layout, Parity, Role, Stripe};
use crate::member::log_contents::Partial;
use crate::zone::stale_rows::{RelocatedParities, StaleRows};

/// A drive's part of a zone after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartState {
    /// The drive is missing, or the physical zone is offline.
    Missing,
    /// The number of written blocks of the drive's part.
    Written(u64),
    /// The physical zone is full. The number of written blocks is unknown: a drive may fill an open zone at a power
    /// cut.
    Full,
}

/// All statements of the drives and logs about a logical zone.
pub(crate) struct Evidence<'a> {
    pub layout: Layout,
    /// Bytes in a block.
    pub block: usize,
    /// The states of the zone's parts, by role.
    pub parts: &'a [PartState],
    /// The zone's stale rows of earlier mounts, and their relocated content.
    pub stale: &'a StaleRows,
    /// Relocated parity.
    pub relocated: &'a RelocatedParities,
    pub entry: ZoneEntry,
    /// True if a reset of the zone in its current generation was begun.
    pub intent: bool,
    /// Partial parity of the zone's current generation, by stripe.
    pub partials: &'a BTreeMap<Stripe, Vec<Partial>>,
    /// The number of the zone's stripes that may have been in flight.
    pub doubt: u64,
}

/// The state of a logical zone after the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The zone is empty, and so are all its parts.
    Empty,
    /// The zone is empty once all its parts are reset.
    Reset,
    /// The zone is written up to the pointer, and open for writes there.
    Open,
    /// The zone is open like `Open`, with stale rows above the pointer.
    OpenAboveStale,
    /// The zone is written up to the pointer, and full.
    Full,
    /// The zone is full, with a recorded end. All blocks below the end are durable.
    Known,
    /// The zone is full without content once all its parts are reset: a section of a joined zone that is full.
    FullWithoutContent,
}

impl Verdict {
    /// True if the zone takes writes at the pointer.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Verdict::Open | Verdict::OpenAboveStale)
    }
}

/// A mount's decision about a zone: the verdict, the pointer, and the first stripe to resync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decision {
    pub verdict: Verdict,
    pub pointer: Blocks,
    pub from: Stripe,
}

impl Decision {
    /// The decision about the same zone, with parts in these states, if it ends at `at`: at or below the pointer.
    pub(crate) fn ending_at(self, layout: &Layout, parts: &[PartState], at: Blocks) -> Decision {
        if at == self.pointer {
            return self;
        }
        let above = |(role, part): (_, &PartState)| match part {
            PartState::Written(row) => *row > layout.used(role, at),
            PartState::Full | PartState::Missing => false,
        };
        let verdict = if at == Blocks::ZERO {
            Verdict::Reset
        } else if parts.contains(&PartState::Full) {
            Verdict::Full
        } else if layout.roles().zip(parts).any(above) {
            Verdict::OpenAboveStale
        } else {
            Verdict::Open
        };
        Decision { verdict, pointer: at, from: self.from.min(layout.stripe_of(at)) }
    }
}

/// Decides the state of a logical zone from the evidence.
pub(crate) fn decide(evidence: &Evidence<'_>) -> Decision {
    let layout = &evidence.layout;
    let decision = |verdict, pointer, from| Decision { verdict, pointer, from };
    if evidence.intent {
        return decision(Verdict::Reset, Blocks::ZERO, Stripe(0));
    }
    if let Some(end) = evidence.entry.end {
        // An interrupted finish may not have padded the zone's last stripe.
        let end = end.min(layout.capacity());
        return decision(Verdict::Known, end, layout.stripe_of(end));
    }
    let at = |role: Role| evidence.parts.get(role.index()).copied().unwrap_or(PartState::Missing);
    let roles = || layout.roles();
    let missing = |role| match at(role) {
        PartState::Written(row) => {
            let row = evidence.stale.first_row_without_data(layout, evidence.block, role, row);
            layout.first_missing(role, row)
        }
        PartState::Full | PartState::Missing => layout.capacity(),
    };
    let mut pointer = roles().map(missing).min().unwrap_or(Blocks::ZERO);
    let lost: Vec<Role> = roles().filter(|role| at(*role) == PartState::Missing).collect();
    loop {
        let before = pointer;
        for role in &lost {
            pointer = pointer.min(first_unrecoverable(evidence, *role, &lost, pointer));
        }
        // A block that is missing may be part of a record that another missing block follows from.
        if pointer == before || layout.parities == 1 {
            break;
        }
    }
    let untouched = roles().all(|role| matches!(at(role), PartState::Written(0) | PartState::Missing));
    if pointer == Blocks::ZERO {
        return decision(if untouched { Verdict::Empty } else { Verdict::Reset }, pointer, Stripe(0));
    }
    let highest = roles().filter_map(|role| match at(role) {
        PartState::Written(row) => Some(row / layout.unit),
        _ => None,
    });
    let highest = match evidence.stale.is_empty() {
        true => highest.max().unwrap_or(0),
        // Stale rows may lie above all blocks that were written since a mount found them.
        false => layout.stripe_of(pointer).0,
    };
    // The pointer of a drive that lost its cache may be below everything that was in flight. The stripe at
    // the pointer is resynced in any case.
    let lowest = lowest_stripe(evidence).saturating_sub(1);
    let from = highest.saturating_sub(evidence.doubt).min(lowest).min(layout.stripe_of(pointer).0);
    let from = Stripe(from);
    let above = |role| match at(role) {
        PartState::Written(row) => row > layout.used(role, pointer),
        PartState::Full | PartState::Missing => false,
    };
    let verdict = if pointer == layout.capacity() || roles().any(|role| at(role) == PartState::Full) {
        Verdict::Full
    } else if roles().any(above) {
        Verdict::OpenAboveStale
    } else {
        Verdict::Open
    };
    decision(verdict, pointer, from)
}

/// The stripe at the lowest pointer of any drive. All lower stripes are whole, parity included.
fn lowest_stripe(evidence: &Evidence<'_>) -> u64 {
    let rows = evidence.parts.iter().filter_map(|part| match part {
        PartState::Written(row) => Some(row / evidence.layout.unit),
        _ => None,
    });
    rows.min().unwrap_or(evidence.layout.stripes())
}

/// The first block of the missing part `wanted` that cannot be reconstructed. The parts other than the missing ones, `lost`, hold all
/// blocks below `pointer`.
fn first_unrecoverable(evidence: &Evidence<'_>, wanted: Role, lost: &[Role], pointer: Blocks) -> Blocks {
    let layout = &evidence.layout;
    let uncertain_parity = evidence.stale.uncertain_parity(layout, evidence.relocated);
    let suspect = uncertain_parity.first().map_or(u64::MAX, |(stripe, _)| stripe.0);
    // All stripes below `first` are whole, parity included.
    let first = lowest_stripe(evidence).saturating_sub(1).min(suspect);
    for stripe in (first..layout.stripes()).map(Stripe) {
        if layout.start(stripe) >= pointer {
            break;
        }
        let Some(index) = layout.index_on(stripe, wanted) else { continue };
        let parities: Vec<StripeParity> = layout
            .parities()
            .map(|parity| StripeParity::of(evidence, stripe, parity, &uncertain_parity))
            .collect();
        let lacking: Vec<u64> = lost.iter().filter_map(|role| layout.index_on(stripe, *role)).collect();
        let needed = lacking.len().min(parities.len());
        let whole = parities.iter().filter(|parity| parity.is_in_place).count();
        if whole >= needed && layout.end(stripe) <= pointer {
            continue;
        }
        // With one parity, a second missing part makes the zone a failed one, whatever the pointer.
        let others = if layout.parities == 1 { &[][..] } else { &lacking };
        let start = layout.unit_start(stripe, index);
        let end = start.plus(Blocks(layout.unit_of(stripe))).min(pointer);
        for row in 0..end.minus(start).0 {
            let mut ends = [None; 2];
            for (end, parity) in ends.iter_mut().zip(&parities) {
                *end = parity.end_for(evidence, (index, others), row, pointer);
            }
            let equations = Equations { layout, stripe, limit: pointer, ends, lacking: others };
            if ends == [None; 2] || equations.terms(row..row + 1, Unit::Data(index)).is_none() {
                return start.plus(Blocks(row));
            }
        }
    }
    pointer
}

/// The rows of one parity of a stripe that the parity's drive holds.
struct StripeParity {
    stripe: Stripe,
    parity: Parity,
    /// True if the whole unit is in its place.
    is_in_place: bool,
    /// Rows of the unit that are in their place, whether the stripe is whole or not.
    rows: u64,
}

impl StripeParity {
    fn of(
        evidence: &Evidence<'_>,
        stripe: Stripe,
        parity: Parity,
        uncertain_parity: &BTreeSet<(Stripe, Parity)>,
    ) -> StripeParity {
        let layout = &evidence.layout;
        let role = layout.parity(stripe, parity);
        let (first_row, unit) = (layout.row(stripe), layout.unit_of(stripe));
        let (is_written, rows) = match evidence.parts.get(role.index()) {
            Some(PartState::Written(row)) => (*row >= first_row + unit, row.saturating_sub(first_row)),
            Some(PartState::Full) => (true, unit),
            Some(PartState::Missing) | None => (false, 0),
        };
        let is_in_place = is_written && !uncertain_parity.contains(&(stripe, parity));
        let has_stale = evidence.stale.has_stale(role, &(first_row..first_row + unit));
        StripeParity { stripe, parity, is_in_place, rows: if has_stale { 0 } else { rows } }
    }

    /// The end of the data that a known value of the parity covers, from which a block of unit `index` may follow together with the
    /// other parity. `lacking`: the units that are missing.
    fn end_for(
        &self,
        evidence: &Evidence<'_>,
        (index, lacking): (u64, &[u64]),
        row: u64,
        pointer: Blocks,
    ) -> Option<Blocks> {
        let (layout, stripe) = (&evidence.layout, self.stripe);
        let block = |index| layout.unit_start(stripe, index).plus(Blocks(row));
        let at = block(index);
        let partials = evidence.partials.get(&stripe).map_or(&[][..], Vec::as_slice);
        if let Some(partial) = best_partial_for(partials, self.parity, at, pointer) {
            return Some(partial.end);
        }
        // A mount of a worn zone relocates the parity of the last stripe.
        let known = evidence.relocated.get(&(stripe, self.parity)).map(|parity| parity.end);
        let known = known.filter(|known| *known <= pointer);
        if let Some(known) = known.filter(|known| at < *known) {
            return Some(known);
        }
        let last = layout.data_units() - 1;
        let whole = index == last || block(last) < pointer;
        // The relocated parity counts instead of the rows in its place, for the resync too.
        if row < self.rows && whole && known.is_none() {
            return Some(layout.end(stripe));
        }
        let other =
            best_partial_for_others(partials, self.parity, lacking.iter().map(|of| block(*of)), pointer);
        other.map(|partial| partial.end)
    }
}

/// The record of a partial parity to reconstruct the block `at` from: of the records that cover the block, the
/// one with the lowest end. It was written for the block; data below a later record's end may have been in
/// flight.
pub(crate) fn best_partial_for(
    partials: &[Partial],
    parity: Parity,
    at: Blocks,
    pointer: Blocks,
) -> Option<&Partial> {
    let covers = |partial: &&Partial| {
        partial.parity == parity && partial.start <= at && at < partial.end && partial.end <= pointer
    };
    partials.iter().filter(covers).min_by_key(|partial| partial.end)
}

/// The record of a partial parity to reconstruct one of the blocks `missing` from, which lie in one row. For a wanted block that no
/// record covers: the wanted block follows from the other parity once a missing block is known.
pub(crate) fn best_partial_for_others(
    partials: &[Partial],
    parity: Parity,
    missing: impl Iterator<Item = Blocks>,
    pointer: Blocks,
) -> Option<&Partial> {
    missing.filter_map(|at| best_partial_for(partials, parity, at, pointer)).min_by_key(|partial| partial.end)
}

#[cfg(test)]
mod tests {
    use zoned::Buf;

    use super::*;
    use crate::zone::stale_rows::RelocatedParity;

    fn partial(start: u64, end: u64) -> Partial {
        let rows = Buf::copy_from(&[]);
        Partial { parity: Parity::P, sequence: 0, start: Blocks(start), end: Blocks(end), rows }
    }

    /// The decision about a zone whose end is not recorded, without stale rows.
    fn decide_open_zone(
        layout: Layout,
        parts: &[PartState],
        relocated: &RelocatedParities,
        partials: &BTreeMap<Stripe, Vec<Partial>>,
    ) -> Decision {
        decide(&Evidence {
            layout,
            block: 512,
            parts,
            stale: &StaleRows::default(),
            relocated,
            entry: ZoneEntry { generation: 1, end: None },
            intent: false,
            partials,
            doubt: 4,
        })
    }

    #[test]
    fn a_checkpointed_partial_parity_yields_to_one_that_was_written_for_the_block() {
        // A checkpoint's record of partial parity covers the stripe from its start to the pointer at the
        // checkpoint.
        let (checkpoint, normal) = (partial(0, 20), partial(2, 12));
        for partials in [[checkpoint.clone(), normal.clone()], [normal, checkpoint]] {
            let end = |at, pointer| {
                best_partial_for(&partials, Parity::P, Blocks(at), Blocks(pointer)).map(|best| best.end.0)
            };
            for (at, pointer, wanted) in [
                (3, 15, Some(12)),
                // The blocks that the checkpoint covers never landed in full: its record does not count.
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
    fn the_pointer_is_at_the_first_missing_block() {
        // Four parts, units of 2 blocks: stripe 0 has its parity in part 3, stripe 1 in part 2.
        let layout = Layout { width: 4, parities: 1, unit: 2, part_rows: 8 };
        let (stale, relocated, stripe) = (StaleRows::default(), BTreeMap::new(), Stripe(1));
        let none: BTreeMap<Stripe, Vec<Partial>> = BTreeMap::new();
        let one: BTreeMap<Stripe, Vec<Partial>> = [(stripe, vec![partial(6, 8)])].into();
        let later: BTreeMap<Stripe, Vec<Partial>> = [(stripe, vec![partial(6, 10)])].into();
        let known = ZoneEntry { generation: 1, end: Some(Blocks(7)) };
        let open = ZoneEntry { generation: 1, end: None };
        use PartState::{Full, Missing, Written};
        for (parts, partials, entry, intent, wanted) in [
            ([Written(0); 4], &none, open, false, (Verdict::Empty, 0)),
            ([Written(2); 4], &none, open, false, (Verdict::Open, 6)),
            ([Written(2), Written(2), Written(2), Written(0)], &none, open, false, (Verdict::Open, 6)),
            (
                [Written(2), Written(1), Written(2), Written(2)],
                &none,
                open,
                false,
                (Verdict::OpenAboveStale, 3),
            ),
            ([Written(0), Written(2), Written(2), Written(2)], &none, open, false, (Verdict::Reset, 0)),
            ([Written(2), Written(2), Written(2), Full], &none, open, false, (Verdict::Full, 8)),
            ([Written(2); 4], &none, known, false, (Verdict::Known, 7)),
            ([Written(2); 4], &none, known, true, (Verdict::Reset, 0)),
            // Part 3 is missing and held the first unit of stripe 1: a record whose data is all present gives its
            // blocks.
            ([Written(2), Written(2), Written(2), Missing], &none, open, false, (Verdict::Open, 6)),
            ([Written(2), Written(2), Written(2), Missing], &one, open, false, (Verdict::Open, 8)),
            ([Written(2), Written(2), Written(2), Missing], &later, open, false, (Verdict::Open, 6)),
            ([Written(4), Written(2), Written(2), Missing], &later, open, false, (Verdict::Open, 10)),
        ] {
            let evidence = Evidence {
                layout,
                block: 512,
                parts: &parts,
                stale: &stale,
                relocated: &relocated,
                entry,
                intent,
                partials,
                doubt: 4,
            };
            let found = decide(&evidence);
            assert_eq!((found.verdict, found.pointer.0), wanted, "{parts:?} {partials:?} {entry:?}");
        }
    }

    /// The record of P covers one block more than that of Q: that block follows from both, because Q gives the other unit's block.
    #[test]
    fn a_block_that_one_of_two_parities_covers_follows_from_records_that_end_at_different_blocks() {
        let layout = Layout { width: 4, parities: 2, unit: 4, part_rows: 8 };
        let mut parts = vec![PartState::Written(0); 4];
        for index in 0..2 {
            parts[layout.data(Stripe(0), index).index()] = PartState::Missing;
        }
        let of = |parity, end| Partial { parity, ..partial(0, end) };
        for (p, q) in [(6, 5), (5, 6), (7, 3), (8, 3), (6, 6)] {
            let partials = [(Stripe(0), vec![of(Parity::P, p), of(Parity::Q, q)])].into();
            let found = decide_open_zone(layout, &parts, &BTreeMap::new(), &partials);
            // Row 3 of both units is in a record of eight blocks alone.
            let wanted = if p == 8 { 3 } else { p.max(q) };
            assert_eq!((found.verdict, found.pointer.0), (Verdict::Open, wanted), "{p} {q}");
        }
    }

    /// The rebuild of a zone that wore out inside a stripe relocates that stripe's parity. A drive that fills its physical zone at a
    /// power cut seems to hold all of the stripe's parity: the zone ends where the relocated parity does nevertheless.
    #[test]
    fn a_filled_drive_does_not_hold_a_parity_that_is_relocated_for_a_part_of_its_stripe() {
        use PartState::{Full, Missing, Written};
        for (parities, relocated_parity) in [(1, Parity::P), (2, Parity::P), (2, Parity::Q)] {
            let layout = Layout { width: 3 + parities, parities, unit: 4, part_rows: 8 };
            let stripe = Stripe(0);
            let mut parts = vec![Written(4); layout.width as usize];
            for parity in layout.parities() {
                parts[layout.parity(stripe, parity).index()] = Full;
            }
            for index in 1..=u64::from(parities) {
                parts[layout.data(stripe, index).index()] = Missing;
            }
            let record = |parity| Partial { parity, ..partial(0, 6) };
            let partials = [(stripe, layout.parities().map(record).collect())].into();
            let known = RelocatedParity { end: Blocks(6), unit: Buf::copy_from(&[]) };
            for (relocated, is_inside) in
                [(BTreeMap::new(), false), ([((stripe, relocated_parity), known)].into(), true)]
            {
                let found = decide_open_zone(layout, &parts, &relocated, &partials);
                let what = format!("{parities} parities, {relocated_parity:?} of {relocated:?}");
                assert_eq!(found.verdict, Verdict::Full, "{what}");
                assert_eq!(found.pointer == Blocks(6), is_inside, "{what}: {:?}", found.pointer);
                assert_eq!(found.pointer >= layout.end(stripe), !is_inside, "{what}: {:?}", found.pointer);
            }
        }
    }
}
