//! Parity equations: how rows of one unit of a stripe follow from other units.
//!
//! All reconstruction combines rows by [`Equations`]: degraded reads and rebuilds (`degraded::reconstruct`) take parities of a zone in
//! use, a mount (`mount::resync`) those of the metadata logs.
//!
//! A parity covers the data below the end up to which it was computed: P is the XOR of the units that have a block below the end, Q
//! the sum of these units times powers of 2, the last one times 1. The two parities of a stripe may have different ends. Each
//! equation is judged by its own end. An equation counts only if all data is known that it covers and the other one does not.

use std::ops::Range;

use zoned::Blocks;

use crate::layout::gf256::{inverse, multiply, power_of_2};
use crate::layout::{Layout, Parity, Role, Stripe};

/// A unit of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Unit {
    /// A parity.
    Parity(Parity),
    /// The data unit with this number.
    Data(u64),
}

/// The parity equations of one stripe: up to which end each available parity was computed, and which data units are not available.
pub(crate) struct Equations<'a> {
    pub layout: &'a Layout,
    pub stripe: Stripe,
    /// Data blocks from here on count as zeros.
    pub limit: Blocks,
    /// For each parity the end of the data that it was computed from; `None` if the parity is not available.
    pub ends: [Option<Blocks>; 2],
    /// Data units that are not available.
    pub lacking: &'a [u64],
}

/// Rows of a unit, times a factor: a part of a sum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    pub unit: Unit,
    /// The part with the unit.
    pub role: Role,
    /// The rows, counted within the stripe unit.
    pub rows: Range<u64>,
    pub factor: u8,
}

/// Units and their factors for one row.
type Sum = Vec<(Unit, u8)>;

impl Equations<'_> {
    /// The sum that gives `rows` of the unit `wanted`, parities first, then data by number. The rows of an available parity that is
    /// wanted are computed from the data below the limit. `None` if any row does not follow from what is available.
    pub(crate) fn terms(&self, rows: Range<u64>, wanted: Unit) -> Option<Vec<Term>> {
        let mut terms: Vec<Term> = Vec::new();
        for run in self.uniform_runs(rows) {
            for (unit, factor) in self.sum(run.start, wanted)? {
                let same = |term: &&mut Term| {
                    term.unit == unit && term.factor == factor && term.rows.end == run.start
                };
                match terms.iter_mut().find(same) {
                    Some(term) => term.rows.end = run.end,
                    None => terms.push(Term { unit, role: self.role(unit), rows: run.clone(), factor }),
                }
            }
        }
        terms.sort_by_key(|term| (term.unit, term.rows.start));
        Some(terms)
    }

    fn role(&self, unit: Unit) -> Role {
        match unit {
            Unit::Parity(parity) => self.layout.parity(self.stripe, parity),
            Unit::Data(index) => self.layout.data(self.stripe, index),
        }
    }

    /// `rows` in runs whose rows are covered by the same units in every equation.
    fn uniform_runs(&self, rows: Range<u64>) -> Vec<Range<u64>> {
        let unit = self.layout.unit_of(self.stripe).max(1);
        let start = self.layout.start(self.stripe);
        let ends = self.ends.iter().flatten().chain([&self.limit]);
        let mut cuts: Vec<u64> = ends.map(|end| end.minus(start).0 % unit).collect();
        cuts.extend([rows.start, rows.end]);
        cuts.retain(|cut| (rows.start..=rows.end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).filter_map(|pair| Some(*pair.first()?..*pair.last()?)).collect()
    }

    /// The number of units with a block in `row` below `end`.
    fn filled_units(&self, row: u64, end: Blocks) -> u64 {
        let there = |index: &u64| self.layout.filled(self.stripe, *index, end) > row;
        (0..self.layout.data_units()).take_while(there).count() as u64
    }

    /// The factor of a data unit in the row of a parity that was computed below `end`.
    fn factor(&self, parity: Parity, index: u64, row: u64, end: Blocks) -> u8 {
        let units = self.filled_units(row, end);
        match parity {
            _ if index >= units.min(self.filled_units(row, self.limit)) => 0,
            Parity::P => 1,
            Parity::Q => power_of_2(units - 1 - index),
        }
    }

    /// The factors of all data units in the row of a parity that was computed below `end`.
    fn factors(&self, parity: Parity, row: u64, end: Blocks) -> Vec<u8> {
        (0..self.layout.data_units()).map(|index| self.factor(parity, index, row, end)).collect()
    }

    fn sum(&self, row: u64, wanted: Unit) -> Option<Sum> {
        let parity = match wanted {
            Unit::Data(index) => return self.sum_of_data(row, index),
            Unit::Parity(parity) => parity,
        };
        let mut sum = Sum::new();
        for (index, factor) in (0..).zip(self.factors(parity, row, self.limit)) {
            match factor {
                0 => {}
                _ if self.lacking.contains(&index) => {
                    add(&mut sum, &self.sum_of_data(row, index)?, factor);
                }
                _ => add(&mut sum, &[(Unit::Data(index), 1)], factor),
            }
        }
        Some(sum)
    }

    /// The sum that gives a row of a data unit.
    fn sum_of_data(&self, row: u64, index: u64) -> Option<Sum> {
        // For each available parity: the factors of all units, the units among them that are unknown, and the sum of what is known.
        let equations: Vec<(Vec<u8>, Vec<u64>, Sum)> = self
            .layout
            .parities()
            .filter_map(|parity| {
                let factors = self.factors(parity, row, self.ends.get(parity.index()).copied()??);
                let (mut unknown, mut known) = (Vec::new(), vec![(Unit::Parity(parity), 1)]);
                for (unit, factor) in (0..).zip(&factors).filter(|(_, factor)| **factor != 0) {
                    if unit == index || self.lacking.contains(&unit) {
                        unknown.push(unit);
                    } else {
                        known.push((Unit::Data(unit), *factor));
                    }
                }
                Some((factors, unknown, known))
            })
            .collect();
        let factor_of = |factors: &[u8], unit: u64| {
            usize::try_from(unit).ok().and_then(|unit| factors.get(unit)).copied().unwrap_or(0)
        };
        let sufficient: Vec<_> = equations.iter().filter(|(_, unknown, _)| unknown == &[index]).collect();
        // The choice changes with each turn of the roles, so that reads without a drive use the drives of both parities alike.
        let turn = usize::from(self.stripe.0 / u64::from(self.layout.width) % 2 == 1);
        if let Some((factors, _, known)) = sufficient.get(turn).or(sufficient.first()) {
            let mut sum = Sum::new();
            add(&mut sum, known, inverse(factor_of(factors, index)));
            return Some(sum);
        }
        if self.layout.unit_start(self.stripe, index).plus(Blocks(row)) >= self.limit {
            // The block counts as zero, and so does the sum of all that is known.
            let known = equations.into_iter().find(|(_, unknown, _)| unknown.is_empty());
            return Some(known.map(|(_, _, known)| known).unwrap_or_default());
        }
        let [(first, p_unknown, p_known), (second, q_unknown, q_known)] = equations.as_slice() else {
            return None;
        };
        let mut others = p_unknown.iter().chain(q_unknown).filter(|unit| **unit != index);
        let other = *others.next()?;
        if others.any(|unit| *unit != other) {
            return None;
        }
        // Two equations with two unknown units.
        let [a, b] = [first, second].map(|factors| factor_of(factors, index));
        let [c, d] = [first, second].map(|factors| factor_of(factors, other));
        let determinant = multiply(a, d) ^ multiply(b, c);
        if determinant == 0 {
            return None;
        }
        let mut sum = Sum::new();
        add(&mut sum, p_known, multiply(d, inverse(determinant)));
        add(&mut sum, q_known, multiply(c, inverse(determinant)));
        Some(sum)
    }
}

/// Adds `terms`, times `factor`, to a sum.
fn add(sum: &mut Sum, terms: &[(Unit, u8)], factor: u8) {
    for (unit, times) in terms {
        let more = multiply(*times, factor);
        match sum.iter_mut().find(|(of, _)| of == unit) {
            Some((_, known)) => *known ^= more,
            None => sum.push((*unit, more)),
        }
    }
    sum.retain(|(_, factor)| *factor != 0);
}

#[cfg(test)]
mod tests;
