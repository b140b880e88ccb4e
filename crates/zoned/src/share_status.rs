//! Counts of a drive's scheduler: operations, bytes and waiting times by class of operation.

use std::time::Duration;

use crate::IoClass;

/// Counts of a drive's scheduler.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ShareStatus {
    /// By class, in the order of [`IoClass::ALL`].
    pub classes: [ClassStatus; IoClass::ALL.len()],
    /// Operations that wait now.
    pub held: usize,
}

impl ShareStatus {
    /// The counts of two drives together.
    #[must_use]
    pub fn plus(mut self, other: ShareStatus) -> ShareStatus {
        for (class, more) in self.classes.iter_mut().zip(other.classes) {
            class.operations += more.operations;
            class.bytes += more.bytes;
            class.held += more.held;
            class.held_for += more.held_for;
        }
        self.held += other.held;
        self
    }
}

/// Operations of a class.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ClassStatus {
    /// Operations that went to the drive, pieces of one write as one.
    pub operations: u64,
    /// Bytes that the class's operations read or wrote.
    pub bytes: u64,
    /// Operations that were held.
    pub held: u64,
    /// The time for which operations of the class were held, in all.
    pub held_for: Duration,
}
