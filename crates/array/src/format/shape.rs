//! Plausibility of records. A valid checksum proves that a record was written, not that its content is possible. A
//! plausible record lies within the array and has the right length. A mount ignores all other records.

use zoned::{Blocks, ZoneId};

use crate::format::record::{Body, RecordId};
use crate::format::superblock::Superblock;
use crate::format::zone_entries::ZoneEntry;
use crate::layout::placement::{Placement, is_metadata_zone};
use crate::layout::{Layout, Slot, Stripe};

/// The shape of an array: fixed at its creation, and the same in all superblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub layout: Layout,
    pub placement: Placement,
    /// Logical zones.
    pub zones: u32,
    block_size: u32,
    zone_size: Blocks,
    metadata_zones: u32,
}

impl Shape {
    pub(crate) fn of(superblock: &Superblock) -> Shape {
        let drives = u32::try_from(superblock.members.len()).expect("no more than MAX_MEMBERS");
        let (unit, part_rows) = (u64::from(superblock.unit), superblock.zone_capacity.0);
        let (layout, placement) = (Layout { width: drives, unit, part_rows }, Placement { drives });
        let &Superblock { zones, block_size, zone_size, metadata_zones, .. } = superblock;
        Shape { layout, placement, zones, block_size, zone_size, metadata_zones }
    }

    /// True if a record in metadata zone `from` can have the content `body`.
    pub(crate) fn allows(&self, from: ZoneId, place: &RecordId, body: &Body) -> bool {
        match body {
            Body::Superblock(_) | Body::CheckpointEnd => true,
            Body::Zones { first, entries } | Body::RebuiltZones { first, entries } => {
                let last = self.layout.capacity();
                let ends =
                    |entry: &ZoneEntry| entry.is_failed_zone() || entry.end.is_none_or(|end| end <= last);
                u64::from(first.0) + entries.len() as u64 <= u64::from(self.zones) && entries.iter().all(ends)
            }
            Body::ResetIntent { zone, .. } => self.has(*zone),
            Body::PartialParity { zone, start, end, rows, .. } => {
                let (layout, stripe) = (&self.layout, self.layout.stripe_of(*start));
                self.has(*zone)
                    && self.is_in_one_stripe(*start, *end)
                    && place.member == self.parity_slot(*zone, stripe)
                    && self.has_blocks(
                        rows,
                        layout.rows(stripe, *start, *end).iter().map(|r| r.end - r.start).sum(),
                    )
            }
            Body::RelocatedParity { zone, start, end, unit, .. } => {
                let (layout, stripe) = (&self.layout, self.layout.stripe_of(*start));
                self.has(*zone)
                    && self.is_in_one_stripe(*start, *end)
                    && *start == layout.start(stripe)
                    && place.member == self.parity_slot(*zone, stripe)
                    && self.has_blocks(unit, layout.unit_of(stripe))
            }
            Body::RelocatedData { zone, start, end, data, .. } => {
                self.has(*zone)
                    && self.is_in_one_stripe(*start, *end)
                    && self.is_in_one_unit_of(*zone, place.member, *start, *end)
                    && self.has_blocks(data, end.minus(*start).0)
            }
            Body::StaleRows { zone, rows, .. } | Body::BadRows { zone, rows, .. } => {
                self.has(*zone) && rows.end() <= self.layout.part_rows
            }
            Body::ZoneCopy { zone, rows, copy, .. } => {
                self.has(*zone)
                    && *rows <= self.layout.part_rows
                    && is_metadata_zone(*copy)
                    // A metadata zone that holds a zone copy holds no records.
                    && *copy != from
            }
        }
    }

    fn has(&self, zone: ZoneId) -> bool {
        zone.0 < self.zones
    }

    /// The drive with the parity of a stripe.
    fn parity_slot(&self, zone: ZoneId, stripe: Stripe) -> Slot {
        self.placement.slot(zone, self.layout.parity(stripe))
    }

    fn is_in_one_stripe(&self, start: Blocks, end: Blocks) -> bool {
        start < end && start < self.layout.capacity() && end <= self.layout.end(self.layout.stripe_of(start))
    }

    fn is_in_one_unit_of(&self, zone: ZoneId, slot: Slot, start: Blocks, end: Blocks) -> bool {
        let piece = self.layout.locate(start);
        self.placement.slot(zone, piece.role) == slot && end.minus(start).0 <= piece.len
    }

    fn has_blocks(&self, data: &[u8], blocks: u64) -> bool {
        data.len() as u64 == blocks * u64::from(self.block_size)
    }
}
