//! Which drive and row holds a logical block: arithmetic without state. `physical_zones` numbers the zones of a drive.
//!
//! A logical zone has one physical zone on each drive. Its blocks are striped in units. Each stripe has one parity
//! unit, whose drive moves down by one from stripe to stripe, so that consecutive data units rotate over all drives.
//! Four drives, zone 0 (`P` is parity):
//!
//! ```text
//!            drive 0   drive 1   drive 2   drive 3
//!   stripe 0    0         1         2         P
//!   stripe 1    4         5         P         3
//!   stripe 2    8         P         6         7
//! ```
//!
//! The rotation of the next zone begins one drive further down, so that all drives share the load of first units. If
//! the zone capacity is no multiple of the unit, the units of the last stripe are shorter.

pub(crate) mod physical_zones;
pub(crate) mod row_set;
pub(crate) mod slots;
pub(crate) mod steps;
pub(crate) mod xor;

use std::ops::Range;

use zoned::{Blocks, ZoneId};

/// The largest number of drives of an array: the superblock with its header fits a block of 4 KiB.
pub(crate) const MAX_MEMBERS: u32 = 64;

/// The number of a stripe within its logical zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stripe(pub u64);

/// A drive's place in the array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an index of a table with an entry for each drive.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The placement of an array's data and parity on its drives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The number of the array's drives.
    pub drives: u32,
    /// Blocks in a stripe unit.
    pub unit: u64,
    /// Writable blocks of a physical zone: the smallest drive's.
    pub zone_capacity: u64,
}

/// A run of blocks within one stripe unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The slot of the drive with the piece.
    pub slot: Slot,
    /// The stripe.
    pub stripe: Stripe,
    /// The number of the piece's data unit within the stripe.
    pub index: u64,
    /// The piece's first block within the unit.
    pub row: u64,
    /// The piece's first block within the logical zone.
    pub offset: Blocks,
    /// The piece's length in blocks.
    pub len: u64,
}

impl Layout {
    /// Units of data in a stripe.
    pub fn data_units(&self) -> u64 {
        u64::from(self.drives) - 1
    }

    /// Writable blocks of a logical zone.
    pub fn capacity(&self) -> Blocks {
        Blocks(self.zone_capacity * self.data_units())
    }

    /// The number of stripes of a logical zone, a short last one included.
    pub fn stripes(&self) -> u64 {
        self.zone_capacity.div_ceil(self.unit)
    }

    /// Blocks in each unit of `stripe`.
    pub fn unit_of(&self, stripe: Stripe) -> u64 {
        self.unit.min(self.zone_capacity.saturating_sub(stripe.0 * self.unit))
    }

    /// The first block of `stripe`, from the start of its logical zone.
    pub fn start(&self, stripe: Stripe) -> Blocks {
        Blocks((stripe.0 * self.unit).min(self.zone_capacity) * self.data_units())
    }

    /// One past the last block of `stripe`.
    pub fn end(&self, stripe: Stripe) -> Blocks {
        self.start(Stripe(stripe.0 + 1))
    }

    /// The first block of `stripe` within each of its physical zones.
    pub fn row(&self, stripe: Stripe) -> u64 {
        stripe.0 * self.unit
    }

    /// The stripe of a block. One past the capacity gives one past the last stripe.
    pub fn stripe_of(&self, offset: Blocks) -> Stripe {
        if offset >= self.capacity() {
            return Stripe(self.stripes());
        }
        Stripe(offset.0 / (self.unit * self.data_units()))
    }

    /// The drive with the parity of `stripe`.
    pub fn parity(&self, zone: ZoneId, stripe: Stripe) -> Slot {
        let turn = (stripe.0 + u64::from(zone.0)) % u64::from(self.drives);
        Slot(self.drives - 1 - u32::try_from(turn).expect("below the number of drives"))
    }

    /// The drive with unit `index` of the data of `stripe`.
    pub fn data(&self, zone: ZoneId, stripe: Stripe, index: u64) -> Slot {
        let place = u64::from(self.parity(zone, stripe).0) + 1 + index;
        Slot(u32::try_from(place % u64::from(self.drives)).expect("below the number of drives"))
    }

    /// The data unit of `stripe` on `slot`; `None` if the slot holds the parity.
    pub fn index_on(&self, zone: ZoneId, stripe: Stripe, slot: Slot) -> Option<u64> {
        let drives = u64::from(self.drives);
        let distance = (u64::from(slot.0) + drives - u64::from(self.parity(zone, stripe).0)) % drives;
        distance.checked_sub(1)
    }

    /// The piece from a block to the end of its unit.
    pub fn locate(&self, zone: ZoneId, offset: Blocks) -> Piece {
        let stripe = self.stripe_of(offset);
        let within = offset.minus(self.start(stripe)).0;
        let unit = self.unit_of(stripe).max(1);
        let (index, row) = (within / unit, within % unit);
        Piece { slot: self.data(zone, stripe, index), stripe, index, row, offset, len: unit - row }
    }

    /// The pieces of a run of blocks, in order. The run lies within the capacity.
    pub fn pieces(&self, zone: ZoneId, offset: Blocks, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let (layout, mut at, mut left) = (*self, offset, len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let mut piece = layout.locate(zone, at);
            piece.len = piece.len.min(left);
            at = at.plus(Blocks(piece.len));
            left -= piece.len;
            Some(piece)
        })
    }

    /// The first block of unit `index` of the data of `stripe`, from the start of the logical zone.
    pub fn unit_start(&self, stripe: Stripe, index: u64) -> Blocks {
        self.start(stripe).plus(Blocks(index * self.unit_of(stripe)))
    }

    /// Blocks of unit `index` of `stripe` that lie below `pointer`.
    pub fn filled(&self, stripe: Stripe, index: u64, pointer: Blocks) -> u64 {
        pointer.minus(self.unit_start(stripe, index)).0.min(self.unit_of(stripe))
    }

    /// Rows of parity that change when the blocks `start..end` of one stripe are written: one range, or two.
    pub fn rows(&self, stripe: Stripe, start: Blocks, end: Blocks) -> Vec<Range<u64>> {
        let unit = self.unit_of(stripe);
        let (from, to) = (start.minus(self.start(stripe)).0, end.minus(self.start(stripe)).0);
        if from >= to || unit == 0 {
            return Vec::new();
        }
        if to - from >= unit {
            return vec![Range { start: 0, end: unit }];
        }
        let (low, high) = (from % unit, (to - 1) % unit + 1);
        if low < high { vec![Range { start: low, end: high }] } else { vec![0..high, low..unit] }
    }

    /// Rows of the parity of `stripe` that are final when the logical pointer is at `pointer`: the rows for
    /// which the last data unit has its block. Final rows are in place.
    pub fn final_parity(&self, stripe: Stripe, pointer: Blocks) -> u64 {
        self.filled(stripe, self.data_units() - 1, pointer)
    }

    /// Blocks of the zone's part on `slot` that are written when the logical pointer is at `pointer`.
    pub fn used(&self, zone: ZoneId, slot: Slot, pointer: Blocks) -> u64 {
        let stripe = self.stripe_of(pointer);
        let whole = self.row(stripe).min(self.zone_capacity);
        match self.index_on(zone, stripe, slot) {
            _ if stripe.0 >= self.stripes() => whole,
            Some(index) => whole + self.filled(stripe, index, pointer),
            None => whole + self.final_parity(stripe, pointer),
        }
    }

    /// The first data block that a drive lacks whose own pointer in the zone is at `row`; the capacity if
    /// none.
    pub fn first_missing(&self, zone: ZoneId, slot: Slot, row: u64) -> Blocks {
        let mut row = row;
        while row < self.zone_capacity {
            let stripe = Stripe(row / self.unit);
            if let Some(index) = self.index_on(zone, stripe, slot) {
                return self.unit_start(stripe, index).plus(Blocks(row - self.row(stripe)));
            }
            row = self.row(Stripe(stripe.0 + 1));
        }
        self.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = (Layout, ZoneId)> {
        (3_u32..9, 1_u64..9, 1_u64..60, 0_u32..20).prop_map(|(drives, unit, zone_capacity, zone)| {
            (Layout { drives, unit, zone_capacity }, ZoneId(zone))
        })
    }

    proptest! {
        #[test]
        fn each_block_has_a_place_of_its_own((layout, zone) in layouts()) {
            let mut places = BTreeSet::new();
            for offset in 0..layout.capacity().0 {
                let piece = layout.locate(zone, Blocks(offset));
                let row = layout.row(piece.stripe) + piece.row;
                prop_assert!(row < layout.zone_capacity && piece.slot.0 < layout.drives && piece.len > 0);
                prop_assert_ne!(piece.slot, layout.parity(zone, piece.stripe));
                prop_assert!(places.insert((piece.slot, row)));
                prop_assert_eq!(layout.index_on(zone, piece.stripe, piece.slot), Some(piece.index));
            }
            for stripe in 0..layout.stripes() {
                for row in 0..layout.unit_of(Stripe(stripe)) {
                    let at = (layout.parity(zone, Stripe(stripe)), layout.row(Stripe(stripe)) + row);
                    prop_assert!(places.insert(at));
                }
            }
            // Data and parity together fill every physical zone.
            prop_assert_eq!(places.len() as u64, layout.zone_capacity * u64::from(layout.drives));
        }

        #[test]
        fn used_rows_and_the_first_missing_block_agree((layout, zone) in layouts(), at in 0.0..1.0_f64) {
            let pointer = Blocks((layout.capacity().0 as f64 * at) as u64);
            for slot in (0..layout.drives).map(Slot) {
                let held = (0..pointer.0).map(Blocks).filter(|o| layout.locate(zone, *o).slot == slot).count() as u64;
                let parity = (0..layout.stripes()).map(Stripe)
                    .filter(|s| layout.parity(zone, *s) == slot)
                    .map(|s| layout.final_parity(s, pointer)).sum::<u64>();
                let used = layout.used(zone, slot, pointer);
                prop_assert_eq!(used, held + parity);
                prop_assert!(layout.first_missing(zone, slot, used) >= pointer);
                if used > 0 {
                    let piece = (0..layout.capacity().0).map(Blocks).find(|o| {
                        let p = layout.locate(zone, *o);
                        p.slot == slot && layout.row(p.stripe) + p.row >= used - 1
                    });
                    let first = layout.first_missing(zone, slot, used - 1);
                    prop_assert_eq!(first, piece.unwrap_or(layout.capacity()));
                }
            }
        }

        #[test]
        fn pieces_tile_a_run((layout, zone) in layouts(), a in 0.0..1.0_f64, b in 0.0..1.0_f64) {
            let most = layout.capacity().0 as f64;
            let (a, b) = ((a * most) as u64, (b * most) as u64);
            let (from, to) = (a.min(b), a.max(b));
            let mut at = from;
            for piece in layout.pieces(zone, Blocks(from), to - from) {
                prop_assert_eq!(piece.offset, Blocks(at));
                prop_assert!(piece.len > 0 && piece.row + piece.len <= layout.unit_of(piece.stripe));
                at += piece.len;
            }
            prop_assert_eq!(at, to);
        }

        #[test]
        fn the_rows_of_a_write_are_those_of_its_blocks((layout, zone) in layouts(), a in 0.0..1.0_f64, b in 0.0..1.0_f64) {
            let stripe = Stripe(((layout.stripes() - 1) as f64 * a) as u64);
            let (start, end) = (layout.start(stripe).0, layout.end(stripe).0);
            let from = start + ((end - start) as f64 * b) as u64;
            for to in from..=end {
                let rows: BTreeSet<u64> = layout.rows(stripe, Blocks(from), Blocks(to)).into_iter().flatten().collect();
                let wanted: BTreeSet<u64> = (from..to).map(|o| layout.locate(zone, Blocks(o)).row).collect();
                prop_assert_eq!(rows, wanted);
            }
        }
    }

    #[test]
    fn consecutive_units_rotate_over_all_drives() {
        let layout = Layout { drives: 5, unit: 4, zone_capacity: 100 };
        let slots: Vec<u32> = (0..20).map(|unit| layout.locate(ZoneId(0), Blocks(unit * 4)).slot.0).collect();
        assert_eq!(slots, (0..20).map(|n| n % 5).collect::<Vec<_>>());
    }
}
