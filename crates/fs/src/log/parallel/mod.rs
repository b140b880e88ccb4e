//! The parallel log's parts that know nothing of files: its entries, its counters, and the rule of its recovery.
//! docs/adr/0012 has the whole; [`crate::ParallelLog`] is what people use.

mod gate;
mod payload;
mod recover;
mod tickets;

/// What the counters stand on: tests put loom's in its place.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

pub(crate) use gate::Gate;
pub(crate) use payload::{Cutting, MAX_RECORD, NUMBER, payload_len, seal, seal_empty};
pub(crate) use recover::{Kept, Verdict, Voids, recover};
pub(crate) use tickets::Tickets;

/// An epoch of a parallel log: what was written between two openings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch {
    pub(crate) epoch: u32,
    /// Its first ticket.
    pub(crate) first: u64,
    /// What was decided of the epoch before it: entries that need more do not count.
    pub(crate) settled: u64,
}
