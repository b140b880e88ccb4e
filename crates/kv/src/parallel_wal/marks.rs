//! The marks that keep a replay from applying a batch twice: docs/adr/0013.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::tables::Mark;
use fs::Ticket;

/// The floor is written again when it can rise by this many tickets.
const FLOOR_STEP: u64 = 1024;

/// Whether batches carry marks, and the floor below which none is kept.
#[derive(Debug)]
pub(super) struct Marks {
    /// Every batch carries a mark. Changed while no batch is in flight.
    on: AtomicBool,
    /// The floor in the tables, without the one that a batch in flight carries.
    floor: AtomicU64,
    /// A batch in flight carries a new floor. One at a time: RocksDB may apply two in the other order.
    raising: AtomicBool,
}

impl Marks {
    /// The marks as the opening left them.
    pub fn new(on: bool, floor: Ticket) -> Marks {
        Marks { on: AtomicBool::new(on), floor: AtomicU64::new(floor.0), raising: AtomicBool::new(false) }
    }

    /// Whether every batch carries a mark.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// From now on every batch carries a mark; `floor` is in the tables.
    pub fn turn_on(&self, floor: Ticket) {
        self.floor.store(floor.0, Ordering::Release);
        self.on.store(true, Ordering::Release);
    }

    /// A new floor for the next batch to carry, if one is due. `retired`: every ticket below is in tables.
    pub fn raise(&self, retired: Ticket) -> Option<Raise<'_>> {
        let due = || retired.0 >= self.floor.load(Ordering::Acquire) + FLOOR_STEP;
        if !due() || self.raising.swap(true, Ordering::AcqRel) {
            return None;
        }
        let raise = Raise { marks: self, to: retired };
        // Another batch may have raised the floor in between.
        due().then_some(raise)
    }
}

/// A new floor that a batch in flight carries. Until it is dropped no other batch carries one.
pub(super) struct Raise<'a> {
    marks: &'a Marks,
    to: Ticket,
}

impl Raise<'_> {
    /// Notes that the batch was applied.
    pub fn applied(self) {
        self.marks.floor.store(self.to.0, Ordering::Release);
    }
}

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.marks.raising.store(false, Ordering::Release);
    }
}

/// The mark of a batch, and the new floor that goes with it.
#[derive(Default)]
pub(super) struct BatchMark<'a> {
    pub mark: Option<Mark>,
    pub raise: Option<Raise<'a>>,
}
