//! The space of the conventional zones, where segments of ordered logs may lie.
//!
//! ```text
//!   free --a log needs a segment--> taken --a record frees it--> freed --the record is durable--> free
//! ```
//! A conventional zone is never reset: what an earlier segment left there has another generation. Superblocks lie in zones 0 and 1,
//! which logs do not use.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use units::{Blocks, Bytes, ZoneId};

/// Bytes of a log's segment in a conventional zone: recovery reads such a segment to its end, because the zone has no write pointer.
const SEGMENT: Bytes = Bytes(4 << 20);

/// A free range shorter than a segment divided by this number takes no segment.
const SHORTEST_DIVISOR: u64 = 16;

/// A range of blocks that a metadata record freed.
#[derive(Debug)]
struct FreedRange {
    /// Number of the record.
    by: u64,
    zone: ZoneId,
    blocks: Range<u64>,
}

/// Which blocks of the conventional zones are free.
#[derive(Debug, Default)]
pub(crate) struct ConventionalSpace {
    /// The zones that logs may use, with their free ranges: from each first block to the block after the last.
    zones: BTreeMap<ZoneId, BTreeMap<u64, u64>>,
    /// Zones in which a log could not be written: they take no further segments in this mount.
    avoided: BTreeSet<ZoneId>,
    /// Ranges freed by records that may not be durable, oldest record first.
    freed: VecDeque<FreedRange>,
    /// Blocks of a segment.
    segment: u64,
    /// Blocks of the shortest free range that may become a segment: every segment costs a metadata record.
    shortest: u64,
}

impl ConventionalSpace {
    /// The space of `zones`, each with its capacity in blocks, all free. `block`: bytes of a block.
    pub(crate) fn new(zones: impl Iterator<Item = (ZoneId, u64)>, block: u64) -> ConventionalSpace {
        let mut largest = 0;
        let whole = |(zone, capacity): (ZoneId, u64)| {
            largest = capacity.max(largest);
            (zone, BTreeMap::from([(0, capacity)]))
        };
        let zones = zones.map(whole).collect();
        let segment = (SEGMENT.0 / block).max(1);
        let shortest = (segment.min(largest) / SHORTEST_DIVISOR).max(1);
        ConventionalSpace { zones, avoided: BTreeSet::new(), freed: VecDeque::new(), segment, shortest }
    }

    /// True if segments of logs may lie in `zone`.
    pub(crate) fn has(&self, zone: ZoneId) -> bool {
        self.zones.contains_key(&zone)
    }

    /// True if the device has no conventional zone for logs.
    pub(crate) fn is_empty(&self) -> bool {
        self.zones.is_empty()
    }

    /// Marks a segment's blocks as taken. False if the blocks are not free.
    #[must_use]
    pub(crate) fn take(&mut self, zone: ZoneId, blocks: Range<u64>) -> bool {
        let Some(free) = self.zones.get_mut(&zone) else { return false };
        if blocks.is_empty() {
            return true;
        }
        let Some((&start, &end)) = free.range(..=blocks.start).next_back() else { return false };
        if blocks.end > end {
            return false;
        }
        free.remove(&start);
        free.extend([(start, blocks.start), (blocks.end, end)].into_iter().filter(|(from, to)| from < to));
        true
    }

    /// Notes that metadata record number `by` frees blocks. A log may take them once the record is durable.
    pub(crate) fn free(&mut self, zone: ZoneId, blocks: Range<u64>, by: u64) {
        if !blocks.is_empty() && self.has(zone) {
            self.freed.push_back(FreedRange { by, zone, blocks });
        }
    }

    /// Gives no further segments in `zone`: a write there failed, and the zone may be worn out.
    pub(crate) fn avoid(&mut self, zone: ZoneId) {
        if self.has(zone) {
            self.avoided.insert(zone);
        }
    }

    /// Makes the blocks free that the first `durable` metadata records freed.
    pub(crate) fn release_durable(&mut self, durable: u64) {
        while self.freed.front().is_some_and(|freed| freed.by <= durable)
            && let Some(FreedRange { zone, blocks, .. }) = self.freed.pop_front()
        {
            self.add(zone, blocks);
        }
    }

    /// Number of the last record that freed blocks which are not free yet.
    pub(crate) fn freed_by(&self) -> Option<u64> {
        self.freed.back().map(|freed| freed.by)
    }

    /// A place for a log's next segment in one of the zones that `may_use` accepts: a whole segment, or else the longest free range. `None` if
    /// there is no range worth a segment. `durable`: number of metadata records that are durable.
    pub(crate) fn find(
        &mut self,
        durable: u64,
        may_use: impl Fn(ZoneId) -> bool,
    ) -> Option<(ZoneId, Range<Blocks>)> {
        self.release_durable(durable);
        let is_usable = |zone| !self.avoided.contains(&zone) && may_use(zone);
        let usable = || self.zones.iter().filter(|(zone, _)| is_usable(**zone));
        let ranges =
            || usable().flat_map(|(zone, free)| free.iter().map(|(start, end)| (*zone, *start, *end)));
        let whole = ranges().find(|(_, start, end)| end - start >= self.segment);
        let longest = || ranges().min_by_key(|(_, start, end)| Reverse(end - start));
        let (zone, start, end) =
            whole.or_else(longest).filter(|(_, start, end)| end - start >= self.shortest)?;
        Some((zone, Blocks(start)..Blocks(end.min(start + self.segment))))
    }

    /// Adds blocks to the free ones, and joins them with their neighbours.
    fn add(&mut self, zone: ZoneId, blocks: Range<u64>) {
        let Some(free) = self.zones.get_mut(&zone) else { return };
        let Range { mut start, mut end } = blocks;
        if let Some((&before, &reaches)) = free.range(..=start).next_back()
            && reaches >= start
        {
            free.remove(&before);
            (start, end) = (before, end.max(reaches));
        }
        if let Some(behind) = free.remove(&end) {
            end = behind;
        }
        free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: ZoneId = ZoneId(2);

    fn space(capacity: u64) -> ConventionalSpace {
        // A segment has 1,024 blocks.
        ConventionalSpace::new([(ZONE, capacity)].into_iter(), 4096)
    }

    /// Takes the next segment; the blocks that it has.
    fn taken(space: &mut ConventionalSpace, durable: u64) -> Option<Range<u64>> {
        let (zone, blocks) = space.find(durable, |_| true)?;
        let blocks = blocks.start.0..blocks.end.0;
        assert!(space.take(zone, blocks.clone()), "{blocks:?} are free");
        Some(blocks)
    }

    #[test]
    fn blocks_are_given_again_when_the_record_that_freed_them_is_durable() {
        let mut space = space(2048);
        assert_eq!(taken(&mut space, 0), Some(0..1024));
        assert_eq!(taken(&mut space, 0), Some(1024..2048));
        space.free(ZONE, 0..1024, 7);
        space.free(ZONE, 1024..2048, 9);
        assert_eq!(taken(&mut space, 6), None);
        assert_eq!(taken(&mut space, 8), Some(0..1024));
        assert_eq!(taken(&mut space, 8), None);
        assert_eq!(taken(&mut space, 9), Some(1024..2048));
    }

    #[test]
    fn a_zone_with_a_failed_write_takes_no_further_segments() {
        let mut space = ConventionalSpace::new([(ZONE, 2048), (ZoneId(3), 2048)].into_iter(), 4096);
        let find = |space: &mut ConventionalSpace| space.find(0, |_| true).map(|(zone, _)| zone);
        assert_eq!(find(&mut space), Some(ZONE));
        space.avoid(ZONE);
        assert_eq!(find(&mut space), Some(ZoneId(3)));
        space.avoid(ZoneId(3));
        assert_eq!(find(&mut space), None);
    }

    #[test]
    fn another_zone_is_found_where_the_first_may_not_be_used() {
        let mut space = ConventionalSpace::new([(ZONE, 2048), (ZoneId(3), 2048)].into_iter(), 4096);
        assert_eq!(space.find(0, |zone| zone != ZONE).map(|(zone, _)| zone), Some(ZoneId(3)));
        assert_eq!(space.find(0, |_| false), None);
    }

    #[test]
    fn ranges_too_short_for_a_segment_are_left_until_they_join_others() {
        let mut space = space(1024);
        assert_eq!(taken(&mut space, 0), Some(0..1024));
        space.free(ZONE, 100..163, 0);
        assert_eq!(taken(&mut space, 0), None, "63 blocks are less than a sixteenth");
        space.free(ZONE, 163..164, 0);
        assert_eq!(taken(&mut space, 0), Some(100..164));
    }

    #[test]
    fn freed_ranges_join_their_neighbours() {
        let mut space = space(4096);
        for _ in 0..4 {
            assert!(taken(&mut space, 0).is_some());
        }
        // The rest of one segment, the next one from its middle on, and what lies between.
        space.free(ZONE, 512..1024, 0);
        space.free(ZONE, 1200..1536, 0);
        assert_eq!(taken(&mut space, 0), Some(512..1024), "the longest range, as none has a whole segment");
        space.free(ZONE, 512..1024, 0);
        space.free(ZONE, 1024..1200, 0);
        assert_eq!(taken(&mut space, 0), Some(512..1536));
    }

    #[test]
    fn blocks_are_taken_once() {
        let mut space = space(2048);
        assert!(space.take(ZONE, 100..200));
        for other in [100..200, 0..101, 199..300, 2000..2049] {
            assert!(!space.take(ZONE, other.clone()), "{other:?}");
        }
        assert!(space.take(ZONE, 0..100) && space.take(ZONE, 200..2048));
        assert!(!space.take(ZoneId(1), 0..1), "logs do not use the zones of the superblocks");
        assert!(space.take(ZONE, 50..50), "an empty segment takes nothing");
        space.free(ZONE, 0..2048, 0);
        space.release_durable(0);
        assert!(space.take(ZONE, 50..50) && space.take(ZONE, 0..2048));
    }
}
