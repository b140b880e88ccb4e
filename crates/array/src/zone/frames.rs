//! The frames of a zone's writes (ADR 0022): which are to be logged, which are in flight, up to where they have landed.
//!
//! ```text
//!   0 ......... acknowledged ......... landed ......... logged ......... pointer
//!                              frames are on their drives       |
//!                                                               frames that no record contains yet
//! ```
//!
//! Frames are logged in the order of their writes, several to a record (a *batch*). Frames that come while a batch is in flight go
//! out with the next record of partial parity, or when no batch is in flight any more. A write is acknowledged once its batch and
//! all batches below have landed.

use std::collections::VecDeque;

use zoned::Blocks;

use crate::format::frames::Frame;

/// A submitted batch of frames.
#[derive(Debug)]
struct Batch {
    number: u64,
    /// The end of the batch's last write.
    end: Blocks,
    /// Records of the batch, or groups of records that are waited for together, that have not landed.
    copies: u32,
}

/// The frames of a zone's writes.
#[derive(Debug)]
pub(crate) struct Frames {
    /// Frames that no record contains yet.
    pending: VecDeque<Frame>,
    batches: VecDeque<Batch>,
    next_batch: u64,
    /// The frames of all writes below have landed.
    pub landed: Blocks,
    /// All writes below are acknowledged; a write begins here.
    pub acknowledged: Blocks,
    /// True while the frames wait for room in a log.
    pub waiting: bool,
}

impl Frames {
    /// No frames: a mount found the zone's last whole write end at `pointer`.
    pub(crate) fn at(pointer: Blocks) -> Frames {
        Frames {
            pending: VecDeque::new(),
            batches: VecDeque::new(),
            next_batch: 0,
            landed: pointer,
            acknowledged: pointer,
            waiting: false,
        }
    }

    /// The frames of the zone's next life. Batches in flight of this life do not count there.
    pub(crate) fn of_next_life(&self) -> Frames {
        Frames { next_batch: self.next_batch, ..Frames::at(Blocks::ZERO) }
    }

    /// Adds the frame of a write.
    pub(crate) fn push(&mut self, frame: Frame) {
        self.pending.push_back(frame);
    }

    /// Bytes of the frames beside the structure's own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Frame>() + self.batches.capacity() * size_of::<Batch>()
    }

    /// True if frames are pending, and no log that they wait for is without room.
    pub(crate) fn may_be_logged(&self) -> bool {
        !self.pending.is_empty() && !self.waiting
    }

    /// True if the pending frames are to go out in a record of their own.
    pub(crate) fn is_due(&self) -> bool {
        self.may_be_logged() && self.batches.is_empty()
    }

    /// Removes and returns the first pending frames, `most` at most.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Frame> {
        let count = self.pending.len().min(most);
        self.pending.drain(..count).collect()
    }

    /// Puts frames back that were taken and not logged.
    pub(crate) fn put_back(&mut self, taken: Vec<Frame>) {
        taken.into_iter().rev().for_each(|frame| self.pending.push_front(frame));
    }

    /// Adds a submitted batch whose last write ends at `end`, in `copies` records; returns the batch's number.
    pub(crate) fn begin_batch(&mut self, end: Blocks, copies: u32) -> u64 {
        let number = self.next_batch;
        self.next_batch += 1;
        self.batches.push_back(Batch { number, end, copies });
        number
    }

    /// Notes that a record of a batch has landed, or is not needed any more.
    pub(crate) fn copy_landed(&mut self, number: u64) {
        if let Some(batch) = self.batches.iter_mut().find(|batch| batch.number == number) {
            batch.copies = batch.copies.saturating_sub(1);
        }
        while let Some(batch) = self.batches.front().filter(|batch| batch.copies == 0) {
            self.landed = batch.end;
            self.batches.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use zoned::ZoneId;

    use super::*;

    fn frame(start: u64, end: u64) -> Frame {
        Frame { zone: ZoneId(0), generation: 1, start: Blocks(start), end: Blocks(end), crc: 0 }
    }

    #[test]
    fn writes_are_framed_in_order_once_all_copies_have_landed() {
        let mut frames = Frames::at(Blocks(5));
        let first = frames.begin_batch(Blocks(7), 2);
        let second = frames.begin_batch(Blocks(9), 1);
        frames.copy_landed(second);
        frames.copy_landed(first);
        assert_eq!(frames.landed, Blocks(5), "one copy of the first batch is missing");
        frames.copy_landed(first);
        assert_eq!(frames.landed, Blocks(9));
        let mut next = frames.of_next_life();
        let batch = next.begin_batch(Blocks(2), 1);
        next.copy_landed(first);
        assert_eq!(next.landed, Blocks::ZERO, "a batch of the life before does not count");
        next.copy_landed(batch);
        assert_eq!(next.landed, Blocks(2));
    }

    #[test]
    fn frames_go_out_when_no_batch_is_in_flight_and_no_log_is_full() {
        let mut frames = Frames::at(Blocks(0));
        assert!(!frames.is_due());
        frames.push(frame(0, 1));
        frames.push(frame(1, 2));
        assert!(frames.is_due());
        let taken = frames.take(9);
        frames.put_back(taken);
        assert_eq!(frames.take(1), [frame(0, 1)]);
        let batch = frames.begin_batch(Blocks(1), 1);
        assert!(!frames.is_due() && frames.may_be_logged());
        frames.copy_landed(batch);
        assert!(frames.is_due());
        frames.waiting = true;
        assert!(!frames.is_due() && !frames.may_be_logged());
    }
}
