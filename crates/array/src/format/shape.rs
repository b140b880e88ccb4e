//! What the records of an array may say: a checksum proves that somebody wrote a record, not that it makes sense.
//! What is sound here lies within the array, and is as long as it says. Everything else is passed over like garbage.

use std::ops::Range;

use zoned::{Blocks, ZoneId};

use crate::format::record::{Body, Place};
use crate::format::superblock::Superblock;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::{Layout, Slot};
use crate::member::METADATA_ZONES;

/// The highest epoch and sequence that a log may have at a mount: no array counts that far, and there is room above.
pub(crate) const HIGHEST: u64 = u64::MAX >> 1;

/// What every drive of an array says alike, from its creation on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub layout: Layout,
    /// Logical zones.
    pub zones: u32,
    block_size: u32,
    zone_size: Blocks,
    metadata_zones: u32,
}

impl Shape {
    pub(crate) fn of(superblock: &Superblock) -> Shape {
        let layout = Layout {
            drives: u32::try_from(superblock.members.len()).expect("no more than MAX_MEMBERS"),
            unit: u64::from(superblock.unit),
            zone_capacity: superblock.zone_capacity.0,
        };
        let &Superblock { zones, block_size, zone_size, metadata_zones, .. } = superblock;
        Shape { layout, zones, block_size, zone_size, metadata_zones }
    }

    /// Whether a record that lies in metadata zone `from` may say this.
    pub(crate) fn allows(&self, from: ZoneId, place: &Place, body: &Body) -> bool {
        match body {
            Body::Superblock(_) | Body::CheckpointEnd => true,
            Body::Zones { first, entries } | Body::Rebuilt { first, entries } => {
                let last = self.layout.capacity();
                let ends = |entry: &ZoneEntry| entry.is_lost() || entry.end.is_none_or(|end| end <= last);
                u64::from(first.0) + entries.len() as u64 <= u64::from(self.zones) && entries.iter().all(ends)
            }
            Body::ResetIntent { zone, .. } => self.has(*zone),
            Body::PartialParity { zone, start, end, rows, .. } => {
                let (layout, stripe) = (&self.layout, self.layout.stripe_of(*start));
                self.has(*zone)
                    && self.in_stripe(*start, *end)
                    && place.member == layout.parity(*zone, stripe)
                    && self.is_long(
                        rows,
                        layout.rows(stripe, *start, *end).iter().map(|r| r.end - r.start).sum(),
                    )
            }
            Body::Relocated { zone, start, end, unit, .. } => {
                let (layout, stripe) = (&self.layout, self.layout.stripe_of(*start));
                self.has(*zone)
                    && self.in_stripe(*start, *end)
                    && *start == layout.start(stripe)
                    && place.member == layout.parity(*zone, stripe)
                    && self.is_long(unit, layout.unit_of(stripe))
            }
            Body::RelocatedData { zone, start, end, data, .. } => {
                self.has(*zone)
                    && self.in_stripe(*start, *end)
                    && self.in_unit(*zone, place.member, *start, *end)
                    && self.is_long(data, end.minus(*start).0)
            }
            Body::Hidden { zone, ranges, .. } | Body::Lost { zone, ranges, .. } => {
                self.has(*zone) && self.in_zone(ranges)
            }
            Body::Swap { zone, rows, swap, .. } => {
                self.has(*zone)
                    && *rows <= self.layout.zone_capacity
                    && swap.0 < METADATA_ZONES
                    // A copy holds no records.
                    && *swap != from
            }
        }
    }

    fn has(&self, zone: ZoneId) -> bool {
        zone.0 < self.zones
    }

    fn in_stripe(&self, start: Blocks, end: Blocks) -> bool {
        start < end && start < self.layout.capacity() && end <= self.layout.end(self.layout.stripe_of(start))
    }

    fn in_unit(&self, zone: ZoneId, slot: Slot, start: Blocks, end: Blocks) -> bool {
        let piece = self.layout.locate(zone, start);
        piece.slot == slot && end.minus(start).0 <= piece.len
    }

    fn in_zone(&self, ranges: &[Range<u64>]) -> bool {
        ranges.last().is_none_or(|last| last.end <= self.layout.zone_capacity)
    }

    fn is_long(&self, data: &[u8], blocks: u64) -> bool {
        data.len() as u64 == blocks * u64::from(self.block_size)
    }
}
