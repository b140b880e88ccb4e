//! Who is on the way between log and tables, and what that holds.

use std::sync::atomic::Ordering;

use super::Waltz;
use super::plan::Plan;
use crate::waltz::batch::Family;
use crate::waltz::error::LogError;
use crate::waltz::ledger::{Entered, Needs};
use crate::waltz::log::Ticket;
use crate::waltz::options::{Applied, Without};
use crate::waltz::stripes::Held;
use crate::waltz::tables::{Mark, Sequence};

/// What a record takes besides its bytes: the entry's header, the number of records and the length.
const RECORD_HEAD: u64 = 64 + 4 + 4;

/// The floor is written again when it can go up by so many tickets.
const FLOOR_STEP: u64 = 1024;

impl Waltz {
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

    /// How far its families must be flushed until a batch is in tables; with its families held where they are.
    pub(super) fn needs(&self, plan: &Plan, applied: Applied, mark: Option<Mark>) -> Needs {
        let families = self.families.read();
        let behind = |at: &usize| Sequence(applied.last.0.saturating_sub((plan.records - 1 - at) as u64));
        // Records of families that are not there were left out.
        let there = plan.families.iter().filter(|(family, _)| families.contains_key(family));
        let marked = mark.map(|_| (Family::MARKS, Sequence(applied.last.0 + 1)));
        there.map(|(family, at)| (*family, behind(at))).chain(marked).collect()
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
    waltz: &'a Waltz,
    to: Ticket,
}

impl<'a> Raise<'a> {
    /// A new floor, if it is time for one.
    pub(super) fn begin(waltz: &'a Waltz) -> Option<Raise<'a>> {
        let retired = waltz.ledger.lock().retired(waltz.log.next_ticket());
        let due = || retired.0 >= waltz.floor.load(Ordering::Acquire) + FLOOR_STEP;
        if !due() || waltz.raising.swap(true, Ordering::AcqRel) {
            return None;
        }
        let raise = Raise { waltz, to: retired };
        // Another one may have ended in between.
        due().then_some(raise)
    }

    /// Its batch is applied, or was refused.
    pub(super) fn end(raise: Option<Raise<'_>>, applied: bool) {
        if let Some(raise) = raise.filter(|_| applied) {
            raise.waltz.floor.store(raise.to.0, Ordering::Release);
        }
    }
}

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.waltz.raising.store(false, Ordering::Release);
    }
}

/// A write on its way, in the ledger.
pub(super) struct Entering<'a> {
    waltz: &'a Waltz,
    entered: Option<Entered>,
}

impl<'a> Entering<'a> {
    pub(super) fn new(waltz: &'a Waltz) -> Entering<'a> {
        let entered = waltz.ledger.lock().enter(waltz.log.next_ticket());
        Entering { waltz, entered: Some(entered) }
    }

    /// The same without stripes; none while somebody is alone.
    pub(super) fn ordered(waltz: &'a Waltz) -> Option<Entering<'a>> {
        let mut ledger = waltz.ledger.lock();
        if ledger.is_shut() {
            return None;
        }
        let entered = ledger.enter(waltz.log.next_ticket());
        Some(Entering { waltz, entered: Some(entered) })
    }

    /// Its batch was applied. Whether a flush is to be asked for.
    pub(super) fn applied(mut self, ticket: Ticket, needs: Needs, len: usize) -> bool {
        let options = &self.waltz.options;
        let bytes = (len as u64 + RECORD_HEAD).next_multiple_of(options.log_block.max(1));
        let mut ledger = self.waltz.ledger.lock();
        if let Some(entered) = self.entered.take() {
            ledger.applied(ticket, needs, bytes);
            self.waltz.leave(&mut ledger, entered);
        }
        ledger.wants_flush(options.log_limit)
    }
}

impl Drop for Entering<'_> {
    /// Without a batch that counts: what the log has of it may come back in a recovery, if it was dropped on its way. Where a
    /// void failed the log is poisoned, and its tickets do not matter any more.
    fn drop(&mut self) {
        if let Some(entered) = self.entered.take() {
            self.waltz.leave(&mut self.waltz.ledger.lock(), entered);
        }
    }
}

/// While it is there, no batch is between log and tables.
pub(super) struct Alone<'a> {
    pub(super) waltz: &'a Waltz,
    pub(super) _held: Held<'a>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.waltz.ledger.lock().reopen();
        self.waltz.reopened.notify();
    }
}
