//! A set of slots.

use crate::layout::{MAX_MEMBERS, Slot};

/// A set of slots: one bit for each of at most 64 members.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Slots(u64);

const _: () = assert!(MAX_MEMBERS <= u64::BITS);

impl Slots {
    /// Every slot.
    pub(crate) const ALL: Slots = Slots(u64::MAX);

    pub(crate) fn add(&mut self, slot: Slot) {
        self.0 |= 1 << slot.0;
    }

    pub(crate) fn add_all(&mut self, slots: Slots) {
        self.0 |= slots.0;
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, slot: Slot) -> bool {
        self.0 & (1 << slot.0) != 0
    }
}
