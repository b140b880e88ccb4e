//! The protocol: docs/adr/0013.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use units::sync::Event;

use super::batch::{Family, Kind, parse};
use super::error::{LogError, LogErrorKind, WriteError};
use super::ledger::{Entered, Ledger};
use super::log::{Ticket, TicketLog};
use super::stripes::{Held, StripeSet, Stripes};
use super::tables::{Mark, Sequence, Tables};

/// What a record takes besides its bytes: the entry's header, the number of records and the length.
const RECORD_HEAD: u64 = 64 + 4 + 4;

/// The floor is written again when it can go up by so many tickets.
const FLOOR_STEP: u64 = 1024;

/// How the engine works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaltzOptions {
    /// Bytes of batches in the log, counted in whole blocks, from which on a flush is asked for. Default: 1 GiB.
    pub log_limit: u64,
    /// What a record takes at least, and is rounded up to. Default: 4096.
    pub log_block: u64,
    /// A step of the protocol left out, for tests that must notice. Default: nothing.
    #[doc(hidden)]
    pub without: Without,
}

/// The steps that a test can leave out.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Without {
    /// Nothing is left out.
    #[default]
    Nothing,
    /// Writes of one key go beside each other.
    Stripes,
    /// A batch that the tables refused stays in the log.
    Void,
    /// A flush begins with the log unsynced.
    SyncAtFlush,
    /// Merges are repeated like puts.
    Marks,
    /// Only batches that need it have a mark.
    MarksOfOthers,
}

impl Default for WaltzOptions {
    fn default() -> WaltzOptions {
        WaltzOptions { log_limit: 1 << 30, log_block: 4096, without: Without::Nothing }
    }
}

/// How a batch is to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// Durable on return.
    pub synced: bool,
    /// Through the log. Without it the batch may be lost until it is flushed.
    pub logged: bool,
    /// Records of families that do not exist are left out, and are no error.
    pub ignore_missing: bool,
}

impl How {
    /// Logged and durable on return.
    pub const SYNCED: How = How { synced: true, logged: true, ignore_missing: false };
    /// Logged, durable later.
    pub const UNSYNCED: How = How { synced: false, logged: true, ignore_missing: false };
}

/// What came of applying a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The sequence of the batch's last record, the mark not counted.
    pub last: Sequence,
}

/// What the log holds that is not in tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeldRecords {
    /// Records.
    pub records: u64,
    /// Bytes, in whole blocks.
    pub bytes: u64,
    /// How often a flush was asked for because these were too many.
    pub flushes_asked: u64,
}

/// What the engine must know of a column family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyInfo {
    /// It has a merge operator.
    pub merges: bool,
    /// Its comparator may call different bytes equal: all its keys share one stripe.
    pub one_stripe: bool,
}

/// What a batch needs, read before anything is held.
#[derive(Default)]
struct Plan {
    stripes: StripeSet,
    families: Vec<Family>,
    merged: Vec<Family>,
    records: usize,
    exact: bool,
}

/// The engine over a log and tables. All methods may be called from any thread.
///
/// Acknowledged means: applied, in the log, and with [`How::SYNCED`] safe from a power cut. Batches that share a key go
/// through log and tables in one order.
pub struct Waltz {
    log: Arc<dyn TicketLog>,
    tables: Arc<dyn Tables>,
    options: WaltzOptions,
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

impl Waltz {
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
        options: WaltzOptions,
    ) -> Result<Waltz, LogError> {
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
        tables.flush()?;
        log.retire(next)?;
        Ok(Waltz {
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
                let full = entering.applied(ticket, applied, batch.len());
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

    /// [`write`](Waltz::write) for an owner who sees to it that no two batches on their way share a key, and who writes through
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
                let full = entering.applied(ticket, applied, batch.len());
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
        Alone { waltz: self, _held: held }
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

    /// To be called when a flush of all families has put everything up to `largest` into tables, durably.
    pub fn flushed(&self, largest: Sequence) {
        let retired = {
            let mut ledger = self.ledger.lock();
            ledger.flushed(largest);
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
        self.tables.flush()?;
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

    /// Notes a family that there is from now on, or no longer. To be called within [`exclusive`](Waltz::exclusive).
    pub fn set_family(&self, family: Family, info: Option<FamilyInfo>) {
        let mut families = self.families.write();
        match info {
            Some(info) => {
                families.insert(family, info);
            }
            None => {
                families.remove(&family);
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
        self.tables.flush()?;
        self.ledger.lock().all_flushed();
        self.log.retire(self.log.next_ticket())?;
        // The log is there until the hidden family is gone: whoever opens the database without it is told so, and a log that
        // is empty for good needs no marks.
        self.log.seal()?;
        self.tables.drop_marks()?;
        self.log.remove()
    }

    /// `stripes`: those too; an owner who orders writes has no use for them.
    fn plan(&self, batch: &[u8], stripes: bool) -> Result<Plan, super::BatchError> {
        let mut plan = Plan::default();
        let families = self.families.read();
        for record in parse(batch)? {
            let record = record?;
            if record.kind == Kind::LogData {
                continue;
            }
            plan.records += 1;
            if !plan.families.contains(&record.family) {
                plan.families.push(record.family);
            }
            match record.kind {
                Kind::DeleteRange => plan.stripes = StripeSet::ALL,
                Kind::Merge | Kind::SingleDelete => plan.exact = true,
                Kind::Put | Kind::Delete | Kind::LogData => {}
            }
            if record.kind == Kind::Merge && !plan.merged.contains(&record.family) {
                plan.merged.push(record.family);
            }
            if !stripes {
                continue;
            }
            let one = families.get(&record.family).is_some_and(|info| info.one_stripe);
            self.stripes.add(&mut plan.stripes, record.family, (!one).then_some(record.key));
        }
        Ok(plan)
    }

    fn hold(&self, stripes: &StripeSet) -> Held<'_> {
        if self.options.without == Without::Stripes {
            return self.stripes.hold(&StripeSet::default());
        }
        self.stripes.hold(stripes)
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

    /// With the stripes held, so that it stays true.
    fn check<E>(&self, plan: &Plan, how: How) -> Result<(), WriteError<E>> {
        self.check_open()?;
        self.tables.check_writable()?;
        let families = self.families.read();
        let missing = plan.families.iter().find(|family| !families.contains_key(family));
        if let Some(Family(id)) = missing.filter(|_| !how.ignore_missing) {
            return Err(WriteError::Invalid(format!(
                "the write batch names column family {id}, which does not exist (any more)"
            )));
        }
        let merges = |family| families.get(family).is_none_or(|info: &FamilyInfo| info.merges);
        if let Some(Family(id)) = plan.merged.iter().find(|family| !merges(family)) {
            return Err(WriteError::Invalid(format!(
                "the write batch merges in column family {id}, which has no merge operator"
            )));
        }
        Ok(())
    }

    /// The mark of a batch that the log has. The floor is raised when the batch is applied.
    fn mark(&self, ticket: Ticket, plan: &Plan) -> (Option<Mark>, Option<Raise<'_>>) {
        if !self.exact.load(Ordering::Acquire)
            || (self.options.without == Without::MarksOfOthers && !plan.exact)
        {
            return (None, None);
        }
        let raise = Raise::begin(self);
        (Some(Mark { ticket, floor: raise.as_ref().map(|raise| raise.to) }), raise)
    }

    async fn void_soon(&self, ticket: Ticket) -> Result<(), LogError> {
        if self.options.without == Without::Void {
            return Ok(());
        }
        self.log.void_soon(ticket).await
    }

    fn void(&self, ticket: Ticket) -> Result<(), LogError> {
        if self.options.without == Without::Void {
            return Ok(());
        }
        self.log.void(ticket)
    }
}

/// A floor that a batch carries; until it is applied, or was not, no other batch carries one.
struct Raise<'a> {
    waltz: &'a Waltz,
    to: Ticket,
}

impl<'a> Raise<'a> {
    /// A new floor, if it is time for one.
    fn begin(waltz: &'a Waltz) -> Option<Raise<'a>> {
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
    fn end(raise: Option<Raise<'_>>, applied: bool) {
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
struct Entering<'a> {
    waltz: &'a Waltz,
    entered: Option<Entered>,
}

impl<'a> Entering<'a> {
    fn new(waltz: &'a Waltz) -> Entering<'a> {
        let entered = waltz.ledger.lock().enter(waltz.log.next_ticket());
        Entering { waltz, entered: Some(entered) }
    }

    /// The same without stripes; none while somebody is alone.
    fn ordered(waltz: &'a Waltz) -> Option<Entering<'a>> {
        let mut ledger = waltz.ledger.lock();
        if ledger.is_shut() {
            return None;
        }
        let entered = ledger.enter(waltz.log.next_ticket());
        Some(Entering { waltz, entered: Some(entered) })
    }

    /// Its batch was applied. Whether a flush is to be asked for.
    fn applied(mut self, ticket: Ticket, applied: Applied, len: usize) -> bool {
        let options = &self.waltz.options;
        let bytes = (len as u64 + RECORD_HEAD).next_multiple_of(options.log_block.max(1));
        let mut ledger = self.waltz.ledger.lock();
        if let Some(entered) = self.entered.take() {
            ledger.applied(ticket, applied.last, bytes);
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
struct Alone<'a> {
    waltz: &'a Waltz,
    _held: Held<'a>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.waltz.ledger.lock().reopen();
        self.waltz.reopened.notify();
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

impl fmt::Debug for Waltz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waltz").field("options", &self.options).field("exact", &self.exact).finish()
    }
}
