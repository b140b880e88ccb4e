//! Operations of a zone that are not durable yet. The possible outcomes of a power cut follow from them (see `cut`).
//!
//! A sequential zone passes through epochs, one per reset. After a power cut the zone is in one of the epochs, with
//! every block below the epoch's durable pointer. Once any block of an epoch is durable, earlier epochs are no longer
//! possible: old and new content never mix.

use crate::Buf;
use crate::emu::content::Content;

/// Number of an operation, as [`Media::submit`](super::Media::submit) and [`Media::acknowledge`](super::Media::acknowledge) name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OpId(pub u64);

/// A position in the order of acknowledgements and flush submissions.
pub(super) type Sequence = u64;

/// The epochs of a sequential zone that are possible after a power cut.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// The zone's epochs before the last reset, oldest first.
    pub(super) past: Vec<Epoch>,
    /// The zone's current epoch. Its content is the zone's.
    pub(super) now: Epoch,
}

/// An epoch: a zone's life between two resets.
#[derive(Clone, Debug, Default)]
pub(super) struct Epoch {
    /// The reset that began the epoch, unless that reset is durable.
    pub(super) begun_by: Option<Event>,
    /// The epoch's durable pointer.
    pub(super) durable: u64,
    /// The epoch's pointer after all submitted writes.
    pub(super) submitted: u64,
    /// Writes of the epoch that are not durable or whose order is unknown, sorted by address.
    pub(super) writes: Vec<Pending>,
    /// The finish that ended the epoch.
    pub(super) finish: Option<Event>,
    /// True if the finish that ended the epoch is durable.
    pub(super) finish_durable: bool,
    /// The zone's content at the end of a past epoch.
    pub(super) content: Content,
}

/// A reset or a finish of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) id: OpId,
    pub(super) acked: Option<Sequence>,
}

/// A write or an append of an epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) id: OpId,
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) append: bool,
    pub(super) fua: bool,
    /// Number of acknowledgements before the write was submitted.
    pub(super) born: Sequence,
    pub(super) acked: Option<Sequence>,
    /// True if the write lies below the durable pointer: its content survives, but appends may have landed in another
    /// order.
    pub(super) solid: bool,
}

impl Pending {
    pub(super) fn end(&self) -> u64 {
        self.at + self.len
    }
}

impl Epoch {
    /// Makes every block of the epoch below `pointer` durable.
    fn raise_durable_pointer(&mut self, pointer: u64) {
        self.begun_by = None;
        self.durable = self.durable.max(pointer);
        let durable = self.durable;
        self.writes.iter_mut().filter(|w| w.end() <= durable).for_each(|w| w.solid = true);
        self.writes.retain(|w| !(w.solid && w.acked.is_some()));
    }

    /// Applies a flush to the epoch that covers acknowledgements before `before`; true if any block of the
    /// epoch is durable now.
    fn apply_flush(&mut self, before: Sequence) -> bool {
        let covered = |acked: Option<Sequence>| acked.is_some_and(|seq| seq < before);
        let mut any = false;
        if self.begun_by.is_some_and(|e| covered(e.acked)) {
            self.raise_durable_pointer(0);
            any = true;
        }
        if let Some(end) = self.writes.iter().filter(|w| covered(w.acked)).map(Pending::end).max() {
            self.raise_durable_pointer(end);
            any = true;
        }
        if !self.finish_durable && self.finish.is_some_and(|e| covered(e.acked)) {
            self.finish_durable = true;
            self.raise_durable_pointer(self.submitted);
            any = true;
        }
        any
    }

    /// Acknowledges operation `id` if it belongs to the epoch. `lasting`: the acknowledgement makes the
    /// operation durable.
    fn acknowledge(&mut self, id: OpId, seq: Sequence, lasting: bool) -> Option<bool> {
        if let Some(event) = self.begun_by.as_mut().filter(|e| e.id == id) {
            event.acked = Some(seq);
            if lasting {
                self.raise_durable_pointer(0);
            }
            return Some(lasting);
        }
        if let Some(event) = self.finish.as_mut().filter(|e| e.id == id) {
            event.acked = Some(seq);
            if lasting {
                self.finish_durable = true;
                self.raise_durable_pointer(self.submitted);
            }
            return Some(lasting);
        }
        let write = self.writes.iter_mut().find(|w| w.id == id)?;
        write.acked = Some(seq);
        let (end, lasting) = (write.end(), lasting || write.fua);
        if lasting {
            self.raise_durable_pointer(end);
        } else if write.solid {
            self.writes.retain(|w| w.id != id);
        }
        Some(lasting)
    }
}

impl History {
    /// A zone's history whose blocks up to `pointer` are durable.
    pub(super) fn settled(pointer: u64, finished: bool) -> History {
        let now =
            Epoch { durable: pointer, submitted: pointer, finish_durable: finished, ..Epoch::default() };
        History { past: Vec::new(), now }
    }

    /// Records a submitted write of the zone.
    pub(super) fn record_write(&mut self, write: Pending) {
        self.now.submitted = write.end();
        self.now.writes.push(write);
    }

    /// Records a submitted finish of the zone.
    pub(super) fn record_finish(&mut self, id: OpId) {
        self.now.finish = Some(Event { id, acked: None });
    }

    /// Records a submitted reset; `content` is the zone's content before the reset.
    pub(super) fn reset(&mut self, id: OpId, content: Content) {
        let begun_by = Some(Event { id, acked: None });
        let mut before = std::mem::replace(&mut self.now, Epoch { begun_by, ..Epoch::default() });
        before.content = content;
        self.past.push(before);
    }

    /// Acknowledges operation `id`. `lasting`: the acknowledgement makes the operation durable, because the
    /// drive has no volatile cache.
    pub(super) fn acknowledge(&mut self, id: OpId, seq: Sequence, lasting: bool) {
        match self.now.acknowledge(id, seq, lasting) {
            Some(true) => self.past.clear(),
            Some(false) => {}
            None => {
                let found = self.past.iter_mut().enumerate();
                let durable = found
                    .filter_map(|(i, epoch)| epoch.acknowledge(id, seq, lasting).map(|durable| (i, durable)))
                    .next();
                if let Some((index, true)) = durable {
                    self.past.drain(..index);
                }
            }
        }
    }

    /// Applies a flush to the zone's history that covers acknowledgements before `before`.
    pub(super) fn apply_flush(&mut self, before: Sequence) {
        if self.now.apply_flush(before) {
            self.past.clear();
            return;
        }
        let newest =
            (0..self.past.len()).rev().find(|i| self.past.get_mut(*i).is_some_and(|e| e.apply_flush(before)));
        if let Some(index) = newest {
            self.past.drain(..index);
        }
    }

    /// True if a power cut has only one possible outcome.
    pub(super) fn is_settled(&self) -> bool {
        self.past.is_empty()
            && self.now.writes.is_empty()
            && self.now.begun_by.is_none()
            && (self.now.finish.is_none() || self.now.finish_durable)
    }
}

/// Writes to a conventional zone that are not durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Rewrites {
    /// The conventional zone's content without its writes that are not durable.
    pub(super) base: Content,
    /// Writes that are not durable, in order of submission.
    pub(super) pieces: Vec<Rewrite>,
}

/// A write to a conventional zone.
#[derive(Clone, Debug)]
pub(super) struct Rewrite {
    pub(super) id: OpId,
    pub(super) at: u64,
    pub(super) data: Buf,
    pub(super) fua: bool,
    pub(super) acked: Option<Sequence>,
    pub(super) durable: bool,
}

impl Rewrites {
    pub(super) fn acknowledge(&mut self, id: OpId, seq: Sequence, lasting: bool) {
        if let Some(piece) = self.pieces.iter_mut().find(|p| p.id == id) {
            piece.acked = Some(seq);
            piece.durable |= lasting || piece.fua;
        }
    }

    pub(super) fn apply_flush(&mut self, before: Sequence) {
        self.pieces.iter_mut().for_each(|p| p.durable |= p.acked.is_some_and(|seq| seq < before));
    }

    /// Removes the durable writes at the front of the list, which the caller writes into `base`.
    pub(super) fn settle(&mut self) -> Vec<Rewrite> {
        let count = self.pieces.iter().take_while(|p| p.durable).count();
        self.pieces.drain(..count).collect()
    }
}
