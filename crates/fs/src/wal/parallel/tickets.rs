//! The tickets of a parallel log: given in order, completed in any order, and the lowest open ticket.
//!
//! A ring has a slot for each ticket that may be open. A thread that completes a ticket marks its slot, and then advances the
//! lowest open ticket over all marked slots. Of two threads that complete tickets at the same time, at least one sees the
//! other's mark.

use super::atomic::{AtomicU64, Ordering, fence};

/// The ticket counters of a log.
#[derive(Debug)]
pub(crate) struct Tickets {
    next: AtomicU64,
    low: AtomicU64,
    /// Each slot of the ring holds the slot's newest completed ticket, plus one.
    ring: Box<[AtomicU64]>,
}

impl Tickets {
    /// Counters of tickets from `first` on, of which `open` may be open at a time.
    pub(crate) fn new(first: u64, open: usize) -> Tickets {
        let ring = (0..open.max(1)).map(|_| AtomicU64::new(0)).collect();
        Tickets { next: AtomicU64::new(first), low: AtomicU64::new(first), ring }
    }

    /// Takes the next `count` tickets and gives the first one; `None` while too many are open.
    pub(crate) fn take(&self, count: u64) -> Option<u64> {
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            if next + count > self.low.load(Ordering::Acquire) + self.ring.len() as u64 {
                return None;
            }
            match self.next.compare_exchange_weak(next, next + count, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(next),
                Err(now) => next = now,
            }
        }
    }

    /// True if [`take`](Tickets::take) would return `count` tickets.
    pub(crate) fn has_room(&self, count: u64) -> bool {
        self.next() + count <= self.low() + self.ring.len() as u64
    }

    /// Completes `count` tickets from `first` on: their entries are on the device.
    pub(crate) fn complete(&self, first: u64, count: u64) {
        for ticket in first..first + count {
            self.slot(ticket).store(ticket + 1, Ordering::Release);
        }
        loop {
            // The fence orders the slot's mark before the load of `low`: either the thread that advances
            // `low` to this ticket sees the mark, or this thread sees the advanced `low`.
            fence(Ordering::SeqCst);
            let low = self.low.load(Ordering::Acquire);
            if self.slot(low).load(Ordering::Acquire) != low + 1 {
                return;
            }
            // If another thread advanced the lowest open ticket first, the loop loads its new value.
            let _advanced = self.low.compare_exchange(low, low + 1, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn slot(&self, ticket: u64) -> &AtomicU64 {
        let at = usize::try_from(ticket % self.ring.len() as u64).expect("the ring is in memory");
        self.ring.get(at).expect("a remainder is below the length")
    }

    /// The completed tickets: all below the first number, and the runs above it, each the first ticket and the ticket after
    /// the last one.
    pub(crate) fn completed(&self) -> (u64, Vec<(u64, u64)>) {
        let low = self.low();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for ticket in low + 1..self.next() {
            // A greater value in a slot means that a later ticket of the slot is completed, and so this one
            // is too.
            if self.slot(ticket).load(Ordering::Acquire) <= ticket {
                continue;
            }
            match runs.last_mut() {
                Some((_, end)) if *end == ticket => *end += 1,
                _ => runs.push((ticket, ticket + 1)),
            }
        }
        (low, runs)
    }

    /// The lowest open ticket: every lower ticket is completed.
    pub(crate) fn low(&self) -> u64 {
        self.low.load(Ordering::Acquire)
    }

    /// The ticket that will be taken next.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }
}
