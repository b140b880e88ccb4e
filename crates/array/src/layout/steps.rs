//! The steps of a write, in order: data to its drives, and each parity row as soon as its last data block is written.
//! Pure.

use zoned::{Blocks, ZoneId};

use crate::layout::{Layout, Piece, Stripe};

/// One step of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Data blocks to write to their drive.
    Data(Piece),
    /// Parity rows to write, which are final.
    Parity { stripe: Stripe, row: u64, len: u64 },
}

/// The steps of a write of `len` blocks at `offset`, which fit the zone. Their order writes every drive sequentially.
pub(crate) fn steps(layout: &Layout, zone: ZoneId, offset: Blocks, len: u64) -> impl Iterator<Item = Step> {
    let layout = *layout;
    layout.pieces(zone, offset, len).flat_map(move |piece| {
        let Piece { stripe, index, row, len, .. } = piece;
        let last = index + 1 == layout.data_units();
        [Some(Step::Data(piece)), last.then_some(Step::Parity { stripe, row, len })].into_iter().flatten()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_drive_is_written_sequentially(
            drives in 3_u32..8, unit in 1_u64..7, zone_capacity in 1_u64..40,
            cuts in proptest::collection::vec(1_u64..30, 1..20),
        ) {
            let layout = Layout { drives, unit, zone_capacity };
            let zone = ZoneId(drives);
            let mut pointers = vec![0; drives as usize];
            let mut at = 0;
            for len in cuts {
                let len = len.min(layout.capacity().0 - at);
                for step in steps(&layout, zone, Blocks(at), len) {
                    let (slot, row, count) = match step {
                        Step::Data(p) => (p.slot, layout.row(p.stripe) + p.row, p.len),
                        Step::Parity { stripe, row, len } => {
                            (layout.parity(zone, stripe), layout.row(stripe) + row, len)
                        }
                    };
                    prop_assert_eq!(pointers[slot.index()], row);
                    pointers[slot.index()] += count;
                }
                at += len;
                for (slot, pointer) in (0..).map(crate::layout::Slot).zip(&pointers) {
                    prop_assert_eq!(layout.used(zone, slot, Blocks(at)), *pointer);
                }
            }
        }
    }
}
