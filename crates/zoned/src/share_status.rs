//! What a drive's scheduler has done.

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

/// Operations of a class.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ClassStatus {
    /// Operations that went to the drive, pieces of one write as one.
    pub operations: u64,
    /// Bytes that they read or wrote.
    pub bytes: u64,
    /// Operations that were held.
    pub held: u64,
    /// The time for which they were held, in all.
    pub held_for: Duration,
}
