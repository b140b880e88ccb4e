//! The steps of a write, in order: data to its parts, and each parity row as soon as its last data block is written.
//! Pure.

use zoned::Blocks;

use crate::layout::{Layout, Piece, Stripe};

/// One step of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Data blocks to write to their part.
    Data(Piece),
    /// Rows to write of each parity, which are final.
    Parity { stripe: Stripe, row: u64, len: u64 },
}

/// The steps of a write of `len` blocks at `offset`, which fit the zone. Their order writes every part sequentially.
pub(crate) fn steps(layout: &Layout, offset: Blocks, len: u64) -> impl Iterator<Item = Step> {
    let layout = *layout;
    layout.pieces(offset, len).flat_map(move |piece| {
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
        fn every_part_is_written_sequentially(
            (width, parities) in (3_u32..8, 1_u32..3).prop_map(|(width, parities)| (width.max(2 + parities), parities)),
            unit in 1_u64..7, part_rows in 1_u64..40,
            cuts in proptest::collection::vec(1_u64..30, 1..20),
        ) {
            let layout = Layout { width, parities, unit, part_rows };
            let mut pointers = vec![0; width as usize];
            let mut at = 0;
            for len in cuts {
                let len = len.min(layout.capacity().0 - at);
                for step in steps(&layout, Blocks(at), len) {
                    let (roles, row, count) = match step {
                        Step::Data(p) => (vec![p.role], layout.row(p.stripe) + p.row, p.len),
                        Step::Parity { stripe, row, len } => {
                            let roles = layout.parities().map(|parity| layout.parity(stripe, parity));
                            (roles.collect(), layout.row(stripe) + row, len)
                        }
                    };
                    for role in roles {
                        prop_assert_eq!(pointers[role.index()], row);
                        pointers[role.index()] += count;
                    }
                }
                at += len;
                for (role, pointer) in layout.roles().zip(&pointers) {
                    prop_assert_eq!(layout.used(role, Blocks(at)), *pointer);
                }
            }
        }
    }
}
