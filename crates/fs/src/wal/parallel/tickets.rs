//! The tickets of a parallel log: handed out in order, done in any order, and the lowest one that is not done.
//!
//! A ring has a slot for each ticket that may be open. Who is done marks the slot and moves the lowest one on over
//! all marked slots; of two who are done at the same time, at least one sees the other's mark.

use super::atomic::{AtomicU64, Ordering, fence};

/// The counters.
#[derive(Debug)]
pub(crate) struct Tickets {
    next: AtomicU64,
    low: AtomicU64,
    /// Each slot holds one more than the last of its tickets that is done.
    ring: Box<[AtomicU64]>,
}

impl Tickets {
    /// Tickets from `first` on, of which `open` may be open at a time.
    pub(crate) fn new(first: u64, open: usize) -> Tickets {
        let ring = (0..open.max(1)).map(|_| AtomicU64::new(0)).collect();
        Tickets { next: AtomicU64::new(first), low: AtomicU64::new(first), ring }
    }

    /// The next `count` tickets: gives the first of them; `None` while too many are open.
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

    /// Whether `count` tickets could be had.
    pub(crate) fn has(&self, count: u64) -> bool {
        self.next() + count <= self.low() + self.ring.len() as u64
    }

    /// `count` tickets from `first` on are done: they exist on the device.
    pub(crate) fn done(&self, first: u64, count: u64) {
        for ticket in first..first + count {
            self.slot(ticket).store(ticket + 1, Ordering::Release);
        }
        loop {
            // Between the mark and the look at the lowest one: who moves that one on to ours sees the mark, or we see
            // that it was moved.
            fence(Ordering::SeqCst);
            let low = self.low.load(Ordering::Acquire);
            if self.slot(low).load(Ordering::Acquire) != low + 1 {
                return;
            }
            // Another one may have been faster: look again.
            let _moved = self.low.compare_exchange(low, low + 1, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    fn slot(&self, ticket: u64) -> &AtomicU64 {
        let at = usize::try_from(ticket % self.ring.len() as u64).expect("the ring is in memory");
        self.ring.get(at).expect("a remainder is below the length")
    }

    /// What is done at a moment: every ticket below the first number, and these runs above it, each the first ticket and the
    /// one behind the last.
    pub(crate) fn all_done(&self) -> (u64, Vec<(u64, u64)>) {
        let low = self.low();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for ticket in low + 1..self.next() {
            // Also where a later ticket has the slot by now.
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

    /// Every ticket below is done.
    pub(crate) fn low(&self) -> u64 {
        self.low.load(Ordering::Acquire)
    }

    /// The ticket that is handed out next.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }
}
