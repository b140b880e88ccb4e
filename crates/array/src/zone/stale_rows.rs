//! Stale rows and relocated content (RAIZN, section 4.3.2, "relocated stripe units").
//!
//! After a power cut a drive may hold blocks above the logical pointer. These *stale rows* hold dead data and cannot be
//! written again until the zone is reset. Content that belongs in a stale row is *relocated*: the drive's metadata log holds
//! it, and memory holds a copy for reads. Rows above the stale ones are written in place again.
//!
//! ```text
//!   physical zone    data | dead data, stale     | data ...
//!                         ^ the pointer's row    ^ the drive's own pointer at the mount
//!   metadata log     ... RelocatedData(content of the stale rows) ...
//! ```
//!
//! Relocated parity is kept by stripe and parity: [`RelocatedParity`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use zoned::{Blocks, Buf, BufMut};

use crate::layout::row_set::RowSet;
use crate::layout::running_parity::extend_to_whole_stripe;
use crate::layout::{Layout, Parity, Role, Stripe};

/// Stale rows of one part, and the relocated content of these rows.
#[derive(Clone, Debug, Default)]
struct StalePart {
    stale: RowSet,
    /// Runs of relocated content by their first row. No run crosses the end of a stripe unit.
    content: BTreeMap<u64, Buf>,
}

/// The stale rows of a logical zone, by part.
#[derive(Clone, Debug, Default)]
pub(crate) struct StaleRows(BTreeMap<Role, StalePart>);

/// A parity of a stripe that the metadata log holds instead of its place.
#[derive(Clone, Debug)]
pub(crate) struct RelocatedParity {
    /// The parity was computed from the data blocks of the stripe below `end`.
    pub end: Blocks,
    pub unit: Buf,
}

impl RelocatedParity {
    /// True if a copy of the part has the parity in its place: the stripe, which ends at `stripe_end`, is whole, or the zone full.
    pub(crate) fn is_in_copy(&self, stripe_end: Blocks, zone_is_full: bool) -> bool {
        zone_is_full || self.end == stripe_end
    }
}

/// The relocated parities of a logical zone.
pub(crate) type RelocatedParities = BTreeMap<(Stripe, Parity), RelocatedParity>;

/// An overlay: content to put over rows that are read from a drive. Made under the zone's lock, applied after
/// the read.
#[derive(Debug, Default)]
pub(crate) struct Overlay(Vec<(usize, Buf)>);

impl Overlay {
    /// An overlay of content runs, each at its byte offset.
    pub(crate) fn new(runs: Vec<(usize, Buf)>) -> Overlay {
        Overlay(runs)
    }

    /// Copies the overlay's runs over `read`.
    pub(crate) fn apply(&self, read: &mut [u8]) {
        for (at, data) in &self.0 {
            if let Some(place) = read.get_mut(*at..at + data.len()) {
                place.copy_from_slice(data);
            }
        }
    }
}

impl StaleRows {
    /// True if no row of the zone is stale and nothing is relocated.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stale rows of a part.
    pub(crate) fn of(&self, role: Role) -> RowSet {
        self.0.get(&role).map(|part| part.stale.clone()).unwrap_or_default()
    }

    fn ranges(&self, role: Role) -> &[Range<u64>] {
        self.0.get(&role).map_or(&[], |part| part.stale.ranges())
    }

    /// The parts with stale rows.
    pub(crate) fn roles(&self) -> Vec<Role> {
        self.0.keys().copied().collect()
    }

    /// The number of stale rows of all parts.
    pub(crate) fn rows(&self) -> u64 {
        self.0.values().map(|part| part.stale.len()).sum()
    }

    /// Blocks of records that a checkpoint may need for a part once every stale row has its content: for every unit
    /// that a stale range touches, its rows and a header.
    pub(crate) fn checkpoint_blocks(&self, layout: &Layout, role: Role) -> u64 {
        let units = |range: &Range<u64>| range.end.div_ceil(layout.unit) - range.start / layout.unit;
        self.ranges(role).iter().map(|range| units(range) * (layout.unit + 1) + 1).sum()
    }

    /// True if any of `rows` of a part is stale.
    pub(crate) fn has_stale(&self, role: Role, rows: &Range<u64>) -> bool {
        self.0.get(&role).is_some_and(|part| part.stale.intersects(rows))
    }

    /// `rows` of a part as ranges, each with whether its rows are stale.
    pub(crate) fn split(&self, role: Role, rows: Range<u64>) -> Vec<(Range<u64>, bool)> {
        match self.0.get(&role) {
            Some(part) => part.stale.split(rows),
            None if rows.is_empty() => Vec::new(),
            None => vec![(rows, false)],
        }
    }

    /// Marks rows as stale.
    pub(crate) fn add(&mut self, role: Role, rows: Range<u64>) {
        if rows.start < rows.end {
            self.0.entry(role).or_default().stale.insert(rows);
        }
    }

    /// Marks all rows of a set as stale.
    pub(crate) fn add_all(&mut self, role: Role, rows: &RowSet) {
        rows.ranges().iter().for_each(|range| self.add(role, range.clone()));
    }

    /// Removes rows from the stale ones: their content is in its own place.
    pub(crate) fn remove(&mut self, role: Role, rows: &Range<u64>) {
        let Some(part) = self.0.get_mut(&role) else { return };
        part.stale.remove(rows);
        if part.stale.is_empty() {
            self.0.remove(&role);
        }
    }

    /// Forgets the stale rows of a part: its drive holds all content in place, or the array works without the drive.
    pub(crate) fn forget(&mut self, role: Role) {
        self.0.remove(&role);
    }

    /// Keeps the relocated content of rows from `row` on, all of one stripe unit. The rows may be marked as
    /// stale later.
    pub(crate) fn put(&mut self, layout: &Layout, block: usize, role: Role, row: u64, data: &Buf) {
        let part = self.0.entry(role).or_default();
        let before = part.content.range(..row).next_back().map(|(at, run)| (*at, run.clone()));
        // Adjacent relocated content joins one run, so that a checkpoint has one record for both.
        if let Some((at, old)) = before
            && at / layout.unit == row / layout.unit
            && at + (old.len() / block) as u64 == row
        {
            let mut run = BufMut::with_capacity(old.len() + data.len());
            run.extend_from_slice(&old);
            run.extend_from_slice(data);
            part.content.insert(at, run.freeze());
        } else {
            // The content is copied, because `data` may be a slice of a larger buffer. The tail of a longer
            // old run stays.
            let mut run = BufMut::with_capacity(data.len());
            run.extend_from_slice(data);
            let tail = part.content.get(&row).and_then(|old| old.get(data.len()..));
            run.extend_from_slice(tail.unwrap_or_default());
            part.content.insert(row, run.freeze());
        }
    }

    /// The runs of relocated content of a part: first row and content.
    pub(crate) fn runs(&self, role: Role) -> impl Iterator<Item = (u64, &Buf)> {
        self.0.get(&role).into_iter().flat_map(|part| &part.content).map(|(row, data)| (*row, data))
    }

    /// The relocated content of the rows `row..row + count` of a part.
    pub(crate) fn overlay(&self, block: usize, role: Role, row: u64, count: u64) -> Overlay {
        let Some(part) = self.0.get(&role) else { return Overlay::default() };
        let mut overlay = Vec::new();
        for (at, data) in part.content.range(..row + count) {
            let end = at + (data.len() / block) as u64;
            let (from, to) = ((*at).max(row), end.min(row + count));
            if from < to {
                let part = data.slice((from - at) as usize * block..(to - at) as usize * block);
                overlay.push(((from - row) as usize * block, part));
            }
        }
        Overlay(overlay)
    }

    /// The content of rows of a part if all of them are relocated, so that no read of the drive is needed.
    pub(crate) fn overlay_if_all_relocated(
        &self,
        block: usize,
        role: Role,
        row: u64,
        count: u64,
    ) -> Option<Overlay> {
        self.0.get(&role)?;
        self.first_row_without_content(role, block, row..row + count)
            .is_none()
            .then(|| self.overlay(block, role, row, count))
    }

    /// Adds the relocated content that a log contains. Rows that are not stale are ignored.
    pub(crate) fn add_logged(
        &mut self,
        layout: &Layout,
        block: usize,
        role: Role,
        known: &BTreeMap<u64, Buf>,
    ) {
        for (row, data) in known {
            let rows = *row..*row + (data.len() / block) as u64;
            for (part, stale) in self.split(role, rows) {
                // Two overlapping runs of relocated content have the same content.
                let missing = self.first_row_without_content(role, block, part.clone());
                if stale && let Some(from) = missing {
                    let bytes = (from - row) as usize * block..(part.end - row) as usize * block;
                    self.put(layout, block, role, from, &data.slice(bytes));
                }
            }
        }
    }

    /// The first of `rows` without relocated content.
    fn first_row_without_content(&self, role: Role, block: usize, rows: Range<u64>) -> Option<u64> {
        let mut at = rows.start;
        for (row, data) in self.runs(role) {
            if row <= at && at < rows.end {
                at = at.max(row + (data.len() / block) as u64);
            }
        }
        (at < rows.end).then_some(at)
    }

    /// The first row of a part that lacks its data, where the write pointer of the part's drive is at `row`. Stale rows of
    /// data without relocated content lack their data.
    pub(crate) fn first_row_without_data(&self, layout: &Layout, block: usize, role: Role, row: u64) -> u64 {
        for range in self.ranges(role) {
            let mut at = range.start;
            while at < range.end {
                let stripe = Stripe(at / layout.unit);
                let end = layout.row(Stripe(stripe.0 + 1)).min(range.end);
                if layout.parity_on(stripe, role).is_none()
                    && let Some(missing) = self.first_row_without_content(role, block, at..end)
                {
                    return missing.min(row);
                }
                at = end;
            }
        }
        row
    }

    /// The parities whose rows in their place do not count, and of which no relocated parity of the whole stripe is known: those that
    /// belong in stale rows, and those that are relocated for a part of their stripe's data, from all of which they were never computed.
    pub(crate) fn uncertain_parity(
        &self,
        layout: &Layout,
        relocated: &RelocatedParities,
    ) -> BTreeSet<(Stripe, Parity)> {
        let is_inside = |(of, unit): &(&(Stripe, Parity), &RelocatedParity)| unit.end < layout.end(of.0);
        let mut uncertain: BTreeSet<_> = relocated.iter().filter(is_inside).map(|(of, _)| *of).collect();
        for (role, part) in &self.0 {
            uncertain.extend(part.stale.stripes(layout.unit).filter_map(|stripe| {
                let parity = layout.parity_on(stripe, *role)?;
                let relocated = relocated.get(&(stripe, parity));
                let known = relocated.is_some_and(|unit| unit.end == layout.end(stripe));
                (!known).then_some((stripe, parity))
            }));
        }
        uncertain
    }

    /// A mount set the pointer of a part: `used` rows count, and `written` rows are on the drive. Relocated content above
    /// `used` is dropped, and the rows from `used` to `written` become stale.
    pub(crate) fn cut(&mut self, block: usize, role: Role, used: u64, written: u64) {
        if let Some(part) = self.0.get_mut(&role) {
            part.stale.truncate(used);
            part.content.retain(|row, _| *row < used);
            if let Some((row, data)) = part.content.iter_mut().next_back() {
                let rows = (used - row).min((data.len() / block) as u64) as usize;
                *data = data.slice(..rows * block);
            }
            if part.stale.is_empty() {
                self.0.remove(&role);
            }
        }
        self.add(role, used..written);
    }
}

/// Puts relocated data and parity over rows that were read from the part `role`. The parity of a stripe that is not whole has the value
/// that it would have in its place: computed with zeros up to the stripe's end.
pub(crate) fn apply_relocated(
    layout: &Layout,
    block: usize,
    (stale, relocated): (&StaleRows, &RelocatedParities),
    role: Role,
    row: u64,
    data: &mut BufMut,
) {
    let bytes = |rows: u64| usize::try_from(rows).expect("fits memory") * block;
    let count = (data.len() / block) as u64;
    stale.overlay(block, role, row, count).apply(data);
    for stripe in (row / layout.unit..(row + count).div_ceil(layout.unit)).map(Stripe) {
        let Some(parity) = layout.parity_on(stripe, role) else { continue };
        let Some(relocated) = relocated.get(&(stripe, parity)) else { continue };
        let first = layout.row(stripe);
        let (from, to) = (first.max(row), (first + layout.unit_of(stripe)).min(row + count));
        let mut whole = relocated.unit.to_vec();
        if relocated.end < layout.end(stripe) {
            extend_to_whole_stripe(layout, (stripe, parity), relocated.end, block, &mut whole);
        }
        let place = data.get_mut(bytes(from - row)..bytes(to - row));
        if let Some((place, unit)) = place.zip(whole.get(bytes(from - first)..bytes(to - first))) {
            place.copy_from_slice(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { width: 3, parities: 1, unit: 4, part_rows: 64 };
    const ROLE: Role = Role(1);

    fn rows(from: u8, count: u8) -> Buf {
        Buf::copy_from(&(from..from + count).flat_map(|row| [row; 2]).collect::<Vec<_>>())
    }

    #[test]
    fn a_write_is_split_where_stale_rows_begin_and_end() {
        let mut stale = StaleRows::default();
        stale.add(ROLE, 6..9);
        stale.add(ROLE, 9..11);
        stale.add(ROLE, 14..15);
        assert_eq!(stale.of(ROLE).ranges(), [6..11, 14..15]);
        let parts = stale.split(ROLE, 4..16);
        assert_eq!(parts, [(4..6, false), (6..11, true), (11..14, false), (14..15, true), (15..16, false)]);
        assert_eq!(stale.split(Role(0), 4..6), [(4..6, false)]);
        stale.remove(ROLE, &(7..14));
        assert_eq!(stale.of(ROLE).ranges(), [6..7, 14..15]);
        assert!(stale.has_stale(ROLE, &(0..7)) && !stale.has_stale(ROLE, &(7..14)));
        assert_eq!(stale.rows(), 2);
    }

    #[test]
    fn relocated_content_is_put_over_rows_that_were_read() {
        let mut stale = StaleRows::default();
        stale.add(ROLE, 4..12);
        stale.put(&LAYOUT, 2, ROLE, 5, &rows(5, 1));
        stale.put(&LAYOUT, 2, ROLE, 6, &rows(6, 2));
        stale.put(&LAYOUT, 2, ROLE, 8, &rows(8, 1));
        assert_eq!(
            stale.runs(ROLE).map(|(row, data)| (row, data.len())).collect::<Vec<_>>(),
            [(5, 6), (8, 2)]
        );
        let mut read = vec![0; 10];
        stale.overlay(2, ROLE, 4, 5).apply(&mut read);
        assert_eq!(read, [0, 0, 5, 5, 6, 6, 7, 7, 8, 8]);
        assert_eq!(stale.first_row_without_content(ROLE, 2, 4..9), Some(4));
        assert_eq!(stale.first_row_without_content(ROLE, 2, 5..9), None);
        // The cut at row 7 drops the relocated content above, and the rows up to the drive's own pointer
        // become stale.
        stale.cut(2, ROLE, 7, 20);
        assert!(stale.of(ROLE) == RowSet::from_iter(std::iter::once(4..20)));
        assert_eq!(stale.first_row_without_content(ROLE, 2, 5..9), Some(7));
    }

    #[test]
    fn a_run_keeps_its_end_when_its_beginning_is_put_again() {
        let mut stale = StaleRows::default();
        stale.add(ROLE, 4..8);
        stale.put(&LAYOUT, 2, ROLE, 4, &rows(4, 4));
        stale.put(&LAYOUT, 2, ROLE, 4, &rows(4, 1));
        assert_eq!(stale.first_row_without_content(ROLE, 2, 4..8), None);
        let mut read = vec![0; 8];
        stale.overlay(2, ROLE, 4, 4).apply(&mut read);
        assert_eq!(read, *rows(4, 4));
    }

    #[test]
    fn records_that_overlap_are_learned_once() {
        let known = [(3, rows(3, 3)), (4, rows(4, 4)), (9, rows(9, 2))].into_iter().collect();
        let learned = |role| {
            let mut stale = StaleRows::default();
            stale.add(role, 4..10);
            stale.add_logged(&LAYOUT, 2, role, &known);
            assert_eq!(stale.first_row_without_content(role, 2, 4..8), None);
            assert_eq!(stale.first_row_without_content(role, 2, 4..10), Some(8));
            stale
        };
        // Rows 8 and 9 are parity in one part, so that no data is missing there, and data in the others.
        let parity = LAYOUT.parity(Stripe(2), Parity::P);
        for role in LAYOUT.roles() {
            let missing = if role == parity { 30 } else { 8 };
            assert_eq!(learned(role).first_row_without_data(&LAYOUT, 2, role, 30), missing);
        }
        let without_parity = learned(parity).uncertain_parity(&LAYOUT, &BTreeMap::new());
        assert_eq!(without_parity, [(Stripe(2), Parity::P)].into_iter().collect());
    }
}
