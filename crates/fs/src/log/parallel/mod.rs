//! The parallel log's parts that know nothing of files: its entries, its counters, and the rule of its recovery.
//! docs/adr/0012 has the whole; [`crate::ParallelLog`] is what people use.

mod gate;
mod known;
mod payload;
mod recover;
mod tickets;

/// What the counters stand on: tests put loom's in its place.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

pub(crate) use gate::{Entered, Gate};
pub(crate) use known::{KNOWN_LENGTH, Known, MAX_KNOWN, known_length};
pub(crate) use payload::{Cutting, Joined, MAX_RECORD, NUMBER, Parts, payload_len, seal, seal_empty};
pub(crate) use recover::{Kept, Verdict, Voids, recover};
pub(crate) use tickets::Tickets;

/// An epoch of a parallel log: what was written between two openings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Epoch {
    pub(crate) epoch: u32,
    /// Its first ticket.
    pub(crate) first: u64,
    /// What was decided of the epoch before it: entries with this ticket or a higher one do not count.
    pub(crate) settled: u64,
}

#[cfg(test)]
mod tests {
    use super::Tickets;

    #[test]
    fn the_lowest_open_ticket_moves_over_all_that_are_done() {
        let tickets = Tickets::new(10, 4);
        assert_eq!((tickets.take(1), tickets.take(2), tickets.take(1)), (Some(10), Some(11), Some(13)));
        assert_eq!(tickets.take(1), None, "four are open");
        tickets.done(11, 2);
        assert_eq!((tickets.low(), tickets.take(1)), (10, None));
        tickets.done(10, 1);
        assert_eq!((tickets.low(), tickets.next()), (13, 14));
        assert_eq!((tickets.take(3), tickets.take(1)), (Some(14), None));
        for ticket in [16, 15, 14, 13] {
            tickets.done(ticket, 1);
        }
        assert_eq!((tickets.low(), tickets.next()), (17, 17));
    }
}
