//! The protocol: docs/adr/0013.

mod passes;
mod plan;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use units::sync::Event;

use super::batch::Family;
use super::error::{LogError, LogErrorKind, WriteError};
use super::ledger::{Entered, Ledger};
use super::log::{Ticket, TicketLog};
use super::options::{Applied, FamilyInfo, HeldRecords, How, ParallelWalOptions, Without};
use super::stripes::{StripeSet, Stripes};
use super::tables::{Mark, Sequence, Tables};
use passes::{Alone, Entering, Raise};

/// The engine over a log and tables. All methods may be called from any thread.
///
/// Acknowledged means: applied, in the log, and with [`How::SYNCED`] safe from a power cut. Batches that share a key go
/// through log and tables in one order.
pub struct ParallelWal {
    log: Arc<dyn TicketLog>,
    tables: Arc<dyn Tables>,
    options: ParallelWalOptions,
    stripes: Stripes,
    ledger: Arc<Mutex<Ledger>>,
    /// The last write on its way has left, told to whoever is to be alone; and that one is gone.
    left: Condvar,
    reopened: Event,
    /// A flush that was asked for is over.
    flushed: Event,
    families: RwLock<HashMap<Family, FamilyInfo>>,
    /// Every batch carries a mark. Changed while all stripes are held.
    exact: AtomicBool,
    /// The floor in the tables; what a write on its way makes it is not in it yet.
    floor: AtomicU64,
    /// A write on its way raises the floor. One at a time: RocksDB may apply two in another order than they were marked in.
    raising: AtomicBool,
    flushes_asked: AtomicU64,
    /// Changed while all stripes are held.
    closed: AtomicBool,
    /// Why a close left the log.
    close_failed: Mutex<Option<LogError>>,
}

impl ParallelWal {
    /// Applies what the log holds, and takes writes from then on.
    ///
    /// Killed on the way, it can be repeated. Flushes that begin or end meanwhile need not be told.
    ///
    /// # Errors
    /// What log or tables say. Nothing is lost by it: the log keeps what it has.
    pub fn open(
        log: Arc<dyn TicketLog>,
        tables: Arc<dyn Tables>,
        families: impl IntoIterator<Item = (Family, FamilyInfo)>,
        options: ParallelWalOptions,
    ) -> Result<ParallelWal, LogError> {
        let floor = tables.floor()?;
        log.replay(&mut |ticket, record| {
            let Some(floor) = floor else {
                return tables.replay(record, None);
            };
            if ticket < floor || tables.is_marked(ticket)? {
                return Ok(());
            }
            tables.replay(record, Some(Mark { ticket, floor: None }))
        })?;
        let next = log.next_ticket();
        if floor.is_some() {
            tables.set_floor(next)?;
        }
        tables.empty_memtables()?;
        log.retire(next)?;
        Ok(ParallelWal {
            log,
            tables,
            options,
            stripes: Stripes::new(),
            ledger: Arc::new(Mutex::new(Ledger::new(next))),
            left: Condvar::new(),
            reopened: Event::new(),
            flushed: Event::new(),
            families: RwLock::new(families.into_iter().collect()),
            exact: AtomicBool::new(floor.is_some()),
            floor: AtomicU64::new(next.0),
            raising: AtomicBool::new(false),
            flushes_asked: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            close_failed: Mutex::new(None),
        })
    }

    /// Writes a batch: `apply` is called once, after the log has it, and must apply it with the mark, wholly or not at
    /// all. Waits where a batch with a key of this one is on its way.
    ///
    /// # Errors
    /// See [`WriteError`]: but for `Unknown` and a poisoned log, the batch never happened and never will have.
    pub fn write<E>(
        &self,
        batch: &[u8],
        how: How,
        apply: impl FnOnce(Option<Mark>) -> Result<Applied, E>,
    ) -> Result<(), WriteError<E>> {
        if how.synced && !how.logged {
            return Err(WriteError::Invalid(
                "a synced write needs the log: sync is set with disableWAL".into(),
            ));
        }
        let plan = self.plan(batch, true)?;
        if plan.records == 0 {
            return if how.synced { Ok(self.sync()?) } else { Ok(()) };
        }
        if plan.exact || !how.logged {
            self.exactly_once()?;
        }
        let held = self.hold(&plan.stripes);
        self.check(&plan, how)?;
        if !how.logged {
            // With its stripes: its families are there until it is applied, and whoever is alone is.
            return apply(None).map(|_| ()).map_err(WriteError::Apply);
        }
        let mut entering = Entering::new(self);
        let mut appended = self.log.append(batch, how.synced);
        if is_full(&appended) && self.held().records > 0 {
            // Of its own it would hold back what a flush retires.
            drop(entering);
            self.tables.flush()?;
            entering = Entering::new(self);
            appended = self.log.append(batch, how.synced);
        }
        let ticket = appended?;
        let (mark, raise) = self.mark(ticket, &plan);
        let applied = apply(mark);
        Raise::end(raise, applied.is_ok());
        match applied {
            Ok(applied) => {
                let full = entering.applied(ticket, self.needs(&plan, applied, mark), batch.len());
                drop(held);
                self.flush_if(full);
                Ok(())
            }
            Err(error) => {
                self.tables.was_refused();
                let void = self.void(ticket);
                drop(entering);
                drop(held);
                Err(not_applied(error, void))
            }
        }
    }

    /// [`write`](ParallelWal::write) for an owner who sees to it that no two batches on their way share a key, and who writes through
    /// this alone. It takes no stripes, and waits for the log without blocking the thread, nor for `apply`, which should not
    /// either. Whoever is to be alone waits for it: it must be polled to its end, or dropped. The batch is what
    /// `writers` have.
    ///
    /// # Errors
    /// As for `write`; `Invalid` for what is to be applied once only (merges, single deletes) and for range deletes beside
    /// other batches, which are the owner's to keep apart. Dropped on its way, the batch is written or not.
    pub async fn write_ordered<E, F>(
        &self,
        batch: &[u8],
        how: How,
        writers: usize,
        apply: impl FnOnce(Option<Mark>) -> F,
    ) -> Result<(), WriteError<E>>
    where
        F: Future<Output = Result<Applied, E>>,
    {
        let plan = self.plan(batch, false)?;
        if plan.exact || !how.logged {
            return Err(WriteError::Invalid(
                "writing a batch: merges, single deletes and unlogged writes are not for an owner who orders writes".into(),
            ));
        }
        if plan.records == 0 {
            return if how.synced { Ok(self.log.sync_soon().await?) } else { Ok(()) };
        }
        let mut entering = self.enter_ordered().await;
        self.check(&plan, how)?;
        let mut appended = self.log.append_soon(batch, how.synced, writers).await;
        if is_full(&appended) && self.held().records > 0 {
            drop(entering);
            self.flush_over().await;
            entering = self.enter_ordered().await;
            self.check(&plan, how)?;
            appended = self.log.append_soon(batch, how.synced, writers).await;
        }
        let ticket = appended?;
        let (mark, raise) = self.mark(ticket, &plan);
        let applied = apply(mark).await;
        Raise::end(raise, applied.is_ok());
        match applied {
            Ok(applied) => {
                let full = entering.applied(ticket, self.needs(&plan, applied, mark), batch.len());
                self.flush_if(full);
                Ok(())
            }
            Err(error) => {
                self.tables.was_refused();
                let void = self.void_soon(ticket).await;
                drop(entering);
                Err(not_applied(error, void))
            }
        }
    }

    /// What the log holds that is not in tables.
    pub fn held(&self) -> HeldRecords {
        let ledger = self.ledger.lock();
        let flushes_asked = self.flushes_asked.load(Ordering::Relaxed);
        HeldRecords { records: ledger.records(), bytes: ledger.bytes(), flushes_asked }
    }

    /// Asks for a flush, if the log has more than it should.
    fn flush_if(&self, wanted: bool) {
        if wanted {
            self.flushes_asked.fetch_add(1, Ordering::Relaxed);
            let (ledger, flushed) = (Arc::clone(&self.ledger), self.flushed.clone());
            self.tables.flush_soon(Box::new(move || {
                ledger.lock().flush_is_over();
                flushed.notify();
            }));
        }
    }

    /// Waits for a flush that gives room in the log, which those who need it share.
    async fn flush_over(&self) {
        let seen = self.flushed.version();
        let ask = self.ledger.lock().begin_flush();
        self.flush_if(ask);
        self.flushed.changed_since(seen).await;
    }

    /// A place for a write that takes no stripes, once nobody is alone.
    async fn enter_ordered(&self) -> Entering<'_> {
        loop {
            let seen = self.reopened.version();
            if let Some(entering) = Entering::ordered(self) {
                return entering;
            }
            self.reopened.changed_since(seen).await;
        }
    }

    /// Waits until no batch is between log and tables, and keeps it so.
    fn alone(&self) -> Alone<'_> {
        let held = self.stripes.hold(&StripeSet::ALL);
        let mut ledger = self.ledger.lock();
        ledger.shut();
        while !ledger.is_idle() {
            self.left.wait(&mut ledger);
        }
        Alone { parallel_wal: self, _held: held }
    }

    fn leave(&self, ledger: &mut Ledger, entered: Entered) {
        ledger.leave(entered);
        if ledger.is_shut() && ledger.is_idle() {
            self.left.notify_all();
        }
    }

    /// Whether a batch would go to the log's drive at once; otherwise an owner of many writers puts together what comes until
    /// then.
    pub fn goes_at_once(&self) -> bool {
        self.log.goes_at_once()
    }

    /// Makes every acknowledged write durable.
    pub fn sync(&self) -> Result<(), LogError> {
        self.log.sync()
    }

    /// To be called when a flush begins, with its memtables closed, before any of its tables counts.
    pub fn flush_begins(&self) -> Result<(), LogError> {
        if self.options.without == Without::SyncAtFlush {
            return Ok(());
        }
        self.log.sync()
    }

    /// To be called when a flush has put everything of a family up to `largest` into tables, durably.
    pub fn flushed(&self, family: Family, largest: Sequence) {
        if self.options.without == Without::OtherFamilies {
            return self.all_flushed(largest);
        }
        self.retire(|ledger| ledger.flushed(family, largest));
    }

    /// The same of all families.
    pub fn all_flushed(&self, largest: Sequence) {
        self.retire(|ledger| ledger.all_flushed(largest));
    }

    /// Gives up what is in tables, by what `told` notes.
    fn retire(&self, told: impl FnOnce(&mut Ledger)) {
        let retired = {
            let mut ledger = self.ledger.lock();
            told(&mut ledger);
            ledger.retired(self.log.next_ticket())
        };
        if let Err(error) = self.log.retire(retired) {
            tracing::warn!(%error, "the parallel log could not give up what is in tables; it grows");
        }
    }

    /// From now on no batch is ever applied twice, whatever it holds; see docs/adr/0013. The first call waits for all
    /// writes and a flush.
    pub fn exactly_once(&self) -> Result<(), LogError> {
        if self.options.without == Without::Marks {
            return Ok(());
        }
        if self.exact.load(Ordering::Acquire) {
            return Ok(());
        }
        let _alone = self.alone();
        self.check_open()?;
        if self.exact.load(Ordering::Acquire) {
            return Ok(());
        }
        let floor = self.log.next_ticket();
        self.tables.set_floor(floor)?;
        // What is in memory and the floor become durable together.
        self.tables.empty_memtables()?;
        self.floor.store(floor.0, Ordering::Release);
        self.exact.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether every batch carries a mark.
    pub fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Acquire)
    }

    /// Runs something while no batch is between log and tables.
    pub fn exclusive<R>(&self, run: impl FnOnce() -> R) -> R {
        let _alone = self.alone();
        run()
    }

    /// Notes a family that there is from now on, or no longer. To be called within [`exclusive`](ParallelWal::exclusive).
    pub fn set_family(&self, family: Family, info: Option<FamilyInfo>) {
        let mut families = self.families.write();
        match info {
            Some(info) => {
                families.insert(family, info);
            }
            None => {
                families.remove(&family);
                // Nothing of it will ever be in tables, nor is it needed there.
                self.ledger.lock().flushed(family, Sequence::LAST);
            }
        }
    }

    /// Brings everything into tables and removes the log: afterwards the database can be opened without it. Writes fail
    /// from here on.
    ///
    /// # Errors
    /// The log stays, and what it holds is applied when the database is opened with it again.
    pub fn close(&self) -> Result<(), LogError> {
        let _alone = self.alone();
        if self.closed.swap(true, Ordering::AcqRel) {
            return self.close_failed.lock().clone().map_or(Ok(()), Err);
        }
        let emptied = self.empty();
        *self.close_failed.lock() = emptied.clone().err();
        emptied
    }

    /// Brings everything into tables, and ends the log and the marks.
    fn empty(&self) -> Result<(), LogError> {
        if let Some(error) = self.log.failure() {
            return Err(error);
        }
        self.tables.empty_memtables()?;
        self.ledger.lock().all_flushed(Sequence::LAST);
        self.log.retire(self.log.next_ticket())?;
        // The log is there until the hidden family is gone: whoever opens the database without it is told so, and a log that
        // is empty for good needs no marks.
        self.log.seal()?;
        self.tables.drop_marks()?;
        self.log.remove()
    }
}

fn is_full(appended: &Result<Ticket, LogError>) -> bool {
    matches!(appended, Err(error) if error.kind == LogErrorKind::NoSpace)
}

fn not_applied<E>(error: E, void: Result<(), LogError>) -> WriteError<E> {
    match void {
        Ok(()) => WriteError::Apply(error),
        Err(log) => WriteError::Unknown(error, log),
    }
}

impl fmt::Debug for ParallelWal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParallelWal").field("options", &self.options).field("exact", &self.exact).finish()
    }
}
