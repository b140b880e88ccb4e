//! Parity equations: how a row of one unit follows from parity and the other units of its stripe.
//!
//! All reconstruction combines rows by [`Equation`]: degraded reads and rebuilds (`degraded::reconstruct`) choose its parity from
//! a zone in use, a mount (`mount::resync`) from the metadata logs.

use std::ops::Range;

use zoned::Blocks;

use crate::layout::{Layout, Role, Stripe};

/// Rows of the parity of a stripe that were computed from the data blocks below `end`.
pub(crate) struct Equation {
    pub stripe: Stripe,
    /// The equation's rows, counted within the stripe unit.
    pub rows: Range<u64>,
    /// Data blocks from `end` on are not part of the parity.
    pub end: Blocks,
}

/// A data unit whose first rows are part of an equation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    /// The number of the data unit within the stripe.
    pub index: u64,
    /// The part with the unit.
    pub role: Role,
    /// How many of the equation's rows, from the first on, the unit contributes to.
    pub count: u64,
}

impl Equation {
    /// The data units to combine. `unknown`: the unit to reconstruct from the others and the parity; `None` to compute the
    /// parity itself from all units.
    pub(crate) fn terms(&self, layout: &Layout, unknown: Option<u64>) -> impl Iterator<Item = Term> {
        (0..layout.data_units()).filter(move |index| Some(*index) != unknown).filter_map(move |index| {
            let filled = layout.filled(self.stripe, index, self.end);
            let count = filled.min(self.rows.end).saturating_sub(self.rows.start);
            (count > 0).then(|| Term { index, role: layout.data(self.stripe, index), count })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_below_the_end_are_part_of_an_equation() {
        // Stripe 1 has its data units in parts 3, 0 and 1, of two blocks each, from block 6 on.
        let layout = Layout { width: 4, unit: 2, part_rows: 8 };
        let terms = |rows, end, unknown| {
            let equation = Equation { stripe: Stripe(1), rows, end: Blocks(end) };
            let terms: Vec<(u64, u32, u64)> =
                equation.terms(&layout, unknown).map(|term| (term.index, term.role.0, term.count)).collect();
            terms
        };
        assert_eq!(terms(0..2, 12, None), [(0, 3, 2), (1, 0, 2), (2, 1, 2)]);
        assert_eq!(terms(0..2, 9, Some(0)), [(1, 0, 1)]);
        assert_eq!(terms(1..2, 9, None), [(0, 3, 1)]);
        assert_eq!(terms(1..2, 9, Some(0)), []);
    }
}
