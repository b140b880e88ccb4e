//! Which tickets are in tables.

use std::collections::{BTreeMap, VecDeque};

use super::log::Ticket;
use super::tables::Sequence;

/// Flushes that are asked for, for each time that the limit is applied.
const FLUSH_STEPS: u64 = 4;

/// What a ticket's batch became.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Its last sequence; none while it is being written, or if the ticket was never used.
    last: Option<Sequence>,
    bytes: u64,
}

const EMPTY: Slot = Slot { last: None, bytes: 0 };

/// A write on its way: its ticket will not be below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered(u64);

/// Follows tickets from before they are given until their batches are in tables.
///
/// All families are flushed together, so everything up to the largest sequence of a finished flush is in tables.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// All below is retired.
    base: u64,
    /// From `base` on.
    slots: VecDeque<Slot>,
    /// The bounds of writes on their way, with how many have each.
    entered: BTreeMap<u64, u32>,
    /// The largest sequence that was applied, and that is in tables.
    written: Sequence,
    flushed: Sequence,
    bytes: u64,
    records: u64,
    /// Bytes of batches that were applied so far, and when a flush was asked for last.
    applied: u64,
    asked_at: Option<u64>,
    /// The flush that was asked for is not over.
    flushing: bool,
    /// Somebody is to be alone: those who take no stripes wait.
    shut: usize,
}

impl Ledger {
    /// A ledger for tickets from `next` on.
    pub fn new(next: Ticket) -> Ledger {
        Ledger {
            base: next.0,
            slots: VecDeque::new(),
            entered: BTreeMap::new(),
            written: Sequence(0),
            flushed: Sequence(0),
            bytes: 0,
            records: 0,
            applied: 0,
            asked_at: None,
            flushing: false,
            shut: 0,
        }
    }

    /// From now on whoever takes no stripes stays outside.
    pub fn shut(&mut self) {
        self.shut += 1;
    }

    /// Ends a [`shut`](Ledger::shut).
    pub fn reopen(&mut self) {
        self.shut -= 1;
    }

    /// Whether somebody is alone, or waits for it.
    pub fn is_shut(&self) -> bool {
        self.shut > 0
    }

    /// Whether no write is on its way.
    pub fn is_idle(&self) -> bool {
        self.entered.is_empty()
    }

    /// Whether a flush is to be asked for, to keep what is not retired to `limit` bytes; notes that it is. While one is on its
    /// way there is no other; nor before a part of the limit was applied since: a flush retires nothing behind a write that is
    /// on its way, and one that failed may fail again.
    pub fn wants_flush(&mut self, limit: u64) -> bool {
        let since = self.asked_at.map_or(u64::MAX, |at| self.applied - at);
        self.bytes > limit && since >= limit / FLUSH_STEPS && self.begin_flush()
    }

    /// Notes that a flush is asked for; false while one is on its way.
    pub fn begin_flush(&mut self) -> bool {
        if self.flushing {
            return false;
        }
        (self.flushing, self.asked_at) = (true, Some(self.applied));
        true
    }

    /// The flush that was asked for is over, well or not.
    pub fn flush_is_over(&mut self) {
        self.flushing = false;
    }

    /// A write begins; `next` is the log's next ticket now, or was before.
    pub fn enter(&mut self, next: Ticket) -> Entered {
        *self.entered.entry(next.0).or_insert(0) += 1;
        Entered(next.0)
    }

    /// A write ended without a batch that counts.
    pub fn leave(&mut self, entered: Entered) {
        if let Some(count) = self.entered.get_mut(&entered.0) {
            *count -= 1;
            if *count == 0 {
                self.entered.remove(&entered.0);
            }
        }
    }

    /// A batch of `bytes` was applied up to the sequence `last`. Its write leaves next.
    pub fn applied(&mut self, ticket: Ticket, last: Sequence, bytes: u64) {
        self.written = self.written.max(last);
        // Tickets below the base were given before the bound was taken: there are none.
        let Some(at) = ticket.0.checked_sub(self.base).and_then(|at| usize::try_from(at).ok()) else {
            return;
        };
        if at >= self.slots.len() {
            self.slots.resize(at + 1, EMPTY);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Slot { last: Some(last), bytes };
            self.bytes += bytes;
            self.applied += bytes;
            self.records += 1;
        }
    }

    /// A flush has finished, with tables up to `largest`.
    pub fn flushed(&mut self, largest: Sequence) {
        self.flushed = self.flushed.max(largest);
    }

    /// Everything applied so far is in tables. For one who flushed while nobody wrote.
    pub fn all_flushed(&mut self) {
        self.flushed = self.flushed.max(self.written);
    }

    /// The ticket below which all is in tables; `next` is the log's next ticket now.
    pub fn retired(&mut self, next: Ticket) -> Ticket {
        let limit = self.entered.first_key_value().map_or(next.0, |(&bound, _)| bound);
        while self.base < limit {
            match self.slots.front() {
                Some(slot) if slot.last.is_some_and(|last| last > self.flushed) => break,
                Some(slot) => {
                    self.bytes -= slot.bytes;
                    self.records -= u64::from(slot.last.is_some());
                    self.slots.pop_front();
                    self.base += 1;
                }
                // Nothing of what follows was used.
                None => self.base = limit,
            }
        }
        Ticket(self.base)
    }

    /// Batches that are not retired.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of batches that are not retired.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(ledger: &mut Ledger, ticket: u64, last: u64) {
        let entered = ledger.enter(Ticket(ticket));
        ledger.applied(Ticket(ticket), Sequence(last), 10);
        ledger.leave(entered);
    }

    #[test]
    fn a_ticket_retires_when_its_sequence_is_in_tables() {
        let mut ledger = Ledger::new(Ticket(5));
        for n in 0..4 {
            write(&mut ledger, 5 + n, 100 + n);
        }
        assert_eq!(ledger.retired(Ticket(9)), Ticket(5));
        ledger.flushed(Sequence(101));
        assert_eq!(ledger.retired(Ticket(9)), Ticket(7));
        assert_eq!(ledger.bytes(), 20);
        ledger.flushed(Sequence(103));
        assert_eq!(ledger.retired(Ticket(9)), Ticket(9));
    }

    #[test]
    fn a_write_on_its_way_holds_back_what_came_after_it() {
        let mut ledger = Ledger::new(Ticket(0));
        let slow = ledger.enter(Ticket(0));
        write(&mut ledger, 1, 50);
        ledger.flushed(Sequence(50));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(0));
        ledger.applied(Ticket(0), Sequence(51), 10);
        ledger.leave(slow);
        assert_eq!(ledger.retired(Ticket(2)), Ticket(0), "51 is not flushed");
        ledger.flushed(Sequence(51));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(2));
    }

    #[test]
    fn tickets_that_were_never_used_are_passed_over() {
        let mut ledger = Ledger::new(Ticket(0));
        let failed = ledger.enter(Ticket(0));
        ledger.leave(failed);
        write(&mut ledger, 7, 1);
        ledger.flushed(Sequence(1));
        assert_eq!(ledger.retired(Ticket(20)), Ticket(20));
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn a_flush_that_ends_before_its_write_is_noted_counts() {
        let mut ledger = Ledger::new(Ticket(0));
        let entered = ledger.enter(Ticket(0));
        ledger.flushed(Sequence(9));
        ledger.applied(Ticket(0), Sequence(9), 10);
        ledger.leave(entered);
        assert_eq!(ledger.retired(Ticket(1)), Ticket(1));
    }
}
