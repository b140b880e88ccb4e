//! Relocated stripe units (section 4.3.2): rows of physical zones that hold what was never acknowledged, and what
//! belongs there.
//!
//! After a power cut some drives may hold blocks above the pointer. These rows are *hidden*: they count as unwritten
//! and cannot be written again. What is written there later goes to the drive's metadata log, and stays in memory for
//! reads. Rows above go to their places again.
//!
//! ```text
//!   physical zone    data | garbage, hidden      | data ...
//!                         ^ the pointer's row    ^ the drive's own pointer at the mount
//!   metadata log     ... RelocatedData(rows of the hidden range) ...
//! ```
//!
//! Parity of hidden places is kept by stripe, with other parity that does not lie in its place: see
//! [`Relocated`](crate::zone::Relocated).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use zoned::{Buf, BufMut, ZoneId};

use crate::layout::{Layout, Slot, Stripe};
use crate::zone::Relocated;

/// Hidden rows of one physical zone, and the data that belongs there.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Disjoint, in order, not empty.
    hidden: Vec<Range<u64>>,
    /// Runs of data by their first row; none reaches over the end of a stripe unit.
    held: BTreeMap<u64, Buf>,
}

/// The relocated data of a logical zone, by drive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patches(BTreeMap<Slot, Part>);

/// What to put over rows that were read. Taken under the zone's lock, used later.
#[derive(Debug, Default)]
pub(crate) struct Overlay(Vec<(usize, Buf)>);

impl Overlay {
    /// Runs of bytes, each with where it goes.
    pub(crate) fn new(runs: Vec<(usize, Buf)>) -> Overlay {
        Overlay(runs)
    }

    /// Puts what belongs there over what the drive gave.
    pub(crate) fn apply(&self, read: &mut [u8]) {
        for (at, data) in &self.0 {
            if let Some(place) = read.get_mut(*at..at + data.len()) {
                place.copy_from_slice(data);
            }
        }
    }
}

/// Adds a range to disjoint ones in order.
pub(crate) fn insert(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    ranges.push(range);
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match merged.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => merged.push(range),
        }
    }
    *ranges = merged;
}

/// Takes a range out of disjoint ones.
pub(crate) fn remove(ranges: &mut Vec<Range<u64>>, rows: &Range<u64>) {
    let cut =
        |range: &Range<u64>| [range.start..range.end.min(rows.start), range.start.max(rows.end)..range.end];
    *ranges = ranges.iter().flat_map(cut).filter(|range| range.start < range.end).collect();
}

impl Patches {
    /// Nothing is hidden.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hidden rows of a drive.
    pub(crate) fn hidden(&self, slot: Slot) -> &[Range<u64>] {
        self.0.get(&slot).map_or(&[], |part| &part.hidden)
    }

    /// The drives with hidden rows.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.0.keys().copied().collect()
    }

    /// Hidden rows of all drives.
    pub(crate) fn rows(&self) -> u64 {
        self.0.values().flat_map(|part| &part.hidden).map(|range| range.end - range.start).sum()
    }

    /// Blocks of records that may be needed of a drive in a checkpoint, once all that is hidden has its content: for
    /// every unit that a hidden range touches its rows and a header.
    pub(crate) fn cost(&self, layout: &Layout, slot: Slot) -> u64 {
        let units = |range: &Range<u64>| range.end.div_ceil(layout.unit) - range.start / layout.unit;
        self.hidden(slot).iter().map(|range| units(range) * (layout.unit + 1) + 1).sum()
    }

    /// Whether any of these rows is hidden.
    pub(crate) fn hides(&self, slot: Slot, rows: &Range<u64>) -> bool {
        self.hidden(slot).iter().any(|range| range.start < rows.end && rows.start < range.end)
    }

    /// Rows cut where what is hidden begins and ends.
    pub(crate) fn split(&self, slot: Slot, rows: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts = Vec::new();
        let mut at = rows.start;
        for range in self.hidden(slot) {
            let (start, end) = (range.start.max(at), range.end.min(rows.end));
            if start >= end {
                continue;
            }
            if at < start {
                parts.push((at..start, false));
            }
            parts.push((start..end, true));
            at = end;
        }
        if at < rows.end {
            parts.push((at..rows.end, false));
        }
        parts
    }

    /// Hides rows.
    pub(crate) fn hide(&mut self, slot: Slot, rows: Range<u64>) {
        if rows.start >= rows.end {
            return;
        }
        insert(&mut self.0.entry(slot).or_default().hidden, rows);
    }

    /// These rows hold what they should.
    pub(crate) fn show(&mut self, slot: Slot, rows: &Range<u64>) {
        let Some(part) = self.0.get_mut(&slot) else { return };
        remove(&mut part.hidden, rows);
        if part.hidden.is_empty() {
            self.0.remove(&slot);
        }
    }

    /// A drive holds everything in its place, or is out of use.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.0.remove(&slot);
    }

    /// Keeps what belongs in rows from `row` on: of one stripe unit. They may be hidden later.
    pub(crate) fn put(&mut self, layout: &Layout, block: usize, slot: Slot, row: u64, data: &Buf) {
        let part = self.0.entry(slot).or_default();
        let before = part.held.range(..row).next_back().map(|(at, held)| (*at, held.clone()));
        // One run for what follows on, so that a checkpoint has one record for it.
        if let Some((at, held)) = before
            && at / layout.unit == row / layout.unit
            && at + (held.len() / block) as u64 == row
        {
            let mut run = BufMut::with_capacity(held.len() + data.len());
            run.extend_from_slice(&held);
            run.extend_from_slice(data);
            part.held.insert(at, run.freeze());
        } else {
            // A copy: the write's buffer is a part of a larger one, perhaps. What a longer run has beyond it stays.
            let mut run = BufMut::with_capacity(data.len());
            run.extend_from_slice(data);
            run.extend_from_slice(
                part.held.get(&row).and_then(|old| old.get(data.len()..)).unwrap_or_default(),
            );
            part.held.insert(row, run.freeze());
        }
    }

    /// The runs of data of a drive: first row and content.
    pub(crate) fn runs(&self, slot: Slot) -> impl Iterator<Item = (u64, &Buf)> {
        self.0.get(&slot).into_iter().flat_map(|part| &part.held).map(|(row, data)| (*row, data))
    }

    /// What belongs over the rows `row..row + count` of a drive.
    pub(crate) fn over(&self, block: usize, slot: Slot, row: u64, count: u64) -> Overlay {
        let Some(part) = self.0.get(&slot) else { return Overlay::default() };
        let mut overlay = Vec::new();
        for (at, data) in part.held.range(..row + count) {
            let end = at + (data.len() / block) as u64;
            let (from, to) = ((*at).max(row), end.min(row + count));
            if from < to {
                let part = data.slice((from - at) as usize * block..(to - at) as usize * block);
                overlay.push(((from - row) as usize * block, part));
            }
        }
        Overlay(overlay)
    }

    /// What belongs in these rows, if all of it is held here: the drive need not be asked.
    pub(crate) fn held(&self, block: usize, slot: Slot, row: u64, count: u64) -> Option<Overlay> {
        self.0.get(&slot)?;
        self.missing(slot, block, row..row + count).is_none().then(|| self.over(block, slot, row, count))
    }

    /// Takes in what a log says belongs there: rows that are not hidden are passed over.
    pub(crate) fn learn(&mut self, layout: &Layout, block: usize, slot: Slot, known: &BTreeMap<u64, Buf>) {
        for (row, data) in known {
            let rows = *row..*row + (data.len() / block) as u64;
            for (part, hidden) in self.split(slot, rows) {
                // What an earlier run has of it is the same.
                let missing = self.missing(slot, block, part.clone());
                if hidden && let Some(from) = missing {
                    let bytes = (from - row) as usize * block..(part.end - row) as usize * block;
                    self.put(layout, block, slot, from, &data.slice(bytes));
                }
            }
        }
    }

    /// The first of these rows without content.
    fn missing(&self, slot: Slot, block: usize, rows: Range<u64>) -> Option<u64> {
        let mut at = rows.start;
        for (row, data) in self.runs(slot) {
            if row <= at && at < rows.end {
                at = at.max(row + (data.len() / block) as u64);
            }
        }
        (at < rows.end).then_some(at)
    }

    /// The first row of a drive without its data, where its own pointer is at `row`.
    pub(crate) fn data_row(&self, layout: &Layout, block: usize, zone: ZoneId, slot: Slot, row: u64) -> u64 {
        for range in self.hidden(slot) {
            let mut at = range.start;
            while at < range.end {
                let stripe = Stripe(at / layout.unit);
                let end = layout.row(Stripe(stripe.0 + 1)).min(range.end);
                if layout.parity(zone, stripe) != slot
                    && let Some(missing) = self.missing(slot, block, at..end)
                {
                    return missing.min(row);
                }
                at = end;
            }
        }
        row
    }

    /// Stripes whose parity should lie in a hidden place, and is not known to lie elsewhere.
    pub(crate) fn suspects(
        &self,
        layout: &Layout,
        zone: ZoneId,
        relocated: &BTreeMap<Stripe, Relocated>,
    ) -> BTreeSet<Stripe> {
        let mut suspects = BTreeSet::new();
        for (slot, part) in &self.0 {
            for range in &part.hidden {
                for stripe in (range.start / layout.unit..range.end.div_ceil(layout.unit)).map(Stripe) {
                    let known = relocated.get(&stripe).is_some_and(|unit| unit.end == layout.end(stripe));
                    if layout.parity(zone, stripe) == *slot && !known {
                        suspects.insert(stripe);
                    }
                }
            }
        }
        suspects
    }

    /// The zone goes on, or ends, where `used` rows of a drive count and `written` are on it: what is above is hidden
    /// anew, and forgotten.
    pub(crate) fn cut(&mut self, block: usize, slot: Slot, used: u64, written: u64) {
        if let Some(part) = self.0.get_mut(&slot) {
            part.hidden.iter_mut().for_each(|range| range.end = range.end.min(used));
            part.hidden.retain(|range| range.start < range.end);
            part.held.retain(|row, _| *row < used);
            if let Some((row, data)) = part.held.iter_mut().next_back() {
                let rows = (used - row).min((data.len() / block) as u64) as usize;
                *data = data.slice(..rows * block);
            }
            if part.hidden.is_empty() {
                self.0.remove(&slot);
            }
        }
        self.hide(slot, used..written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { drives: 3, unit: 4, zone_capacity: 64 };
    const SLOT: Slot = Slot(1);

    fn rows(from: u8, count: u8) -> Buf {
        Buf::copy_from(&(from..from + count).flat_map(|row| [row; 2]).collect::<Vec<_>>())
    }

    #[test]
    fn hidden_rows_are_cut_out_of_a_write() {
        let mut patches = Patches::default();
        patches.hide(SLOT, 6..9);
        patches.hide(SLOT, 9..11);
        patches.hide(SLOT, 14..15);
        assert_eq!(patches.hidden(SLOT), [6..11, 14..15]);
        let parts = patches.split(SLOT, 4..16);
        assert_eq!(parts, [(4..6, false), (6..11, true), (11..14, false), (14..15, true), (15..16, false)]);
        assert_eq!(patches.split(Slot(0), 4..6), [(4..6, false)]);
        patches.show(SLOT, &(7..14));
        assert_eq!(patches.hidden(SLOT), [6..7, 14..15]);
        assert!(patches.hides(SLOT, &(0..7)) && !patches.hides(SLOT, &(7..14)));
        assert_eq!(patches.rows(), 2);
    }

    #[test]
    fn what_belongs_there_is_put_over_what_was_read() {
        let mut patches = Patches::default();
        patches.hide(SLOT, 4..12);
        patches.put(&LAYOUT, 2, SLOT, 5, &rows(5, 1));
        patches.put(&LAYOUT, 2, SLOT, 6, &rows(6, 2));
        patches.put(&LAYOUT, 2, SLOT, 8, &rows(8, 1));
        assert_eq!(
            patches.runs(SLOT).map(|(row, data)| (row, data.len())).collect::<Vec<_>>(),
            [(5, 6), (8, 2)]
        );
        let mut read = vec![0; 10];
        patches.over(2, SLOT, 4, 5).apply(&mut read);
        assert_eq!(read, [0, 0, 5, 5, 6, 6, 7, 7, 8, 8]);
        assert_eq!(patches.missing(SLOT, 2, 4..9), Some(4));
        assert_eq!(patches.missing(SLOT, 2, 5..9), None);
        // Of a cut run the upper part is forgotten; the drive's own pointer says what is hidden.
        patches.cut(2, SLOT, 7, 20);
        assert!(patches.hidden(SLOT).iter().eq([&(4..20)]));
        assert_eq!(patches.missing(SLOT, 2, 5..9), Some(7));
    }

    #[test]
    fn a_run_keeps_its_end_when_its_beginning_is_put_again() {
        let mut patches = Patches::default();
        patches.hide(SLOT, 4..8);
        patches.put(&LAYOUT, 2, SLOT, 4, &rows(4, 4));
        patches.put(&LAYOUT, 2, SLOT, 4, &rows(4, 1));
        assert_eq!(patches.missing(SLOT, 2, 4..8), None);
        let mut read = vec![0; 8];
        patches.over(2, SLOT, 4, 4).apply(&mut read);
        assert_eq!(read, *rows(4, 4));
    }

    #[test]
    fn a_log_is_taken_in_whatever_its_records_overlap() {
        let mut patches = Patches::default();
        patches.hide(SLOT, 4..10);
        let known = [(3, rows(3, 3)), (4, rows(4, 4)), (9, rows(9, 2))].into_iter().collect();
        patches.learn(&LAYOUT, 2, SLOT, &known);
        let zone =
            (0..9).map(ZoneId).find(|zone| LAYOUT.parity(*zone, Stripe(2)) == SLOT).expect("one of three");
        assert_eq!(patches.missing(SLOT, 2, 4..8), None);
        assert_eq!(patches.missing(SLOT, 2, 4..10), Some(8));
        // Rows 8 and 9 are parity there: no data is missing.
        assert_eq!(patches.data_row(&LAYOUT, 2, zone, SLOT, 30), 30);
        let other = ZoneId(zone.0 + 1);
        assert_eq!(
            patches.data_row(&LAYOUT, 2, other, SLOT, 30),
            if LAYOUT.parity(other, Stripe(2)) == SLOT { 30 } else { 8 }
        );
        assert_eq!(patches.suspects(&LAYOUT, zone, &BTreeMap::new()), [Stripe(2)].into_iter().collect());
    }
}
