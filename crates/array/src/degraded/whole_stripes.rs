//! Rows of whole stripes that were read from several parts at once: a lacking part put together, and parities compared with data.

use std::ops::Range;

use zoned::BufMut;

use crate::degraded::equation::{Equations, Unit};
use crate::layout::gf256::add_products;
use crate::layout::running_parity::add_to;
use crate::layout::xor::xor;
use crate::layout::{Layout, Parity, Role, Stripe};

/// A range of rows of whole stripes, as read from the parts of one zone. The content of relocated rows is that of the log.
pub(crate) struct WholeStripes<'a> {
    pub layout: &'a Layout,
    /// Bytes in a row.
    pub block: usize,
    /// The rows, from the start of each part.
    pub rows: Range<u64>,
    /// The content of the rows, by role; `None` if it is not available.
    pub parts: &'a [Option<BufMut>],
}

/// Rows of one stripe.
struct StripeRows {
    stripe: Stripe,
    /// The rows, counted within the stripe unit.
    rows: Range<u64>,
    /// The place of the rows in the content of a part.
    bytes: Range<usize>,
}

impl WholeStripes<'_> {
    fn stripes(&self) -> impl Iterator<Item = StripeRows> + '_ {
        let layout = self.layout;
        let bytes = |rows: u64| usize::try_from(rows).expect("fits memory") * self.block;
        (self.rows.start / layout.unit..self.rows.end.div_ceil(layout.unit)).map(Stripe).map(move |stripe| {
            let first = layout.row(stripe);
            let (from, to) =
                (first.max(self.rows.start), (first + layout.unit_of(stripe)).min(self.rows.end));
            let bytes = bytes(from - self.rows.start)..bytes(to - self.rows.start);
            StripeRows { stripe, rows: from - first..to - first, bytes }
        })
    }

    fn content(&self, role: Role, bytes: &Range<usize>) -> Option<&[u8]> {
        self.parts.get(role.index())?.as_ref()?.get(bytes.clone())
    }

    /// The content of the part `wanted`, from the other parts. `None` if too many of these are not available.
    pub(crate) fn part(&self, wanted: Role) -> Option<BufMut> {
        let len = usize::try_from(self.rows.end - self.rows.start).ok()? * self.block;
        let mut part = BufMut::zeroed(len);
        for of in self.stripes() {
            self.put_together(&of, wanted, part.get_mut(of.bytes.clone())?)?;
        }
        Some(part)
    }

    /// Adds the rows of the part `wanted`, from the other parts, to `place`. `None` if too many of these are not available.
    fn put_together(&self, of: &StripeRows, wanted: Role, place: &mut [u8]) -> Option<()> {
        let mut products: Vec<(u8, &[u8])> = Vec::new();
        let there = |role: Role| role != wanted && self.content(role, &of.bytes).is_some();
        for (role, factor) in sources(self.layout, of.stripe, of.rows.clone(), wanted, &there)? {
            match (factor, self.content(role, &of.bytes)?) {
                (1, content) => xor(place, content),
                product => products.push(product),
            }
        }
        if !products.is_empty() {
            add_products(place, &products);
        }
        Some(())
    }

    /// The stripes of which an available parity does not fit the data. Data that is not available is put together from the other parts:
    /// a stripe that lacks as many units as there are parities, or more, has nothing to compare and fits.
    pub(crate) fn mismatches(&self) -> Vec<Stripe> {
        let wrong = |of: &StripeRows| !self.wrong_parities(of).is_empty();
        self.stripes().filter(wrong).map(|of| of.stripe).collect()
    }

    /// The available parities of the first stripe that do not fit its data, with their content computed from the data.
    pub(crate) fn wrong_parities_of_first(&self) -> Vec<(Parity, BufMut)> {
        self.stripes().next().map(|of| self.wrong_parities(&of)).unwrap_or_default()
    }

    /// True if all data units of the first stripe are available.
    pub(crate) fn has_data_of_first(&self) -> bool {
        self.stripes().next().is_some_and(|of| {
            let mut data = (0..self.layout.data_units()).map(|index| self.layout.data(of.stripe, index));
            data.all(|role| self.content(role, &of.bytes).is_some())
        })
    }

    fn wrong_parities(&self, of: &StripeRows) -> Vec<(Parity, BufMut)> {
        let mut found: Vec<(Role, BufMut)> = Vec::new();
        for role in (0..self.layout.data_units()).map(|index| self.layout.data(of.stripe, index)) {
            if self.content(role, &of.bytes).is_none() {
                let mut unit = BufMut::zeroed(of.bytes.len());
                if self.put_together(of, role, &mut unit).is_none() {
                    return Vec::new();
                }
                found.push((role, unit));
            }
        }
        let mut wrong = Vec::new();
        for parity in self.layout.parities() {
            let Some(content) = self.content(self.layout.parity(of.stripe, parity), &of.bytes) else {
                continue;
            };
            let mut sum = BufMut::zeroed(of.bytes.len());
            for role in (0..self.layout.data_units()).map(|index| self.layout.data(of.stripe, index)) {
                let put_together = || found.iter().find(|(of, _)| *of == role).map(|(_, unit)| &**unit);
                let unit = self.content(role, &of.bytes).or_else(put_together);
                add_to(parity, &mut sum, unit.unwrap_or_default());
            }
            if *content != *sum {
                wrong.push((parity, sum));
            }
        }
        wrong
    }
}

/// The parts that rows of the part `wanted` of a whole stripe follow from, each with its factor in the sum. `there`: true for a part
/// that is available. `None` if too many are not.
fn sources(
    layout: &Layout,
    stripe: Stripe,
    rows: Range<u64>,
    wanted: Role,
    there: &impl Fn(Role) -> bool,
) -> Option<Vec<(Role, u8)>> {
    let end = layout.end(stripe);
    let mut ends = [None; 2];
    for (place, parity) in ends.iter_mut().zip(layout.parities()) {
        *place = Some(end).filter(|_| there(layout.parity(stripe, parity)));
    }
    let lacking: Vec<u64> =
        (0..layout.data_units()).filter(|index| !there(layout.data(stripe, *index))).collect();
    let unit = match layout.index_on(stripe, wanted) {
        Some(index) => Unit::Data(index),
        None => Unit::Parity(layout.parity_on(stripe, wanted)?),
    };
    let terms = Equations { layout, stripe, limit: end, ends, lacking: &lacking }.terms(rows, unit)?;
    Some(terms.into_iter().map(|term| (term.role, term.factor)).collect())
}

/// The parts that rows of whole stripes of the part `wanted` follow from, by role. `there`: true for a part that is available. `None`
/// if too many are not.
pub(crate) fn needed_parts(
    layout: &Layout,
    rows: &Range<u64>,
    wanted: Role,
    there: impl Fn(Role) -> bool,
) -> Option<Vec<Role>> {
    let mut needed = Vec::new();
    for stripe in (rows.start / layout.unit..rows.end.div_ceil(layout.unit)).map(Stripe) {
        let there = |role: Role| role != wanted && there(role);
        let more = sources(layout, stripe, 0..1, wanted, &there)?;
        needed.extend(more.into_iter().map(|(role, _)| role));
    }
    needed.sort_unstable();
    needed.dedup();
    Some(needed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::running_parity::RunningParity;

    const BLOCK: usize = 16;

    /// All parts of two stripes.
    fn parts(layout: &Layout) -> Vec<Option<BufMut>> {
        let unit = layout.unit as usize * BLOCK;
        let mut parts: Vec<BufMut> = layout.roles().map(|_| BufMut::zeroed(2 * unit)).collect();
        for stripe in [Stripe(0), Stripe(1)] {
            let data: Vec<u8> = (0..layout.data_units() as usize * unit)
                .map(|n| (n * 37 + n / 11 + stripe.0 as usize) as u8)
                .collect();
            let mut parity = RunningParity::new(layout);
            parity.add_stripe(&data, unit);
            let place = stripe.0 as usize * unit..(stripe.0 as usize + 1) * unit;
            for (index, content) in (0..).zip(data.chunks(unit)) {
                parts[layout.data(stripe, index).index()][place.clone()].copy_from_slice(content);
            }
            for which in layout.parities() {
                parts[layout.parity(stripe, which).index()][place.clone()]
                    .copy_from_slice(&parity.take(which));
            }
        }
        parts.into_iter().map(Some).collect()
    }

    fn copy(part: &[u8]) -> BufMut {
        let mut copy = BufMut::with_capacity(part.len());
        copy.extend_from_slice(part);
        copy
    }

    #[test]
    fn as_many_parts_as_there_are_parities_are_put_together_from_the_others() {
        for (width, parities) in [(3, 1), (5, 1), (4, 2), (7, 2)] {
            let layout = Layout { width, parities, unit: 4, part_rows: 8 };
            let all = parts(&layout);
            for (a, b) in (0..width).flat_map(|a| (0..width).map(move |b| (Role(a), Role(b)))) {
                let content = all[a.index()].as_ref().expect("whole");
                for rows in [0..8, 3..6] {
                    let cut = rows.start as usize * BLOCK..rows.end as usize * BLOCK;
                    let some: Vec<Option<BufMut>> = layout
                        .roles()
                        .zip(&all)
                        .map(|(role, part)| part.as_ref().filter(|_| role != a && role != b))
                        .map(|part| Some(copy(&part?[cut.clone()])))
                        .collect();
                    let there = |role: Role| some[role.index()].is_some();
                    let needed = needed_parts(&layout, &rows, a, there);
                    let found = WholeStripes { layout: &layout, block: BLOCK, rows, parts: &some }.part(a);
                    let possible = a == b || parities == 2;
                    assert_eq!(
                        (found.is_some(), needed.is_some()),
                        (possible, possible),
                        "{a:?} {b:?} of {layout:?}"
                    );
                    if let Some(found) = found {
                        assert_eq!(found[..], content[cut], "{a:?} {b:?} of {layout:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_unit_that_does_not_fit_is_found_without_any_part_while_another_parity_checks() {
        let layout = Layout { width: 5, parities: 2, unit: 4, part_rows: 8 };
        for (lacking, wrong) in
            layout.roles().flat_map(|lacking| layout.roles().map(move |wrong| (lacking, wrong)))
        {
            let mut all = parts(&layout);
            all[lacking.index()] = None;
            let found = |all: &[Option<BufMut>]| {
                WholeStripes { layout: &layout, block: BLOCK, rows: 0..8, parts: all }.mismatches()
            };
            assert_eq!(found(&all), [], "without {lacking:?}");
            let Some(part) = all[wrong.index()].as_mut() else { continue };
            part[5 * BLOCK] ^= 1;
            assert_eq!(found(&all), [Stripe(1)], "without {lacking:?}, {wrong:?} is wrong");
            let third = layout.roles().find(|role| ![lacking, wrong].contains(role)).expect("five parts");
            all[third.index()] = None;
            assert_eq!(found(&all), [], "without two parts nothing can be compared");
        }
    }

    #[test]
    fn a_parity_that_does_not_fit_is_found_in_its_stripe() {
        for parities in [1, 2] {
            let layout = Layout { width: 5, parities, unit: 4, part_rows: 8 };
            for parity in layout.parities() {
                let mut all = parts(&layout);
                let found = |all: &[Option<BufMut>]| {
                    WholeStripes { layout: &layout, block: BLOCK, rows: 0..8, parts: all }.mismatches()
                };
                assert_eq!(found(&all), []);
                let part = all[layout.parity(Stripe(1), parity).index()].as_mut().expect("whole");
                part[5 * BLOCK] ^= 1;
                assert_eq!(found(&all), [Stripe(1)]);
            }
        }
    }
}
