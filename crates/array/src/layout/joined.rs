//! Joined zones: how the sections of a joined zone make one run of blocks. Arithmetic without state.
//!
//! A *section* is a zone of the array as all rooms below `joined` know it, with a part, a physical zone long, on each of its drives.
//! `sections` sections of consecutive numbers make a joined zone: one behind the other, or stripe by stripe in turn. Three sections of
//! two stripes each:
//!
//! ```text
//!                   section 0   section 1   section 2             section 0   section 1   section 2
//!   first stripe    blocks 0    blocks 2    blocks 4    in turn:  blocks 0    blocks 1    blocks 2
//!   second stripe   blocks 1    blocks 3    blocks 5              blocks 3    blocks 4    blocks 5
//! ```

use zoned::{Blocks, ZoneId};

use crate::layout::Layout;

/// The arrangement of a joined zone's blocks over its sections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JoinedLayout {
    /// Sections of a joined zone: two or more.
    pub sections: u32,
    /// True if the stripes of all sections take turns; false if one section lies behind the other.
    pub interleaved: bool,
    /// Data blocks of a whole stripe.
    pub stripe: u64,
    /// Data blocks of a section.
    pub section: u64,
}

/// A run of blocks within one section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionPiece {
    pub section: u32,
    /// The first block, from the start of the section.
    pub offset: Blocks,
    pub blocks: u64,
}

impl JoinedLayout {
    /// The joined zones of an array whose zones have this layout; `None` if each zone is for itself.
    pub(crate) fn new(sections: u32, interleaved: bool, layout: &Layout) -> Option<JoinedLayout> {
        let stripe = layout.unit * layout.data_units();
        (sections > 1).then(|| JoinedLayout { sections, interleaved, stripe, section: layout.capacity().0 })
    }

    /// Blocks of a joined zone.
    pub(crate) fn capacity(&self) -> Blocks {
        Blocks(self.section * u64::from(self.sections))
    }

    /// The section, as the rooms below know it, of a joined zone.
    pub(crate) fn zone(&self, joined: ZoneId, section: u32) -> ZoneId {
        ZoneId(joined.0 * self.sections + section)
    }

    /// The joined zone of a section.
    pub(crate) fn joined_zone(&self, section: ZoneId) -> ZoneId {
        ZoneId(section.0 / self.sections)
    }

    /// The number of a section within its joined zone.
    pub(crate) fn section(&self, section: ZoneId) -> u32 {
        section.0 % self.sections
    }

    /// The sections of a joined zone.
    pub(crate) fn zones(&self, joined: ZoneId) -> impl Iterator<Item = ZoneId> + use<> {
        let layout = *self;
        (0..self.sections).map(move |section| layout.zone(joined, section))
    }

    /// Blocks of all whole stripes of a joined zone whose stripes take turns: short last stripes follow.
    fn whole(&self) -> u64 {
        self.section / self.stripe * self.stripe * u64::from(self.sections)
    }

    /// The piece from a block below the capacity to the end of its run in one section.
    pub(crate) fn locate(&self, at: Blocks) -> SectionPiece {
        let piece = |section: u64, offset, blocks| SectionPiece {
            section: u32::try_from(section).expect("below the number of sections"),
            offset: Blocks(offset),
            blocks,
        };
        if !self.interleaved {
            let offset = at.0 % self.section;
            return piece(at.0 / self.section, offset, self.section - offset);
        }
        let sections = u64::from(self.sections);
        let (whole, first_row) = (self.whole(), self.section / self.stripe * self.stripe);
        let (within, run, row) = match at.0.checked_sub(whole) {
            None => (at.0, self.stripe, at.0 / self.stripe / sections * self.stripe),
            Some(rest) => (rest, self.section - first_row, first_row),
        };
        let offset = within % run;
        piece(within / run % sections, row + offset, run - offset)
    }

    /// The pieces of a run of blocks that lies within the capacity, in order.
    pub(crate) fn pieces(&self, at: Blocks, blocks: u64) -> impl Iterator<Item = SectionPiece> + use<> {
        let layout = *self;
        let end = at.0 + blocks;
        let mut next = at.0;
        std::iter::from_fn(move || {
            let left = end.checked_sub(next).filter(|left| *left > 0)?;
            let piece = layout.locate(Blocks(next));
            let piece = SectionPiece { blocks: piece.blocks.min(left), ..piece };
            next += piece.blocks;
            Some(piece)
        })
    }

    /// The place in the joined zone of a block of a section. For the end of the section: the capacity of the joined zone.
    pub(crate) fn address(&self, section: u32, offset: Blocks) -> Blocks {
        if offset.0 >= self.section {
            return self.capacity();
        }
        let (number, sections) = (u64::from(section), u64::from(self.sections));
        if !self.interleaved {
            return Blocks(number * self.section + offset.0);
        }
        let row = offset.0 / self.stripe * self.stripe;
        let run = self.stripe.min(self.section - row);
        Blocks(row * sections + number * run + (offset.0 - row))
    }

    /// The end of the blocks without a gap, where each section holds its first blocks up to one of `ends`.
    pub(crate) fn first_gap(&self, ends: &[Blocks]) -> Blocks {
        let first_missing = (0..self.sections).zip(ends).map(|(section, end)| self.address(section, *end));
        first_missing.min().unwrap_or(Blocks::ZERO)
    }

    /// The blocks of a section that lie below `end` in the joined zone.
    pub(crate) fn share(&self, section: u32, end: Blocks) -> Blocks {
        let number = u64::from(section);
        let below = |start: u64, len: u64| end.0.saturating_sub(start).min(len);
        if !self.interleaved {
            return Blocks(below(number * self.section, self.section));
        }
        let row = match end.0 < self.whole() {
            true => end.0 / self.stripe / u64::from(self.sections) * self.stripe,
            false => self.section / self.stripe * self.stripe,
        };
        let run = self.stripe.min(self.section - row);
        Blocks(row + below(row * u64::from(self.sections) + number * run, run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<JoinedLayout> {
        let of = |sections, section, interleaved| JoinedLayout { sections, interleaved, stripe: 6, section };
        [(2, 18), (3, 18), (3, 21), (8, 30), (2, 5)]
            .into_iter()
            .flat_map(|(sections, section)| [of(sections, section, false), of(sections, section, true)])
            .collect()
    }

    /// Block by block: each block of each section has one place in the joined zone, sections fill in order, and shares and gaps agree
    /// with that.
    #[test]
    fn blocks_of_sections_follow_one_another() {
        for layout in layouts() {
            let mut filled = vec![0; layout.sections as usize];
            for at in 0..layout.capacity().0 {
                let ends: Vec<Blocks> = filled.iter().copied().map(Blocks).collect();
                let shares: Vec<Blocks> = (0..layout.sections).map(|n| layout.share(n, Blocks(at))).collect();
                assert_eq!(shares, ends, "{layout:?} {at}");
                assert_eq!(layout.first_gap(&ends), Blocks(at), "{layout:?}");
                let piece = layout.locate(Blocks(at));
                assert_eq!(piece.offset, ends[piece.section as usize], "{layout:?} {at}");
                assert_eq!(layout.address(piece.section, piece.offset), Blocks(at), "{layout:?}");
                filled[piece.section as usize] += 1;
            }
            assert!(filled.iter().all(|blocks| *blocks == layout.section), "{layout:?}");
        }
    }

    #[test]
    fn sections_that_are_ahead_do_not_hide_a_gap() {
        for layout in layouts() {
            for gap in 0..layout.capacity().0 {
                let piece = layout.locate(Blocks(gap));
                let mut ends = vec![Blocks(layout.section); layout.sections as usize];
                ends[piece.section as usize] = piece.offset;
                assert_eq!(layout.first_gap(&ends), Blocks(gap), "{layout:?}");
            }
        }
    }

    #[test]
    fn pieces_cover_a_run_of_blocks() {
        for layout in layouts() {
            for at in 0..layout.capacity().0 {
                for blocks in [1, 7, layout.capacity().0 - at] {
                    let blocks = blocks.min(layout.capacity().0 - at);
                    let mut next = at;
                    for piece in layout.pieces(Blocks(at), blocks) {
                        assert_eq!(layout.address(piece.section, piece.offset), Blocks(next), "{layout:?}");
                        next += piece.blocks;
                    }
                    assert_eq!(next, at + blocks);
                }
            }
        }
        let turns = JoinedLayout { sections: 2, interleaved: true, stripe: 6, section: 15 };
        let starts: Vec<(u32, u64, u64)> = turns
            .pieces(Blocks(0), turns.capacity().0)
            .map(|piece| (piece.section, piece.offset.0, piece.blocks))
            .collect();
        assert_eq!(starts, [(0, 0, 6), (1, 0, 6), (0, 6, 6), (1, 6, 6), (0, 12, 3), (1, 12, 3)]);
    }
}
