//! Who is on the way between log and tables, and what that holds.

use std::sync::atomic::Ordering;

use super::ParallelWal;
use super::plan::Plan;
use crate::parallel_wal::batch::Family;
use crate::parallel_wal::error::LogError;
use crate::parallel_wal::ledger::{Entered, Needs};
use crate::parallel_wal::log::Ticket;
use crate::parallel_wal::options::{Applied, Without};
use crate::parallel_wal::stripes::Held;
use crate::parallel_wal::tables::{Mark, Sequence};

/// What a record takes besides its bytes: the entry's header, the number of records and the length.
const RECORD_HEAD: u64 = 64 + 4 + 4;

/// The floor is written again when it can go up by so many tickets.
const FLOOR_STEP: u64 = 1024;

impl ParallelWal {
    /// The mark of a batch that the log has. The floor is raised when the batch is applied.
    pub(super) fn mark(&self, ticket: Ticket, plan: &Plan) -> (Option<Mark>, Option<Raise<'_>>) {
        if !self.exact.load(Ordering::Acquire)
            || (self.options.without == Without::MarksOfOthers && !plan.exact)
        {
            return (None, None);
        }
        let raise = Raise::begin(self);
        (Some(Mark { ticket, floor: raise.as_ref().map(|raise| raise.to) }), raise)
    }

    /// How far which families must be flushed until a batch is in tables; with its families held where they are.
    ///
    /// A marked batch is in tables when its mark is: one atomic flush writes both, and a replay skips the batch from then on.
    /// The batch's own families may never say so, since a table can end before a single delete and its put.
    pub(super) fn needs(&self, plan: &Plan, applied: Applied, mark: Option<Mark>) -> Needs {
        if mark.is_some() {
            return Box::new([(Family::MARKS, Sequence(applied.last.0 + 1))]);
        }
        let families = self.families.read();
        let behind = |at: &usize| Sequence(applied.last.0.saturating_sub((plan.records - 1 - at) as u64));
        // Records of families that are not there were left out.
        let there = plan.families.iter().filter(|(family, _)| families.contains_key(family));
        there.map(|(family, at)| (*family, behind(at))).collect()
    }

    /// Takes back a batch that the tables refused.
    pub(super) async fn void_soon(&self, ticket: Ticket) -> Result<(), LogError> {
        if self.options.without == Without::Void {
            return Ok(());
        }
        self.log.void_soon(ticket).await
    }

    /// The same, waiting for it.
    pub(super) fn void(&self, ticket: Ticket) -> Result<(), LogError> {
        if self.options.without == Without::Void {
            return Ok(());
        }
        self.log.void(ticket)
    }
}

/// A floor that a batch carries; until it is applied, or was not, no other batch carries one.
pub(super) struct Raise<'a> {
    parallel_wal: &'a ParallelWal,
    to: Ticket,
}

impl<'a> Raise<'a> {
    /// A new floor, if it is time for one.
    pub(super) fn begin(parallel_wal: &'a ParallelWal) -> Option<Raise<'a>> {
        let retired = parallel_wal.ledger.lock().retired(parallel_wal.log.next_ticket());
        let due = || retired.0 >= parallel_wal.floor.load(Ordering::Acquire) + FLOOR_STEP;
        if !due() || parallel_wal.raising.swap(true, Ordering::AcqRel) {
            return None;
        }
        let raise = Raise { parallel_wal, to: retired };
        // Another one may have ended in between.
        due().then_some(raise)
    }

    /// Its batch is applied, or was refused.
    pub(super) fn end(raise: Option<Raise<'_>>, applied: bool) {
        if let Some(raise) = raise.filter(|_| applied) {
            raise.parallel_wal.floor.store(raise.to.0, Ordering::Release);
        }
    }
}

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.parallel_wal.raising.store(false, Ordering::Release);
    }
}

/// A write on its way, in the ledger.
pub(super) struct Entering<'a> {
    parallel_wal: &'a ParallelWal,
    entered: Option<Entered>,
}

impl<'a> Entering<'a> {
    pub(super) fn new(parallel_wal: &'a ParallelWal) -> Entering<'a> {
        let entered = parallel_wal.ledger.lock().enter(parallel_wal.log.next_ticket());
        Entering { parallel_wal, entered: Some(entered) }
    }

    /// The same without stripes; none while somebody is alone.
    pub(super) fn ordered(parallel_wal: &'a ParallelWal) -> Option<Entering<'a>> {
        let mut ledger = parallel_wal.ledger.lock();
        if ledger.is_shut() {
            return None;
        }
        let entered = ledger.enter(parallel_wal.log.next_ticket());
        Some(Entering { parallel_wal, entered: Some(entered) })
    }

    /// Its batch was applied. Whether a flush is to be asked for.
    pub(super) fn applied(mut self, ticket: Ticket, needs: Needs, len: usize) -> bool {
        let options = &self.parallel_wal.options;
        let bytes = (len as u64 + RECORD_HEAD).next_multiple_of(options.log_block.max(1));
        let mut ledger = self.parallel_wal.ledger.lock();
        if let Some(entered) = self.entered.take() {
            ledger.applied(ticket, needs, bytes);
            self.parallel_wal.leave(&mut ledger, entered);
        }
        ledger.wants_flush(options.log_limit)
    }
}

impl Drop for Entering<'_> {
    /// Without a batch that counts: what the log has of it may come back in a recovery, if it was dropped on its way. Where a
    /// void failed the log is poisoned, and its tickets do not matter any more.
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            self.parallel_wal.leave(&mut self.parallel_wal.ledger.lock(), entered);
        }
    }
}

/// While it is there, no batch is between log and tables.
pub(super) struct Alone<'a> {
    pub(super) parallel_wal: &'a ParallelWal,
    pub(super) _held: Held<'a>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.parallel_wal.ledger.lock().reopen();
        self.parallel_wal.reopened.notify();
    }
}
