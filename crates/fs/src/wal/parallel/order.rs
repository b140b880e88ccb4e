//! The order of a parallel log's records: tickets, and the list of earlier tickets in an entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use units::sync::Event;

use crate::error::Result;
use crate::wal::parallel::health::Health;
use crate::wal::parallel::known::Known;
use crate::wal::parallel::tickets::Tickets;

#[derive(Debug)]
pub(super) struct Order {
    tickets: Tickets,
    /// The first ticket of this opening of the log. Recovery decided all lower tickets.
    pub(super) first: u64,
    /// True if a power cut may lose an acknowledged block in the middle of a zone (an array whose drives lose
    /// their caches each by itself): then entries list the acknowledged tickets above `needs`.
    scattered: bool,
    /// Notified when the lowest open ticket rises, if a task waits for that.
    low_moved: Event,
    waiting: AtomicUsize,
    health: Arc<Health>,
}

impl Order {
    /// Tickets from `first` on, of which `open` may be open at a time. `low_moved` is one of the events that `health`
    /// notifies.
    pub(super) fn new(
        first: u64,
        open: usize,
        scattered: bool,
        low_moved: Event,
        health: Arc<Health>,
    ) -> Order {
        let tickets = Tickets::new(first, open);
        Order { tickets, first, scattered, low_moved, waiting: AtomicUsize::new(0), health }
    }

    /// The next ticket.
    pub(super) fn next(&self) -> u64 {
        self.tickets.next()
    }

    /// The lowest open ticket of the log.
    pub(super) fn low(&self) -> u64 {
        self.tickets.low()
    }

    /// True if no ticket of the log is open.
    pub(super) fn all_complete(&self) -> bool {
        self.low() == self.next()
    }

    /// Takes `count` tickets; returns the first of them. `None` while too many tickets are open.
    pub(super) fn take(&self, count: u64) -> Option<u64> {
        self.tickets.take(count)
    }

    /// Completes tickets: their entry is on the device.
    pub(super) fn complete(&self, first: u64, count: u64) {
        self.tickets.complete(first, count);
        if self.waiting.load(Ordering::Acquire) > 0 {
            self.low_moved.notify();
        }
    }

    /// The tickets acknowledged before an entry begins: all below the returned number, and the listed ones
    /// above it. Call this before taking the entry's tickets: then, of two entries, the later one's flush
    /// covers all that the earlier one lists. Waits while the list is longer than an entry can hold.
    pub(super) async fn acknowledged(&self) -> Result<(u64, Known)> {
        let look = || {
            let (low, runs) =
                if self.scattered { self.tickets.completed() } else { (self.tickets.low(), Vec::new()) };
            Known::of(low, &runs).map(|known| (low, known))
        };
        match look() {
            Some(acknowledged) => Ok(acknowledged),
            None => self.as_low_moves(look).await,
        }
    }

    /// Waits until `count` tickets can be taken. The caller must hold no place in a zone meanwhile.
    pub(super) async fn wait_for(&self, count: u64) -> Result<()> {
        self.as_low_moves(|| self.tickets.has_room(count).then_some(())).await
    }

    /// Calls `ready` each time the lowest open ticket has risen, until it returns a value.
    async fn as_low_moves<R>(&self, ready: impl Fn() -> Option<R>) -> Result<R> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        loop {
            let seen = self.low_moved.version();
            self.health.check()?;
            if let Some(ready) = ready() {
                return Ok(ready);
            }
            self.low_moved.changed_since(seen).await;
        }
    }
}
