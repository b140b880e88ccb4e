use proptest::prelude::*;

use super::*;
use crate::layout::running_parity::add_to;

/// Unit number or parity, and the rows, of each term.
fn described(terms: Option<Vec<Term>>) -> Option<Vec<(Unit, u32, Range<u64>)>> {
    Some(terms?.into_iter().map(|term| (term.unit, term.role.0, term.rows)).collect())
}

#[test]
fn only_blocks_below_the_end_are_part_of_an_equation() {
    // Stripe 1 has its data units in parts 3, 0 and 1, of two blocks each, from block 6 on, and its parity in part 2.
    let layout = Layout { width: 4, parities: 1, unit: 2, part_rows: 8 };
    let terms = |rows, end, wanted| {
        let (ends, lacking) = ([Some(Blocks(end)), None], &[]);
        let equations = Equations { layout: &layout, stripe: Stripe(1), limit: Blocks(end), ends, lacking };
        described(equations.terms(rows, wanted)).expect("nothing is lacking")
    };
    let (p, data) = (Unit::Parity(Parity::P), Unit::Data);
    assert_eq!(terms(0..2, 12, p), [(data(0), 3, 0..2), (data(1), 0, 0..2), (data(2), 1, 0..2)]);
    assert_eq!(terms(0..2, 9, data(0)), [(p, 2, 0..2), (data(1), 0, 0..1)]);
    assert_eq!(terms(1..2, 9, p), [(data(0), 3, 1..2)]);
    assert_eq!(terms(1..2, 9, data(0)), [(p, 2, 1..2)]);
}

/// The content of a data block, one byte.
fn block(n: u64) -> u8 {
    (n * 89 + n / 3 + 7) as u8
}

/// One row of a parity of the data of a stripe below `end`, computed unit by unit.
fn parity_row(layout: &Layout, stripe: Stripe, parity: Parity, row: u64, end: Blocks, limit: Blocks) -> u8 {
    let mut sum = [0];
    for index in 0..layout.data_units() {
        let at = layout.unit_start(stripe, index).plus(Blocks(row));
        if at < end {
            add_to(parity, &mut sum, &[if at < limit { block(at.0) } else { 0 }]);
        }
    }
    sum[0]
}

proptest! {
    /// Any two units that lack are found again, whatever the ends up to which the parities were computed.
    #[test]
    fn every_sum_gives_the_unit_that_is_wanted(
        width in 4_u32..9, unit in 1_u64..5, (p_end, q_end, limit) in (0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64),
        (first, second) in (0_u64..8, 0_u64..8), gone in 0_usize..3, same in any::<bool>(), stripe in (0_u64..20).prop_map(Stripe),
    ) {
        let layout = Layout { width, parities: 2, unit, part_rows: 20 * unit };
        let place = |share: f64| layout.start(stripe).plus(Blocks((share * (layout.data_units() * unit) as f64) as u64));
        let p_end = place(p_end);
        let q_end = if same { p_end } else { place(q_end) };
        let limit = place(limit);
        let ends = [Some(p_end), Some(q_end)].map(|end| end.filter(|_| gone == 0));
        let ends = match gone {
            0 => ends,
            1 => [None, Some(q_end)],
            _ => [Some(p_end), None],
        };
        let lacking: Vec<u64> = [first, second].into_iter().map(|n| n % layout.data_units()).collect();
        let lacking = if gone == 0 { lacking } else { lacking[..1].to_vec() };
        let equations = Equations { layout: &layout, stripe, limit, ends, lacking: &lacking };
        let known = |term: &Term, row: u64| match term.unit {
            Unit::Parity(parity) => {
                parity_row(&layout, stripe, parity, row, ends[parity.index()].expect("available"), limit)
            }
            Unit::Data(index) => {
                assert!(!lacking.contains(&index), "a lacking unit is a term");
                let at = layout.unit_start(stripe, index).plus(Blocks(row));
                assert!(at < limit, "a block above the limit is a term");
                block(at.0)
            }
        };
        for row in 0..unit {
            let sum = |wanted| {
                let terms = equations.terms(row..row + 1, wanted)?;
                Some(terms.iter().fold(0, |sum, term| sum ^ multiply(term.factor, known(term, row))))
            };
            for index in 0..layout.data_units() {
                let at = layout.unit_start(stripe, index).plus(Blocks(row));
                let below_both = ends.iter().flatten().all(|end| at < *end);
                match sum(Unit::Data(index)) {
                    Some(found) if at < limit && ends.iter().flatten().any(|end| at < *end) => prop_assert_eq!(found, block(at.0)),
                    Some(_) => {}
                    None => prop_assert!(!(same && below_both && lacking.contains(&index)), "block {} of {:?}", at.0, ends),
                }
            }
            for parity in layout.parities() {
                let covered = ends.iter().flatten().all(|end| *end >= limit);
                if let Some(found) = sum(Unit::Parity(parity)).filter(|_| covered) {
                    prop_assert_eq!(found, parity_row(&layout, stripe, parity, row, limit, limit));
                }
            }
        }
        // A run of rows gives the same sums as its rows one by one.
        for index in 0..layout.data_units() {
            let together = equations.terms(0..unit, Unit::Data(index));
            let alone: Option<Vec<Vec<Term>>> =
                (0..unit).map(|row| equations.terms(row..row + 1, Unit::Data(index))).collect();
            prop_assert_eq!(together.is_some(), alone.is_some());
            let (Some(together), Some(alone)) = (together, alone) else { continue };
            for (row, terms) in (0..).zip(alone) {
                let there: Vec<(Unit, u8)> = together.iter().filter(|term| term.rows.contains(&row)).map(|t| (t.unit, t.factor)).collect();
                prop_assert_eq!(there, terms.iter().map(|t| (t.unit, t.factor)).collect::<Vec<_>>());
            }
        }
    }
}
