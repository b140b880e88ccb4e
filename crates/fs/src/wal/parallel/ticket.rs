//! Tickets and epochs: the order of a parallel log's records.

/// The place of a record in a parallel log's order. Tickets count up; some are never used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// An epoch of a parallel log: the entries that were written between two openings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch {
    pub(crate) epoch: u32,
    /// The first ticket of the epoch.
    pub(crate) first: u64,
    /// The decision about the epoch before this one: entries of that epoch with this ticket or a higher one
    /// do not count.
    pub(crate) settled: u64,
}
