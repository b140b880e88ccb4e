//! The parallel log: every writer appends its own record, with a ticket that says its place. docs/adr/0012 has the
//! design.
//!
//! ```text
//!   append --> a place in the zone's gate --> a ticket --> copy, checksum --> zone append --> acknowledged
//!     (the calling thread, no lock)                                                |
//!   sync                                                             one flush for all who wait for it
//!   keeper (a task)   takes the next zone ahead of need, fills the one that was left, writes voids, gives segments up
//!   recovery          all entries are found, the rule decides, what counts is read in ticket order
//! ```

pub(crate) mod close;
pub(crate) mod exchange;
pub(crate) mod flush;
pub(crate) mod gate;
pub(crate) mod inner;
pub(crate) mod join;
pub(crate) mod keeper;
pub(crate) mod known;
pub(crate) mod log;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod payload;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod spread;
pub(crate) mod submit;
pub(crate) mod ticket;
pub(crate) mod tickets;
pub(crate) mod widen;
pub(crate) mod zone;

/// What the exchange of zones stands on: tests put loom's in its place.
mod sync {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

    pub(super) use arc_swap::ArcSwap;
}

/// What the counters stand on: tests put loom's in its place.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
}

pub use inner::ParallelStats;
pub use log::ParallelLog;
pub use options::ParallelOptions;
pub use replay::Replay;
pub use ticket::Ticket;

#[cfg(test)]
mod tests {
    use super::tickets::Tickets;

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
