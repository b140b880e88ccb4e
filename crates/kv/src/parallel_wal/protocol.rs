//! The parallel WAL's write and recovery protocol: docs/adr/0013.

use fs::Ticket;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::batch::Family;
use super::error::{LogError, LogErrorKind, WriteError};
use super::in_flight::{Exclusive, InFlight};
use super::log::TicketLog;
use super::marks::{BatchMark, Marks};
use super::options::{Applied, HeldRecords, ParallelWalOptions, WriteOptions, breaks};
use super::plan::{Families, FamilyInfo, Plan};
use super::stripes::{HeldStripes, StripeSet, Stripes};
use super::tables::{Mark, Sequence, Tables};

/// The parallel WAL over a log and tables. All methods may be called from any thread.
///
/// An acknowledged batch is applied and in the log; with [`WriteOptions::SYNCED`] it survives a power cut. Batches that
/// share a key go through log and tables in one order.
pub struct ParallelWal {
    log: Arc<dyn TicketLog>,
    tables: Arc<dyn Tables>,
    options: ParallelWalOptions,
    stripes: Stripes,
    in_flight: Arc<InFlight>,
    families: Families,
    marks: Marks,
    /// Whether the parallel WAL is closed; changed while all stripes are held.
    closed: AtomicBool,
    /// The error with which a close left the log, if one did.
    close_failed: Mutex<Option<LogError>>,
}

impl ParallelWal {
    /// Opens the parallel WAL: replays the log's records, and takes writes from then on.
    ///
    /// An opening that a crash interrupts can be repeated. Flushes that begin or end during the opening need not be
    /// reported.
    ///
    /// # Errors
    /// Errors of log and tables. The log keeps its records.
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
            in_flight: InFlight::new(Arc::clone(&log), Arc::clone(&tables), next),
            log,
            tables,
            options,
            stripes: Stripes::new(),
            families: Families::new(families),
            marks: Marks::new(floor.is_some(), next),
            closed: AtomicBool::new(false),
            close_failed: Mutex::new(None),
        })
    }

    /// Writes a batch. `apply` is called once, after the log has the batch, and must apply it with the mark, wholly or not at
    /// all. Waits while a batch that shares a key is in flight.
    ///
    /// # Errors
    /// See [`WriteError`]: after any error but `Unknown` and that of a poisoned log, the batch never happened and never
    /// will have.
    pub fn write<E>(
        &self,
        batch: &[u8],
        options: WriteOptions,
        apply: impl FnOnce(Option<Mark>) -> Result<Applied, E>,
    ) -> Result<(), WriteError<E>> {
        if options.synced && !options.logged {
            return Err(WriteError::Invalid(
                "a synced write needs the log: sync is set with disableWAL".into(),
            ));
        }
        let plan = Plan::read(batch, &self.families, Some(&self.stripes))?;
        if plan.records == 0 {
            return if options.synced { Ok(self.sync()?) } else { Ok(()) };
        }
        if plan.once_only || !options.logged {
            self.exactly_once()?;
        }
        let held = self.lock_stripes(&plan.stripes);
        self.check(&plan, options)?;
        if !options.logged {
            // The held stripes keep exclusive sections out, so that the families stay until the batch is applied.
            return apply(None).map(|_| ()).map_err(WriteError::Apply);
        }
        let mut entering = self.in_flight.enter();
        let mut appended = self.log.append(batch, options.synced);
        if is_log_full(&appended) && self.held_records().records > 0 {
            // End this write's entry in the ledger first: it would keep the flush from retiring tickets.
            drop(entering);
            self.tables.flush()?;
            entering = self.in_flight.enter();
            appended = self.log.append(batch, options.synced);
        }
        let ticket = appended?;
        let BatchMark { mark, raise } = self.mark(ticket, &plan);
        match apply(mark) {
            Ok(applied) => {
                raise.into_iter().for_each(|raise| raise.applied());
                let needs = plan.needs(&self.families, applied, mark);
                let wants_flush = entering.applied(ticket, needs, batch.len(), &self.options);
                drop(held);
                if wants_flush {
                    self.in_flight.ask_for_flush();
                }
                Ok(())
            }
            Err(error) => {
                drop(raise);
                self.tables.was_refused();
                let void = if breaks!(self.options, Void) { Ok(()) } else { self.log.void(ticket) };
                drop(entering);
                drop(held);
                Err(not_applied(error, void))
            }
        }
    }

    /// Like [`write`](ParallelWal::write), for a caller who makes sure that no two batches in flight share a key, and
    /// who writes through this method alone. Takes no stripes, and blocks no thread while it waits for the log or for
    /// `apply`, which should not block either. Exclusive sections wait for the write: its future must be polled to its
    /// end, or dropped.
    ///
    /// # Errors
    /// As for `write`; `Invalid` for batches that may be applied only once (merges, single deletes). The caller keeps range
    /// deletes apart from other batches. If the future is dropped, the batch is written or not.
    pub async fn write_ordered<E, F>(
        &self,
        batch: &[u8],
        options: WriteOptions,
        apply: impl FnOnce(Option<Mark>) -> F,
    ) -> Result<(), WriteError<E>>
    where
        F: Future<Output = Result<Applied, E>>,
    {
        let plan = Plan::read(batch, &self.families, None)?;
        if plan.once_only || !options.logged {
            return Err(WriteError::Invalid(
                "writing a batch: merges, single deletes and unlogged writes are not for a caller who orders writes"
                    .into(),
            ));
        }
        if plan.records == 0 {
            return if options.synced { Ok(self.log.sync_soon().await?) } else { Ok(()) };
        }
        let mut entering = self.in_flight.enter_ordered().await;
        self.check(&plan, options)?;
        let mut appended = self.log.append_soon(batch, options).await;
        if is_log_full(&appended) && self.held_records().records > 0 {
            drop(entering);
            self.in_flight.flush().await;
            entering = self.in_flight.enter_ordered().await;
            self.check(&plan, options)?;
            appended = self.log.append_soon(batch, options).await;
        }
        let ticket = appended?;
        let BatchMark { mark, raise } = self.mark(ticket, &plan);
        match apply(mark).await {
            Ok(applied) => {
                raise.into_iter().for_each(|raise| raise.applied());
                let needs = plan.needs(&self.families, applied, mark);
                if entering.applied(ticket, needs, batch.len(), &self.options) {
                    self.in_flight.ask_for_flush();
                }
                Ok(())
            }
            Err(error) => {
                drop(raise);
                self.tables.was_refused();
                let void =
                    if breaks!(self.options, Void) { Ok(()) } else { self.log.void_soon(ticket).await };
                drop(entering);
                Err(not_applied(error, void))
            }
        }
    }

    fn lock_stripes(&self, stripes: &StripeSet) -> HeldStripes<'_> {
        if breaks!(self.options, KeyLocks) {
            return self.stripes.lock_stripes(&StripeSet::default());
        }
        self.stripes.lock_stripes(stripes)
    }

    fn check_open(&self) -> Result<(), LogError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(LogError::new(LogErrorKind::Poisoned, "writing a batch: the database is closed"));
        }
        match self.log.failure() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Refuses a batch that the tables are certain to refuse, before the log has the batch. Called with the stripes
    /// held.
    fn check<E>(&self, plan: &Plan, options: WriteOptions) -> Result<(), WriteError<E>> {
        self.check_open()?;
        self.tables.check_writable()?;
        plan.check(&self.families, options.ignore_missing).map_err(WriteError::Invalid)
    }

    /// The mark for a batch that the log has.
    fn mark(&self, ticket: Ticket, plan: &Plan) -> BatchMark<'_> {
        if !self.marks.is_on() || breaks!(self.options, MarksOfPuts) && !plan.once_only {
            return BatchMark::default();
        }
        let retired = self.in_flight.retired();
        let raise = self.marks.raise_floor(retired);
        let floor = raise.is_some().then_some(retired);
        BatchMark { mark: Some(Mark { ticket, floor }), raise }
    }

    /// The batches of the parallel log that are not in tables.
    pub fn held_records(&self) -> HeldRecords {
        self.in_flight.held_records()
    }

    /// Makes every acknowledged write durable, by a sync of the log.
    pub fn sync(&self) -> Result<(), LogError> {
        self.log.sync()
    }

    /// Called when a flush of RocksDB begins, after its memtables are closed and before any of its tables counts.
    pub fn flush_begins(&self) -> Result<(), LogError> {
        if breaks!(self.options, SyncAtFlush) {
            return Ok(());
        }
        self.log.sync()
    }

    /// Called when tables hold, durably, every change of a family up to the sequence `largest`.
    pub fn flushed(&self, family: Family, largest: Sequence) {
        if breaks!(self.options, OtherFamilies) {
            return self.all_flushed(largest);
        }
        log_retire_error(self.in_flight.retire(|ledger| ledger.flushed(family, largest)));
    }

    /// Called when tables hold, durably, every change of all families up to the sequence `largest`.
    pub fn all_flushed(&self, largest: Sequence) {
        log_retire_error(self.in_flight.retire(|ledger| ledger.all_flushed(largest)));
    }

    /// Makes every batch from now on carry a mark, so that none is ever applied twice, whatever its records:
    /// docs/adr/0013. The first call waits for all writes and for a flush.
    pub fn exactly_once(&self) -> Result<(), LogError> {
        if breaks!(self.options, Marks) || self.marks.is_on() {
            return Ok(());
        }
        let _exclusive = self.lock_exclusive();
        self.check_open()?;
        if self.marks.is_on() {
            return Ok(());
        }
        let floor = self.log.next_ticket();
        self.tables.set_floor(floor)?;
        // The flush makes the memtables and the floor durable together.
        self.tables.empty_memtables()?;
        self.marks.turn_on(floor);
        Ok(())
    }

    /// Whether every batch carries a mark.
    pub fn is_exact(&self) -> bool {
        self.marks.is_on()
    }

    fn lock_exclusive(&self) -> Exclusive<'_> {
        self.in_flight.exclusive(self.stripes.lock_stripes(&StripeSet::ALL))
    }

    /// Calls `run` while no batch is in flight.
    pub fn exclusive<R>(&self, run: impl FnOnce() -> R) -> R {
        let _exclusive = self.lock_exclusive();
        run()
    }

    /// Adds or changes a family, or with no `info` removes one that was dropped. Called within
    /// [`exclusive`](ParallelWal::exclusive).
    pub fn set_family(&self, family: Family, info: Option<FamilyInfo>) {
        match info {
            Some(info) => self.families.insert(family, info),
            None => {
                self.families.remove(family);
                // No table will ever hold records of the dropped family, so it counts as flushed.
                self.in_flight.update_ledger(|ledger| ledger.flushed(family, Sequence::LAST));
            }
        }
    }

    /// Flushes every memtable and removes the log: afterwards the database can be opened without the log. Writes fail
    /// from here on.
    ///
    /// # Errors
    /// The log stays, and the next opening with the log replays its records.
    pub fn close(&self) -> Result<(), LogError> {
        let _exclusive = self.lock_exclusive();
        if self.closed.swap(true, Ordering::AcqRel) {
            return self.close_failed.lock().clone().map_or(Ok(()), Err);
        }
        let emptied = self.empty_log();
        *self.close_failed.lock() = emptied.clone().err();
        emptied
    }

    /// Flushes every memtable, then seals the log and drops the marks.
    fn empty_log(&self) -> Result<(), LogError> {
        if let Some(error) = self.log.failure() {
            return Err(error);
        }
        self.tables.empty_memtables()?;
        self.in_flight.update_ledger(|ledger| ledger.all_flushed(Sequence::LAST));
        self.log.retire(self.log.next_ticket())?;
        // The log is removed after the hidden family of marks: an opening without the log finds the family and refuses.
        // A log that stays empty needs no marks.
        self.log.seal()?;
        self.tables.drop_marks()?;
        self.log.remove()
    }
}

fn log_retire_error(retired: Result<(), LogError>) {
    if let Err(error) = retired {
        tracing::warn!(%error, "retiring records of the parallel log failed; the log grows");
    }
}

fn is_log_full(appended: &Result<Ticket, LogError>) -> bool {
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
        f.debug_struct("ParallelWal").field("options", &self.options).field("marks", &self.marks).finish()
    }
}
