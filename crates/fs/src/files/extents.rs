//! The extents of a file: a list sorted by file offset, searched by bisection.

use std::ops::Range;

use units::{Blocks, ZoneId};

/// An extent: a run of blocks in one zone that holds a part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The extent's offset in the file, in bytes: a multiple of the block size.
    pub offset: u64,
    /// The extent's length in bytes: whole blocks, except at the file's end.
    pub bytes: u64,
    /// The extent's first block within the zone.
    pub start: Blocks,
    pub zone: ZoneId,
}

impl Extent {
    /// The file offset behind the extent.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// Zones, each with the number of its blocks that a file no longer refers to.
pub(crate) type Freed = Vec<(ZoneId, u64)>;

/// The extents of one file, in order, without overlaps. Bytes outside all extents read as zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtentMap(Vec<Extent>);

impl ExtentMap {
    /// The ranges of the file's bytes from `offset` on that extents name.
    pub(crate) fn ranges_from(&self, offset: u64) -> Vec<Range<u64>> {
        let behind = self.0.iter().filter(|extent| extent.end() > offset);
        behind.map(|extent| extent.offset.max(offset)..extent.end()).collect()
    }

    /// The file's extents, in order of their offsets.
    pub(crate) fn as_slice(&self) -> &[Extent] {
        &self.0
    }

    /// The extent that holds `offset`, or else the first one behind `offset`.
    pub(crate) fn at_or_after(&self, offset: u64) -> Option<Extent> {
        self.search(offset).0
    }

    /// How many of the first bytes of `part` the file still has at the same place. Whole blocks, or all bytes up to the end of the extent that holds them:
    /// only these can be moved by [`remap`](ExtentMap::remap).
    pub(crate) fn same_bytes(&self, part: &Extent, block: u64) -> u64 {
        let Some(e) = self.at_or_after(part.offset).filter(|e| e.offset <= part.offset) else { return 0 };
        let start = e.start.plus(Blocks((part.offset - e.offset) / block));
        if (e.zone, start) != (part.zone, part.start) {
            return 0;
        }
        let bytes = e.end().min(part.offset + part.bytes) - part.offset;
        if part.offset + bytes == e.end() { bytes } else { bytes / block * block }
    }

    fn search(&self, offset: u64) -> (Option<Extent>, u32) {
        let mut steps = 0;
        let index = self.0.partition_point(|e| {
            steps += 1;
            e.end() <= offset
        });
        (self.0.get(index).copied(), steps)
    }

    /// Removes the extents from `offset` on. An extent that spans `offset` keeps its blocks before `offset`.
    pub(crate) fn cut(&mut self, offset: u64, block: u64) -> Freed {
        let index = self.0.partition_point(|e| e.end() <= offset);
        let mut freed = Vec::new();
        for e in self.0.drain(index..).as_slice() {
            freed.push(*e);
        }
        let mut out = Freed::new();
        let mut kept = None;
        for e in freed {
            let before = offset.saturating_sub(e.offset);
            let keep = before.div_ceil(block);
            out.push((e.zone, e.bytes.div_ceil(block) - keep));
            if before > 0 {
                kept = Some(Extent { bytes: before, ..e });
            }
        }
        self.0.extend(kept);
        out.retain(|(_, blocks)| *blocks > 0);
        out
    }

    /// Appends an extent, and joins it with the last extent where the two are adjacent in file and zone.
    pub(crate) fn push(&mut self, extent: Extent, block: u64) {
        if let Some(last) = self.0.last_mut()
            && last.zone == extent.zone
            && last.end() == extent.offset
            && last.bytes.is_multiple_of(block)
            && last.start.0 + last.bytes / block == extent.start.0
        {
            last.bytes += extent.bytes;
            return;
        }
        self.0.push(extent);
    }

    /// Replaces the places of the file ranges of `moved` by the places in `moved`. Ignores a range that is
    /// not wholly within one old extent. Returns the freed blocks and, in the same order, the extents of
    /// `moved` that were used.
    pub(crate) fn remap(&mut self, moved: &[Extent], block: u64) -> (Freed, Vec<Extent>) {
        let (mut freed, mut taken) = (Freed::new(), Vec::new());
        for m in moved {
            let index = self.0.partition_point(|e| e.end() <= m.offset);
            let Some(old) = self.0.get(index).copied() else { continue };
            let cut_tail = m.end() != old.end() && !m.bytes.is_multiple_of(block);
            if old.offset > m.offset || old.end() < m.end() || m.bytes == 0 || cut_tail {
                continue;
            }
            let head = Extent { bytes: m.offset - old.offset, ..old };
            let skip = (m.end() - old.offset) / block;
            let tail = Extent {
                offset: m.end(),
                bytes: old.end() - m.end(),
                start: old.start.plus(Blocks(skip)),
                zone: old.zone,
            };
            let parts = [head, *m, tail].into_iter().filter(|e| e.bytes > 0);
            self.0.splice(index..=index, parts);
            freed.push((old.zone, m.bytes.div_ceil(block)));
            taken.push(*m);
        }
        (freed, taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, bytes: u64, start: u64, zone: u32) -> Extent {
        Extent { offset, bytes, start: Blocks(start), zone: ZoneId(zone) }
    }

    #[test]
    fn extents_are_found_in_logarithmic_steps() {
        let mut map = ExtentMap::default();
        for n in 0..100_000 {
            map.push(extent(n * 4096, 4096, n % 7 * 3, 1), 4096);
        }
        assert!(map.as_slice().len() > 90_000);
        for offset in [0, 4095, 4096, 77_777 * 4096 + 9, 99_999 * 4096] {
            let (found, steps) = map.search(offset);
            assert_eq!(found.expect("there").offset, offset / 4096 * 4096);
            assert!(steps <= 18, "{steps} steps");
        }
        assert_eq!(map.at_or_after(100_000 * 4096), None);
    }

    #[test]
    fn adjacent_extents_are_joined() {
        let mut map = ExtentMap::default();
        map.push(extent(0, 8192, 4, 1), 4096);
        map.push(extent(8192, 100, 6, 1), 4096);
        assert_eq!(map.as_slice(), [extent(0, 8292, 4, 1)]);
    }

    #[test]
    fn a_cut_frees_the_whole_blocks_behind_the_offset() {
        let mut map = ExtentMap::default();
        map.push(extent(0, 8292, 4, 1), 4096);
        map.push(extent(12288, 4096, 0, 2), 4096);
        assert_eq!(map.cut(4097, 4096), [(ZoneId(1), 1), (ZoneId(2), 1)]);
        assert_eq!(map.as_slice(), [extent(0, 4097, 4, 1)]);
        assert_eq!(map.cut(0, 4096), [(ZoneId(1), 2)]);
    }

    #[test]
    fn a_remap_of_a_part_of_an_extent_splits_the_extent() {
        let mut map = ExtentMap::default();
        map.push(extent(0, 5 * 4096, 0, 1), 4096);
        let (freed, taken) = map.remap(&[extent(4096, 8192, 9, 3)], 4096);
        assert_eq!((freed, taken.len()), (vec![(ZoneId(1), 2)], 1));
        assert_eq!(
            map.as_slice(),
            [extent(0, 4096, 0, 1), extent(4096, 8192, 9, 3), extent(12288, 8192, 3, 1)]
        );
    }

    #[test]
    fn a_remap_of_a_range_outside_all_extents_is_ignored() {
        let mut map = ExtentMap::default();
        map.push(extent(0, 4096, 0, 1), 4096);
        assert!(map.remap(&[extent(4096, 4096, 9, 3), extent(0, 8192, 9, 3)], 4096).1.is_empty());
    }
}
