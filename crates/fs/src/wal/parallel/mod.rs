//! The parallel log, after WALTZ: every writer appends its own record, and the record's ticket is its place in the order of the
//! log. docs/adr/0012 has the design.
//!
//! ```text
//!   ParallelLog --> joiner   whether records join one entry
//!     append        a place in a zone (gate), tickets (order), copy and checksum (payload), zone append: no lock
//!     replacement   which zone an append goes to, and how the next zone takes over; stripe, striping: several zones
//!     durability    one flush for all callers of sync
//!     maintenance   a task: fetches segments ahead of need, fills zones that were left, writes void entries (void)
//!     segments      which tickets each segment holds: retired segments are freed
//!     health        the first error that poisoned the log
//!   open --> recover: finds all entries, decides which count --> replay: reads them in the order of tickets
//! ```

mod append;
mod atomic;
mod close;
mod counters;
mod durability;
mod gate;
mod headers;
mod health;
mod joiner;
pub(crate) mod known;
pub(crate) mod log;
mod maintenance;
pub(crate) mod open;
pub(crate) mod options;
mod order;
mod parts;
pub(crate) mod payload;
pub(crate) mod recover;
mod replacement;
pub(crate) mod replay;
mod segments;
mod stripe;
mod striping;
mod sync;
pub(crate) mod ticket;
mod tickets;
mod void;
mod zone;

pub use log::ParallelLog;
pub use options::{Batching, ParallelOptions};
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
        tickets.complete(11, 2);
        assert_eq!((tickets.low(), tickets.take(1)), (10, None));
        tickets.complete(10, 1);
        assert_eq!((tickets.low(), tickets.next()), (13, 14));
        assert_eq!((tickets.take(3), tickets.take(1)), (Some(14), None));
        for ticket in [16, 15, 14, 13] {
            tickets.complete(ticket, 1);
        }
        assert_eq!((tickets.low(), tickets.next()), (17, 17));
    }
}
