//! The writes in flight between log and tables, and the ledger of the batches that are not in tables.

use fs::Ticket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use units::sync::Event;

use super::error::LogError;
use super::ledger::{Ledger, Needs, WriteBound};
use super::log::TicketLog;
use super::options::{HeldRecords, ParallelWalOptions};
use super::stripes::HeldStripes;
use super::tables::Tables;

/// Bytes of a log record beside the batch: the entry's header, the number of records and the length.
const RECORD_HEAD: u64 = 64 + 4 + 4;

/// Tracks the writes in flight, retires the log's tickets, and requests flushes when the log exceeds its limit.
pub(super) struct InFlight {
    log: Arc<dyn TicketLog>,
    tables: Arc<dyn Tables>,
    ledger: Mutex<Ledger>,
    /// Signals a waiting exclusive section that the last write in flight has ended.
    left: Condvar,
    /// Signals waiting writes that the last exclusive section has ended.
    reopened: Event,
    /// Signals waiting writes that a requested flush has ended.
    flushed: Event,
    flushes_asked: AtomicU64,
}

impl InFlight {
    /// The state after a replay: no write is in flight, and the next ticket is `next`.
    pub fn new(log: Arc<dyn TicketLog>, tables: Arc<dyn Tables>, next: Ticket) -> Arc<InFlight> {
        Arc::new(InFlight {
            log,
            tables,
            ledger: Mutex::new(Ledger::new(next)),
            left: Condvar::new(),
            reopened: Event::new(),
            flushed: Event::new(),
            flushes_asked: AtomicU64::new(0),
        })
    }

    /// Begins a write that holds its key stripes, which keep exclusive sections out.
    pub fn enter(&self) -> WriteInFlight<'_> {
        self.enter_locked(&mut self.ledger.lock())
    }

    /// Begins a write without key stripes, once no exclusive section runs or waits.
    pub async fn enter_ordered(&self) -> WriteInFlight<'_> {
        loop {
            let seen = self.reopened.version();
            let entering = {
                let mut ledger = self.ledger.lock();
                (!ledger.keeps_writes_out()).then(|| self.enter_locked(&mut ledger))
            };
            if let Some(entering) = entering {
                return entering;
            }
            self.reopened.changed_since(seen).await;
        }
    }

    fn enter_locked(&self, ledger: &mut Ledger) -> WriteInFlight<'_> {
        WriteInFlight { in_flight: self, entered: Some(ledger.enter(self.log.next_ticket())) }
    }

    fn leave(&self, ledger: &mut Ledger, entered: WriteBound) {
        ledger.leave(entered);
        if ledger.keeps_writes_out() && ledger.is_idle() {
            self.left.notify_all();
        }
    }

    /// Begins an exclusive section: waits until no write is in flight, and keeps new writes out. `all` holds all
    /// stripes.
    pub fn exclusive<'a>(&'a self, all: HeldStripes<'a>) -> Exclusive<'a> {
        let mut ledger = self.ledger.lock();
        ledger.keep_writes_out();
        while !ledger.is_idle() {
            self.left.wait(&mut ledger);
        }
        Exclusive { in_flight: self, _all: all }
    }

    /// The ticket below which every batch is in tables.
    pub fn retired(&self) -> Ticket {
        self.ledger.lock().retired(self.log.next_ticket())
    }

    /// Changes the ledger by `note`, and retires the tickets whose batches are in tables.
    pub fn retire(&self, note: impl FnOnce(&mut Ledger)) -> Result<(), LogError> {
        let retired = {
            let mut ledger = self.ledger.lock();
            note(&mut ledger);
            ledger.retired(self.log.next_ticket())
        };
        self.log.retire(retired)
    }

    /// Changes the ledger by `note` without retiring tickets.
    pub fn update_ledger(&self, note: impl FnOnce(&mut Ledger)) {
        note(&mut self.ledger.lock());
    }

    /// The batches of the log that are not in tables.
    pub fn held_records(&self) -> HeldRecords {
        let ledger = self.ledger.lock();
        let flushes_asked = self.flushes_asked.load(Ordering::Relaxed);
        HeldRecords { records: ledger.records(), bytes: ledger.bytes(), flushes_asked }
    }

    /// Starts a flush of the memtables in the background, unless a requested one runs.
    pub fn ask_for_flush(self: &Arc<InFlight>) {
        self.flushes_asked.fetch_add(1, Ordering::Relaxed);
        let in_flight = Arc::clone(self);
        self.tables.flush_soon(Box::new(move || {
            in_flight.ledger.lock().flush_is_over();
            in_flight.flushed.notify();
        }));
    }

    /// Waits for the end of a flush that makes room in the log. Writes that wait at the same time share one flush.
    pub async fn flush(self: &Arc<InFlight>) {
        let seen = self.flushed.version();
        let begins = self.ledger.lock().begin_flush();
        if begins {
            self.ask_for_flush();
        }
        self.flushed.changed_since(seen).await;
    }
}

/// A write in flight, counted in the ledger until dropped.
pub(super) struct WriteInFlight<'a> {
    in_flight: &'a InFlight,
    entered: Option<WriteBound>,
}

impl WriteInFlight<'_> {
    /// Ends a write whose batch of `len` bytes was applied. Returns true if the caller must request a flush.
    pub fn applied(mut self, ticket: Ticket, needs: Needs, len: usize, options: &ParallelWalOptions) -> bool {
        let bytes = (len as u64 + RECORD_HEAD).next_multiple_of(options.log_block.max(1));
        let mut ledger = self.in_flight.ledger.lock();
        if let Some(entered) = self.entered.take() {
            ledger.applied(ticket, needs, bytes);
            self.in_flight.leave(&mut ledger, entered);
        }
        ledger.wants_flush(options.log_limit)
    }
}

impl Drop for WriteInFlight<'_> {
    /// Ends a write whose batch is not in the tables. If the write's future was dropped, a recovery may replay its
    /// record. If a void entry failed, the log is poisoned and tickets matter no more.
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            self.in_flight.leave(&mut self.in_flight.ledger.lock(), entered);
        }
    }
}

/// An exclusive section: no write is in flight until it is dropped.
pub(super) struct Exclusive<'a> {
    in_flight: &'a InFlight,
    _all: HeldStripes<'a>,
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.in_flight.ledger.lock().let_writes_in();
        self.in_flight.reopened.notify();
    }
}
