//! Plausibility of records. A valid checksum proves that a record was written, not that its content is possible. A
//! plausible record lies within the array and has the right length. A mount ignores all other records.

use std::collections::BTreeSet;

use zoned::{Blocks, ZoneId};

use crate::format::frames::Frame;
use crate::format::record::{Body, RecordId};
use crate::format::superblock::{Placement, Superblock};
use crate::format::zone_entries::ZoneEntry;
use crate::layout::placement::{METADATA_ZONES, Place, Rotation, is_metadata_zone};
use crate::layout::stored_maps::ZoneMap;
use crate::layout::{Layout, Parity, Role, Slot, Stripe};

/// The shape of an array: fixed at its creation, and the same in all superblocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub layout: Layout,
    pub placement: Placement,
    pub drives: u32,
    /// Logical zones.
    pub zones: u32,
    /// Physical zones of each drive for parts of logical zones.
    pub part_zones: u32,
    /// Rows of a physical zone that parts take.
    pub zone_rows: u64,
    /// Logical zones whose parts share a physical zone.
    pub shares: u32,
    /// Sections of a joined zone, and whether their stripes take turns.
    sections: (u32, bool),
    block_size: u32,
    zone_size: Blocks,
    metadata_zones: u32,
}

impl Shape {
    pub(crate) fn of(superblock: &Superblock) -> Shape {
        let drives = u32::try_from(superblock.members.len()).expect("no more than MAX_MEMBERS");
        let (unit, part_rows) = (u64::from(superblock.unit), superblock.part_rows().0);
        let parities = superblock.parities;
        let layout = Layout { width: superblock.width, parities, unit, part_rows };
        let &Superblock {
            placement,
            zones,
            part_zones,
            shares,
            sections,
            interleaved,
            block_size,
            zone_size,
            metadata_zones,
            ..
        } = superblock;
        let zone_rows = superblock.zone_capacity.0;
        Shape {
            layout,
            placement,
            drives,
            zones,
            part_zones,
            zone_rows,
            shares,
            sections: (sections, interleaved),
            block_size,
            zone_size,
            metadata_zones,
        }
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
            Body::PartialParity { parity, zone, start, end, rows, .. } => {
                let (layout, stripe) = (&self.layout, self.layout.stripe_of(*start));
                self.has(*zone)
                    && self.is_in_one_stripe(*start, *end)
                    && self.is_parity_slot(place.member, *zone, stripe, *parity)
                    && self.has_blocks(
                        rows,
                        layout.rows(stripe, *start, *end).iter().map(|r| r.end - r.start).sum(),
                    )
            }
            Body::RelocatedParity { parity, zone, start, end, unit, .. } => {
                let (layout, stripe) = (&self.layout, self.layout.stripe_of(*start));
                self.has(*zone)
                    && self.is_in_one_stripe(*start, *end)
                    && *start == layout.start(stripe)
                    && self.is_parity_slot(place.member, *zone, stripe, *parity)
                    && self.has_blocks(unit, layout.unit_of(stripe))
            }
            Body::RelocatedData { zone, start, end, data, .. } => {
                self.has(*zone)
                    && self.is_in_one_stripe(*start, *end)
                    && self.is_in_one_unit_of(*zone, place.member, *start, *end)
                    && self.has_blocks(data, end.minus(*start).0)
            }
            Body::Frames { frames, parity } => {
                let last = self.layout.capacity();
                let is_there =
                    |frame: &Frame| self.has(frame.zone) && frame.start <= frame.end && frame.end <= last;
                frames.iter().all(is_there)
                    && parity.as_ref().is_none_or(|parity| self.allows(from, place, parity))
            }
            Body::Reorder { above, parity } => {
                let Body::PartialParity { start, end, .. } = **parity else { return false };
                self.allows(from, place, parity)
                    && self.is_in_one_stripe(start, end)
                    && *above >= self.layout.start(self.layout.stripe_of(start))
                    && *above < end
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
            Body::ZoneMaps(maps) => {
                self.placement == Placement::Stored && maps.iter().all(|map| self.allows_map(map))
            }
        }
    }

    fn has(&self, zone: ZoneId) -> bool {
        zone.0 < self.zones
    }

    /// True if the drive in `slot` has this parity of a stripe.
    fn is_parity_slot(&self, slot: Slot, zone: ZoneId, stripe: Stripe, parity: Parity) -> bool {
        self.layout.parities().any(|known| known == parity)
            && self.may_hold(zone, self.layout.parity(stripe, parity), slot)
    }

    /// True if a map names drives, physical zones and rows of the array, and no drive twice.
    fn allows_map(&self, map: &ZoneMap) -> bool {
        let last = METADATA_ZONES + self.part_zones;
        let last_row = if self.shares > 1 { self.zone_rows.saturating_sub(self.layout.part_rows) } else { 0 };
        let is_of_array = |place: &Place| {
            place.slot.0 < self.drives
                && (METADATA_ZONES..last).contains(&place.zone.0)
                && place.row <= last_row
        };
        let slots: BTreeSet<Slot> = map.places.iter().map(|place| place.slot).collect();
        self.has(map.zone)
            && map.places.len() == self.layout.width as usize
            && slots.len() == map.places.len()
            && map.places.iter().all(is_of_array)
    }

    /// True if the drive in `slot` can hold the part `role` of a zone. Which drive does, with stored maps, the mount learns from
    /// the maps.
    fn may_hold(&self, zone: ZoneId, role: Role, slot: Slot) -> bool {
        match self.placement {
            Placement::Fixed => (Rotation { drives: self.drives }).slot(zone, role) == slot,
            Placement::Stored => true,
        }
    }

    fn is_in_one_stripe(&self, start: Blocks, end: Blocks) -> bool {
        start < end && start < self.layout.capacity() && end <= self.layout.end(self.layout.stripe_of(start))
    }

    fn is_in_one_unit_of(&self, zone: ZoneId, slot: Slot, start: Blocks, end: Blocks) -> bool {
        let piece = self.layout.locate(start);
        self.may_hold(zone, piece.role, slot) && end.minus(start).0 <= piece.len
    }

    fn has_blocks(&self, data: &[u8], blocks: u64) -> bool {
        data.len() as u64 == blocks * u64::from(self.block_size)
    }
}
