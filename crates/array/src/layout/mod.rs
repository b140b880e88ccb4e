//! Which part and row of a zone holds a logical block: arithmetic without state, the same for every zone. `placement` says which
//! drive holds a part.
//!
//! A logical zone consists of parts of equal size, numbered by their *role*. Its blocks are striped over the parts in units. Each
//! stripe has one unit of parity, P, or two, P and Q in the next role. The roles of parity move down by the number of parities from
//! stripe to stripe, so that consecutive data units rotate over all parts. Four parts with one parity and with two:
//!
//! ```text
//!            role 0    role 1    role 2    role 3        role 0    role 1    role 2    role 3
//!   stripe 0    0         1         2         P             Q         0         1         P
//!   stripe 1    4         5         P         3             3         P         Q         2
//!   stripe 2    8         P         6         7             Q         4         5         P
//! ```
//!
//! If the rows of a part are no multiple of the unit, the units of the last stripe are shorter.

pub(crate) mod gf256;
pub(crate) mod joined;
pub(crate) mod placement;
pub(crate) mod places;
pub(crate) mod row_set;
pub(crate) mod running_parity;
pub(crate) mod slots;
pub(crate) mod steps;
pub(crate) mod stored_maps;
pub(crate) mod xor;

use std::ops::Range;

use zoned::Blocks;

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

/// The number of a part within its logical zone. The layout speaks of roles; the placement gives each role its drive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Role(pub u32);

impl Role {
    /// The role as an index of a table with an entry for each part.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A parity of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Parity {
    /// The XOR of the stripe's data.
    P,
    /// The second parity, over GF(2^8): see `layout::gf256`.
    Q,
}

impl Parity {
    /// The parity as an index of a table with an entry for each parity.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// The arrangement of data and parity over the parts of a logical zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The number of a zone's parts.
    pub width: u32,
    /// Units of parity in a stripe: 1 or 2. As many parts may be missing without loss of data.
    pub parities: u32,
    /// Blocks in a stripe unit.
    pub unit: u64,
    /// Writable rows of a part; a row is a block.
    pub part_rows: u64,
}

/// A run of blocks within one stripe unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The part with the piece.
    pub role: Role,
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
    /// The roles of a zone's parts.
    pub fn roles(&self) -> impl DoubleEndedIterator<Item = Role> + use<> {
        (0..self.width).map(Role)
    }

    /// Units of data in a stripe.
    pub fn data_units(&self) -> u64 {
        u64::from(self.width) - u64::from(self.parities)
    }

    /// The parities of a stripe.
    pub fn parities(&self) -> impl DoubleEndedIterator<Item = Parity> + use<> {
        [Parity::P, Parity::Q].into_iter().take(self.parities as usize)
    }

    /// Writable blocks of a logical zone.
    pub fn capacity(&self) -> Blocks {
        Blocks(self.part_rows * self.data_units())
    }

    /// The number of stripes of a logical zone, a short last one included.
    pub fn stripes(&self) -> u64 {
        self.part_rows.div_ceil(self.unit)
    }

    /// Blocks in each unit of `stripe`.
    pub fn unit_of(&self, stripe: Stripe) -> u64 {
        self.unit.min(self.part_rows.saturating_sub(stripe.0 * self.unit))
    }

    /// The first block of `stripe`, from the start of its logical zone.
    pub fn start(&self, stripe: Stripe) -> Blocks {
        Blocks((stripe.0 * self.unit).min(self.part_rows) * self.data_units())
    }

    /// One past the last block of `stripe`.
    pub fn end(&self, stripe: Stripe) -> Blocks {
        self.start(Stripe(stripe.0 + 1))
    }

    /// The first row of `stripe` within each part.
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

    /// The part with a parity of `stripe`.
    pub fn parity(&self, stripe: Stripe, parity: Parity) -> Role {
        let width = u64::from(self.width);
        let turn = stripe.0 % width * u64::from(self.parities) % width;
        let first = width - 1 - turn;
        self.role_at(first + parity.index() as u64)
    }

    /// The parity of `stripe` in the part `role`; `None` if the part holds data.
    pub fn parity_on(&self, stripe: Stripe, role: Role) -> Option<Parity> {
        self.parities().find(|parity| self.parity(stripe, *parity) == role)
    }

    /// The part with unit `index` of the data of `stripe`.
    pub fn data(&self, stripe: Stripe, index: u64) -> Role {
        self.role_at(u64::from(self.parity(stripe, Parity::P).0) + u64::from(self.parities) + index)
    }

    /// The data unit of `stripe` in the part `role`; `None` if the part holds parity.
    pub fn index_on(&self, stripe: Stripe, role: Role) -> Option<u64> {
        let width = u64::from(self.width);
        let distance = (u64::from(role.0) + width - u64::from(self.parity(stripe, Parity::P).0)) % width;
        distance.checked_sub(u64::from(self.parities))
    }

    /// The part with this number, counted on from the first part behind the last one.
    fn role_at(&self, place: u64) -> Role {
        Role(u32::try_from(place % u64::from(self.width)).expect("below the number of parts"))
    }

    /// The piece from a block to the end of its unit.
    pub fn locate(&self, offset: Blocks) -> Piece {
        let stripe = self.stripe_of(offset);
        let within = offset.minus(self.start(stripe)).0;
        let unit = self.unit_of(stripe).max(1);
        let (index, row) = (within / unit, within % unit);
        Piece { role: self.data(stripe, index), stripe, index, row, offset, len: unit - row }
    }

    /// The pieces of a run of blocks, in order. The run lies within the capacity.
    pub fn pieces(&self, offset: Blocks, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let (layout, mut at, mut left) = (*self, offset, len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let mut piece = layout.locate(at);
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
    /// which the last data unit has its block. If that block is acknowledged, its row of parity is in place.
    pub fn final_parity(&self, stripe: Stripe, pointer: Blocks) -> u64 {
        self.filled(stripe, self.data_units() - 1, pointer)
    }

    /// Rows of the part `role` that are written when the logical pointer is at `pointer`.
    pub fn used(&self, role: Role, pointer: Blocks) -> u64 {
        let stripe = self.stripe_of(pointer);
        let whole = self.row(stripe).min(self.part_rows);
        match self.index_on(stripe, role) {
            _ if stripe.0 >= self.stripes() => whole,
            Some(index) => whole + self.filled(stripe, index, pointer),
            None => whole + self.final_parity(stripe, pointer),
        }
    }

    /// Rows of the part `role` of a zone that takes no more writes, where its content ends at `end`: those that are
    /// [`used`](Layout::used), and a parity of a last stripe that is not whole, computed with zeros above `end`.
    pub fn used_by_full_zone(&self, role: Role, end: Blocks) -> u64 {
        let last = self.stripe_of(end);
        match end > self.start(last) && self.parity_on(last, role).is_some() {
            true => self.row(last) + self.filled(last, 0, end),
            false => self.used(role, end),
        }
    }

    /// The first data block that the part `role` lacks whose own write pointer is at `row`; the capacity if none.
    pub fn first_missing(&self, role: Role, row: u64) -> Blocks {
        let mut row = row;
        while row < self.part_rows {
            let stripe = Stripe(row / self.unit);
            if let Some(index) = self.index_on(stripe, role) {
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

    fn layouts() -> impl Strategy<Value = Layout> {
        let parts = (3_u32..9, 1_u32..3).prop_map(|(width, parities)| (width.max(2 + parities), parities));
        (parts, 1_u64..9, 1_u64..60).prop_map(|((width, parities), unit, part_rows)| Layout {
            width,
            parities,
            unit,
            part_rows,
        })
    }

    proptest! {
        #[test]
        fn each_block_has_a_place_of_its_own(layout in layouts()) {
            let mut places = BTreeSet::new();
            for offset in 0..layout.capacity().0 {
                let piece = layout.locate(Blocks(offset));
                let row = layout.row(piece.stripe) + piece.row;
                prop_assert!(row < layout.part_rows && piece.role.0 < layout.width && piece.len > 0);
                prop_assert_eq!(layout.parity_on(piece.stripe, piece.role), None);
                prop_assert!(places.insert((piece.role, row)));
                prop_assert_eq!(layout.index_on(piece.stripe, piece.role), Some(piece.index));
            }
            for stripe in 0..layout.stripes() {
                for parity in layout.parities() {
                    let role = layout.parity(Stripe(stripe), parity);
                    prop_assert_eq!(layout.parity_on(Stripe(stripe), role), Some(parity));
                    prop_assert_eq!(layout.index_on(Stripe(stripe), role), None);
                    for row in 0..layout.unit_of(Stripe(stripe)) {
                        prop_assert!(places.insert((role, layout.row(Stripe(stripe)) + row)));
                    }
                }
            }
            // Data and parity together fill every part.
            prop_assert_eq!(places.len() as u64, layout.part_rows * u64::from(layout.width));
        }

        #[test]
        fn used_rows_and_the_first_missing_block_agree(layout in layouts(), at in 0.0..1.0_f64) {
            let pointer = Blocks((layout.capacity().0 as f64 * at) as u64);
            for role in (0..layout.width).map(Role) {
                let held = (0..pointer.0).map(Blocks).filter(|o| layout.locate(*o).role == role).count() as u64;
                let parity = (0..layout.stripes()).map(Stripe)
                    .filter(|s| layout.parity_on(*s, role).is_some())
                    .map(|s| layout.final_parity(s, pointer)).sum::<u64>();
                let used = layout.used(role, pointer);
                prop_assert_eq!(used, held + parity);
                prop_assert!(layout.first_missing(role, used) >= pointer);
                let of_full = layout.used_by_full_zone(role, pointer);
                let last = (0..pointer.0).map(|o| layout.locate(Blocks(o)))
                    .filter(|p| p.role == role || layout.parity_on(p.stripe, role).is_some())
                    .map(|p| layout.row(p.stripe) + p.row + 1).max().unwrap_or(0);
                prop_assert_eq!(of_full, last);
                if used > 0 {
                    let piece = (0..layout.capacity().0).map(Blocks).find(|o| {
                        let p = layout.locate(*o);
                        p.role == role && layout.row(p.stripe) + p.row >= used - 1
                    });
                    let first = layout.first_missing(role, used - 1);
                    prop_assert_eq!(first, piece.unwrap_or(layout.capacity()));
                }
            }
        }

        #[test]
        fn pieces_tile_a_run(layout in layouts(), a in 0.0..1.0_f64, b in 0.0..1.0_f64) {
            let most = layout.capacity().0 as f64;
            let (a, b) = ((a * most) as u64, (b * most) as u64);
            let (from, to) = (a.min(b), a.max(b));
            let mut at = from;
            for piece in layout.pieces(Blocks(from), to - from) {
                prop_assert_eq!(piece.offset, Blocks(at));
                prop_assert!(piece.len > 0 && piece.row + piece.len <= layout.unit_of(piece.stripe));
                at += piece.len;
            }
            prop_assert_eq!(at, to);
        }

        #[test]
        fn the_rows_of_a_write_are_those_of_its_blocks(layout in layouts(), a in 0.0..1.0_f64, b in 0.0..1.0_f64) {
            let stripe = Stripe(((layout.stripes() - 1) as f64 * a) as u64);
            let (start, end) = (layout.start(stripe).0, layout.end(stripe).0);
            let from = start + ((end - start) as f64 * b) as u64;
            for to in from..=end {
                let rows: BTreeSet<u64> = layout.rows(stripe, Blocks(from), Blocks(to)).into_iter().flatten().collect();
                let wanted: BTreeSet<u64> = (from..to).map(|o| layout.locate(Blocks(o)).row).collect();
                prop_assert_eq!(rows, wanted);
            }
        }
    }

    #[test]
    fn consecutive_units_rotate_over_all_parts() {
        for (width, parities, first) in [(5, 1, 0), (5, 2, 1), (6, 2, 1)] {
            let layout = Layout { width, parities, unit: 4, part_rows: 100 };
            let roles: Vec<u32> = (0..20).map(|unit| layout.locate(Blocks(unit * 4)).role.0).collect();
            assert_eq!(roles, (first..20 + first).map(|n| n % width).collect::<Vec<_>>(), "{parities}");
        }
    }
}
