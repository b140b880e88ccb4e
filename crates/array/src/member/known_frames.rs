//! The frames of a zone that a log holds, as a mount reads them (ADR 0022).

use zoned::{Blocks, ZoneId};

use crate::format::frames::Frame;
use crate::layout::{Layout, Stripe};
use crate::member::needed_parity::NeededParity;

/// Frames of a zone that are kept before any are dropped.
const KEPT_FRAMES: usize = 4096;

/// The frames of a zone in its newest generation.
#[derive(Clone, Default, Debug)]
pub(crate) struct KnownFrames {
    pub generation: u64,
    /// The frames of writes.
    pub frames: Vec<Frame>,
    /// Marks, each with the metadata zone that holds its record.
    marks: Vec<(ZoneId, Blocks)>,
    /// The end of the highest frame that was dropped. All writes below were acknowledged when the highest write of the zone
    /// was submitted.
    pub dropped: Blocks,
    highest: Blocks,
    /// Number of frames from which on the next are dropped.
    full: usize,
}

impl KnownFrames {
    /// The marks in metadata zone `from`.
    pub(crate) fn marks_in(&self, from: ZoneId) -> impl Iterator<Item = Blocks> {
        self.marks.iter().filter(move |(zone, _)| *zone == from).map(|(_, mark)| *mark)
    }

    /// Adds a frame from metadata zone `from`, unless it is of an older generation. Frames that no mount needs are dropped once there are many; returns the
    /// highest stripe of those.
    pub(crate) fn add(
        &mut self,
        layout: &Layout,
        needed: &NeededParity,
        from: ZoneId,
        frame: Frame,
    ) -> Option<Stripe> {
        if self.generation < frame.generation {
            *self = KnownFrames { generation: frame.generation, ..KnownFrames::default() };
        }
        if self.generation != frame.generation {
            return None;
        }
        if frame.is_mark() {
            self.marks.push((from, frame.end));
            return None;
        }
        self.frames.push(frame);
        self.highest = self.highest.max(frame.end);
        if self.frames.len() < self.full.max(KEPT_FRAMES) || needed.all_frames.contains(&frame.zone) {
            return None;
        }
        let first = needed.first_needed_stripe(layout, frame.zone, layout.stripe_of(self.highest));
        let start = layout.start(first);
        let before = self.frames.len();
        let dropped = self.frames.iter().map(|frame| frame.end).filter(|end| *end <= start).max();
        self.frames.retain(|frame| frame.end > start);
        self.full = self.frames.len() * 2;
        let dropped = dropped.filter(|_| self.frames.len() < before)?;
        self.dropped = self.dropped.max(dropped);
        Some(layout.stripe_of(Blocks(dropped.0.saturating_sub(1))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn frames_far_below_the_highest_are_dropped_and_those_of_an_older_life_do_not_count() {
        let layout = Layout { width: 3, parities: 1, unit: 1, part_rows: 1 << 20 };
        let needed = NeededParity { doubt: 10, lowest: vec![1 << 20], all_frames: BTreeSet::default() };
        let frame = |generation, n: u64| Frame {
            zone: ZoneId(0),
            generation,
            start: Blocks(n),
            end: Blocks(n + 1),
            crc: 0,
        };
        let mut known = KnownFrames::default();
        let mut highest = None;
        for n in 0..10_000 {
            highest = highest.max(known.add(&layout, &needed, ZoneId(1), frame(2, n)));
        }
        assert!(known.frames.len() < KEPT_FRAMES && highest.is_some());
        let lowest = known.frames.iter().map(|frame| frame.start).min().expect("some");
        assert_eq!(
            lowest, known.dropped,
            "none is missing between those that were dropped and those that were kept"
        );
        assert!(known.dropped.0 < 10_000 - 20);
        assert_eq!(known.add(&layout, &needed, ZoneId(1), frame(1, 20_000)), None);
        assert_eq!(known.frames.last(), Some(&frame(2, 9_999)));
        known.add(&layout, &needed, ZoneId(1), frame(3, 5));
        known.add(&layout, &needed, ZoneId(1), Frame::mark(ZoneId(0), 3, Blocks(5)));
        known.add(&layout, &needed, ZoneId(2), Frame::mark(ZoneId(0), 3, Blocks(6)));
        assert_eq!(known.marks_in(ZoneId(2)).collect::<Vec<_>>(), [Blocks(6)]);
        assert_eq!((known.frames.len(), known.dropped), (1, Blocks::ZERO));
    }
}
