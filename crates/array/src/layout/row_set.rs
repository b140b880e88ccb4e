//! A set of rows of a physical zone.

use std::ops::Range;

/// Rows of a physical zone, as disjoint ranges in ascending order; no range is empty, none touches the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct RowSet(Vec<Range<u64>>);

impl RowSet {
    /// True if the set has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of rows in the set.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// One past the highest row of the set; 0 for the empty set.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |range| range.end)
    }

    /// The ranges of the set, in ascending order.
    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// True if any of `rows` is in the set.
    pub(crate) fn intersects(&self, rows: &Range<u64>) -> bool {
        self.0.iter().any(|range| range.start < rows.end && rows.start < range.end)
    }

    /// Adds `rows`.
    pub(crate) fn insert(&mut self, rows: Range<u64>) {
        if rows.start >= rows.end {
            return;
        }
        if self.0.is_empty() || rows.start > self.end() {
            return self.0.push(rows);
        }
        self.0.push(rows);
        self.0.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::with_capacity(self.0.len());
        for range in self.0.drain(..) {
            match merged.last_mut().filter(|last| last.end >= range.start) {
                Some(last) => last.end = last.end.max(range.end),
                None => merged.push(range),
            }
        }
        self.0 = merged;
    }

    /// Removes `rows`.
    pub(crate) fn remove(&mut self, rows: &Range<u64>) {
        let cut = |range: &Range<u64>| {
            [range.start..range.end.min(rows.start), range.start.max(rows.end)..range.end]
        };
        self.0 = self.0.iter().flat_map(cut).filter(|range| range.start < range.end).collect();
    }

    /// Removes all rows from `end` on from the set.
    pub(crate) fn truncate(&mut self, end: u64) {
        self.remove(&(end..u64::MAX));
    }

    /// `rows` in parts, each with whether its rows are in the set.
    pub(crate) fn split(&self, rows: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let mut parts = Vec::new();
        let mut at = rows.start;
        for range in &self.0 {
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

    /// The stripes of `unit` rows that contain any row of the set; a stripe that two ranges touch comes
    /// twice.
    pub(crate) fn stripes(&self, unit: u64) -> impl Iterator<Item = crate::layout::Stripe> + '_ {
        let stripes = move |range: &Range<u64>| range.start / unit..range.end.div_ceil(unit);
        self.0.iter().flat_map(stripes).map(crate::layout::Stripe)
    }
}

impl FromIterator<Range<u64>> for RowSet {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> RowSet {
        let mut set = RowSet::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_merged_and_removed_rows_split_them() {
        let mut set: RowSet = [6..9, 9..11, 14..15, 3..3].into_iter().collect();
        assert_eq!(set.ranges(), [6..11, 14..15]);
        assert_eq!((set.len(), set.end()), (6, 15));
        set.remove(&(7..14));
        assert_eq!(set.ranges(), [6..7, 14..15]);
        assert!(set.intersects(&(0..7)) && !set.intersects(&(7..14)));
        set.truncate(14);
        assert_eq!(set.ranges(), std::slice::from_ref(&(6..7)));
        set.truncate(0);
        assert!(set.is_empty());
    }

    #[test]
    fn a_split_covers_all_rows_in_order() {
        let set: RowSet = [6..11, 14..15].into_iter().collect();
        let parts = set.split(4..16);
        assert_eq!(parts, [(4..6, false), (6..11, true), (11..14, false), (14..15, true), (15..16, false)]);
        assert_eq!(set.stripes(4).map(|stripe| stripe.0).collect::<Vec<_>>(), [1, 2, 3]);
    }
}
