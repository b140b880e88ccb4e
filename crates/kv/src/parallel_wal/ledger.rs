//! The ledger: tickets whose batches are not in tables yet.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::batch::Family;
use super::tables::Sequence;
use fs::Ticket;

/// The next flush is requested once batches of 1 / `FLUSH_STEPS` of the log's limit were applied since the last
/// request.
const FLUSH_STEPS: u64 = 4;

/// The families of a batch's records, each with the batch's last sequence in that family. The batch is in tables when
/// each family is flushed up to its sequence.
pub(crate) type Needs = Box<[(Family, Sequence)]>;

/// The ledger's entry of a ticket.
#[derive(Debug, Default)]
struct TicketEntry {
    /// The flushes that the ticket's batch needs; `None` while the batch is being written, or if the ticket was never
    /// used.
    needs: Option<Needs>,
    bytes: u64,
}

/// A write in flight: a lower bound of the write's ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteBound(u64);

/// Tracks tickets from before the log assigns them until their batches are in tables.
///
/// Each flush reports its own family. A batch is in tables when every family that it touched is flushed up to the batch; the
/// families may be flushed together or one by one.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The lowest ticket that is not retired.
    base: u64,
    /// The entries of the tickets from `base` on.
    slots: VecDeque<TicketEntry>,
    /// The tickets' lower bounds of the writes in flight, each with its number of writes.
    entered: BTreeMap<u64, u32>,
    /// The largest sequence that is in tables: of all families, and of each family.
    flushed: Sequence,
    by_family: HashMap<Family, Sequence>,
    bytes: u64,
    records: u64,
    /// Bytes of the batches applied so far, and the same number when the last flush was requested.
    applied: u64,
    asked_at: Option<u64>,
    /// Whether a requested flush has not ended.
    flushing: bool,
    /// Number of exclusive sections that run or wait. Writes without key stripes do not begin meanwhile.
    shut: usize,
}

impl Ledger {
    /// A ledger whose first ticket is `next`.
    pub fn new(next: Ticket) -> Ledger {
        Ledger {
            base: next.0,
            slots: VecDeque::new(),
            entered: BTreeMap::new(),
            flushed: Sequence(0),
            by_family: HashMap::new(),
            bytes: 0,
            records: 0,
            applied: 0,
            asked_at: None,
            flushing: false,
            shut: 0,
        }
    }

    /// Keeps out the writes without key stripes, for an exclusive section.
    pub fn keep_writes_out(&mut self) {
        self.shut += 1;
    }

    /// Ends a [`keep_writes_out`](Ledger::keep_writes_out).
    pub fn let_writes_in(&mut self) {
        self.shut -= 1;
    }

    /// Whether an exclusive section runs or waits.
    pub fn keeps_writes_out(&self) -> bool {
        self.shut > 0
    }

    /// Whether no write is in flight.
    pub fn is_idle(&self) -> bool {
        self.entered.is_empty()
    }

    /// Whether the caller must request a flush, to keep the unretired bytes below `limit`; if so, counts the flush as
    /// requested. One flush runs at a time, and the next one waits until a part of the limit was applied: a flush
    /// retires no ticket behind a write in flight, and a flush that failed may fail again.
    pub fn wants_flush(&mut self, limit: u64) -> bool {
        let since = self.asked_at.map_or(u64::MAX, |at| self.applied - at);
        self.bytes > limit && since >= limit / FLUSH_STEPS && self.begin_flush()
    }

    /// Counts a flush as requested; returns false while a requested flush runs.
    pub fn begin_flush(&mut self) -> bool {
        if self.flushing {
            return false;
        }
        (self.flushing, self.asked_at) = (true, Some(self.applied));
        true
    }

    /// Notes that the requested flush has ended or failed.
    pub fn flush_is_over(&mut self) {
        self.flushing = false;
    }

    /// Begins a write. `next` is the log's next ticket, now or earlier.
    pub fn enter(&mut self, next: Ticket) -> WriteBound {
        *self.entered.entry(next.0).or_insert(0) += 1;
        WriteBound(next.0)
    }

    /// Ends a write in flight.
    pub fn leave(&mut self, entered: WriteBound) {
        if let Some(count) = self.entered.get_mut(&entered.0) {
            *count -= 1;
            if *count == 0 {
                self.entered.remove(&entered.0);
            }
        }
    }

    /// Notes that the batch of `ticket`, of `bytes` bytes, was applied. The caller ends its write afterwards.
    pub fn applied(&mut self, ticket: Ticket, needs: Needs, bytes: u64) {
        // The write entered before the log assigned its ticket, so the base is not above the ticket.
        let Some(at) = ticket.0.checked_sub(self.base).and_then(|at| usize::try_from(at).ok()) else {
            return;
        };
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, TicketEntry::default);
        }
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = TicketEntry { needs: Some(needs), bytes };
            self.bytes += bytes;
            self.applied += bytes;
            self.records += 1;
        }
    }

    /// Notes that a family's changes up to the sequence `largest` are in tables.
    pub fn flushed(&mut self, family: Family, largest: Sequence) {
        let before = self.by_family.entry(family).or_insert(largest);
        *before = largest.max(*before);
    }

    /// Notes that all families' changes up to the sequence `largest` are in tables.
    pub fn all_flushed(&mut self, largest: Sequence) {
        self.flushed = self.flushed.max(largest);
    }

    fn is_in_tables(&self, needs: &Needs) -> bool {
        let flushed = |family| self.by_family.get(family).copied().unwrap_or(self.flushed).max(self.flushed);
        needs.iter().all(|(family, last)| flushed(family) >= *last)
    }

    /// Moves the base over the tickets whose batches are in tables, and returns the base. `next` is the log's next
    /// ticket now.
    pub fn retired(&mut self, next: Ticket) -> Ticket {
        let limit = self.entered.first_key_value().map_or(next.0, |(&bound, _)| bound);
        while self.base < limit {
            let Some(slot) = self.slots.front() else {
                // No ticket after the ledger's last entry was used.
                self.base = limit;
                break;
            };
            if slot.needs.as_ref().is_some_and(|needs| !self.is_in_tables(needs)) {
                break;
            }
            self.bytes -= slot.bytes;
            self.records -= u64::from(slot.needs.is_some());
            self.slots.pop_front();
            self.base += 1;
        }
        Ticket(self.base)
    }

    /// Number of batches that are not retired.
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
        ledger.applied(Ticket(ticket), needs_of_one_family(last), 10);
        ledger.leave(entered);
    }

    fn needs_of_one_family(last: u64) -> Needs {
        Box::new([(Family::DEFAULT, Sequence(last))])
    }

    #[test]
    fn a_ticket_retires_when_its_sequence_is_in_tables() {
        let mut ledger = Ledger::new(Ticket(5));
        for n in 0..4 {
            write(&mut ledger, 5 + n, 100 + n);
        }
        assert_eq!(ledger.retired(Ticket(9)), Ticket(5));
        ledger.flushed(Family::DEFAULT, Sequence(101));
        assert_eq!(ledger.retired(Ticket(9)), Ticket(7));
        assert_eq!(ledger.bytes(), 20);
        ledger.flushed(Family::DEFAULT, Sequence(103));
        assert_eq!(ledger.retired(Ticket(9)), Ticket(9));
    }

    #[test]
    fn a_write_in_flight_keeps_later_tickets_from_retiring() {
        let mut ledger = Ledger::new(Ticket(0));
        let slow = ledger.enter(Ticket(0));
        write(&mut ledger, 1, 50);
        ledger.flushed(Family::DEFAULT, Sequence(50));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(0));
        ledger.applied(Ticket(0), needs_of_one_family(51), 10);
        ledger.leave(slow);
        assert_eq!(ledger.retired(Ticket(2)), Ticket(0), "51 is not flushed");
        ledger.flushed(Family::DEFAULT, Sequence(51));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(2));
    }

    #[test]
    fn a_batch_retires_when_every_family_that_it_touched_is_flushed_past_it() {
        let mut ledger = Ledger::new(Ticket(0));
        let other = Family(3);
        let entered = ledger.enter(Ticket(0));
        ledger.applied(Ticket(0), Box::new([(Family::DEFAULT, Sequence(7)), (other, Sequence(8))]), 10);
        ledger.leave(entered);
        write(&mut ledger, 1, 9);
        ledger.flushed(Family::DEFAULT, Sequence(9));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(0), "the other family is in memory");
        ledger.flushed(other, Sequence(7));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(0), "up to the batch");
        ledger.flushed(other, Sequence(8));
        assert_eq!(ledger.retired(Ticket(2)), Ticket(2));
        ledger.flushed(other, Sequence(5));
        let entered = ledger.enter(Ticket(2));
        ledger.applied(Ticket(2), Box::new([(other, Sequence(8)), (Family(4), Sequence(10))]), 10);
        ledger.leave(entered);
        assert_eq!(ledger.retired(Ticket(3)), Ticket(2), "that family was never flushed");
        ledger.all_flushed(Sequence(10));
        assert_eq!(ledger.retired(Ticket(3)), Ticket(3));
    }

    #[test]
    fn tickets_that_were_never_used_are_passed_over() {
        let mut ledger = Ledger::new(Ticket(0));
        let failed = ledger.enter(Ticket(0));
        ledger.leave(failed);
        write(&mut ledger, 7, 1);
        ledger.flushed(Family::DEFAULT, Sequence(1));
        assert_eq!(ledger.retired(Ticket(20)), Ticket(20));
        assert_eq!(ledger.bytes(), 0);
    }

    #[test]
    fn a_flush_that_ends_before_its_write_is_noted_counts() {
        let mut ledger = Ledger::new(Ticket(0));
        let entered = ledger.enter(Ticket(0));
        ledger.flushed(Family::DEFAULT, Sequence(9));
        ledger.applied(Ticket(0), needs_of_one_family(9), 10);
        ledger.leave(entered);
        assert_eq!(ledger.retired(Ticket(1)), Ticket(1));
    }
}
