//! The marks that keep a replay from applying a batch twice: docs/adr/0013.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::tables::Mark;
use fs::Ticket;

/// Tickets by which the marks' floor must be able to rise before it is written again.
const FLOOR_STEP: u64 = 1024;

/// Whether batches carry marks, and the floor: the ticket below which marks are removed.
#[derive(Debug)]
pub(super) struct Marks {
    /// Whether every batch carries a mark. Changed only while no batch is in flight.
    on: AtomicBool,
    /// The floor in the tables, without a new one that a batch in flight carries.
    floor: AtomicU64,
    /// Whether a batch in flight carries a new floor. Only one does at a time, since RocksDB may apply two batches in
    /// the other order.
    raising: AtomicBool,
}

impl Marks {
    /// The state of the marks after an opening.
    pub fn new(on: bool, floor: Ticket) -> Marks {
        Marks { on: AtomicBool::new(on), floor: AtomicU64::new(floor.0), raising: AtomicBool::new(false) }
    }

    /// Whether every batch carries a mark.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Makes every batch from now on carry a mark. The tables have `floor`.
    pub fn turn_on(&self, floor: Ticket) {
        self.floor.store(floor.0, Ordering::Release);
        self.on.store(true, Ordering::Release);
    }

    /// A new floor for the marks, which the next batch must carry, if the floor can rise far enough. Every ticket below
    /// `retired` is in tables.
    pub fn raise_floor(&self, retired: Ticket) -> Option<FloorRaise<'_>> {
        let due = || retired.0 >= self.floor.load(Ordering::Acquire) + FLOOR_STEP;
        if !due() || self.raising.swap(true, Ordering::AcqRel) {
            return None;
        }
        let raise = FloorRaise { marks: self, to: retired };
        // Check again: another batch may have raised the floor since the first check.
        due().then_some(raise)
    }
}

/// A new floor of the marks that a batch in flight carries. No other batch carries one until this is dropped.
pub(super) struct FloorRaise<'a> {
    marks: &'a Marks,
    to: Ticket,
}

impl FloorRaise<'_> {
    /// Notes that the batch with the new floor was applied.
    pub fn applied(self) {
        self.marks.floor.store(self.to.0, Ordering::Release);
    }
}

impl Drop for FloorRaise<'_> {
    fn drop(&mut self) {
        self.marks.raising.store(false, Ordering::Release);
    }
}

/// The mark of a batch, and the new floor that the batch carries.
#[derive(Default)]
pub(super) struct BatchMark<'a> {
    pub mark: Option<Mark>,
    pub raise: Option<FloorRaise<'a>>,
}
