//! [`Tables`] on a RocksDB database.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rocks::{AppliedMark, Db, FlushEvents};
use units::sync::Turnstile;
use units::{Driver, Instant, Spawned, block_on, sleep_until, spawn};

use super::batch::Family;
use super::error::{LogError, LogErrorKind};
use super::options::Applied;
use super::protocol::ParallelWal;
use super::tables::{FlushOver, Mark, Sequence, Tables};
use super::write_pace::{Memtables, WritePace};
use fs::Ticket;

/// The tables of a database that was opened [`unlogged`](rocks::DbOptions::unlogged).
pub struct RocksTables {
    db: Arc<Db>,
    driver: Arc<dyn Driver>,
    flush: Mutex<BackgroundFlush>,
    stalled: StalledBatches,
    /// `None` if it is not known how large memtables may become.
    pace: Option<Arc<Mutex<WritePace>>>,
    /// Number of batches that waited for room in memtables.
    slowed: AtomicU64,
}

/// The background flush of the tables.
#[derive(Default)]
struct BackgroundFlush {
    /// The task of the last background flush.
    task: Option<Spawned<()>>,
    /// Whether the database is being closed, so that no more background flushes begin.
    ended: bool,
}

/// The batches that wait for the end of a write stall. One of them waits in RocksDB, and the others wait for their
/// turn.
#[derive(Default)]
struct StalledBatches {
    turn: Turnstile,
    waiting: AtomicUsize,
}

/// Number of batches that may wait for the end of a write stall with their records in the log. Further batches are not
/// appended.
const STALLED_BATCHES_MAX: usize = 256;

impl RocksTables {
    /// The tables of `db`; background flushes run on `driver`. `memtables`: how large memtables may become, if known.
    pub fn new(db: Arc<Db>, driver: Arc<dyn Driver>, memtables: Option<Memtables>) -> RocksTables {
        let pace = memtables.map(|memtables| Arc::new(Mutex::new(WritePace::new(memtables))));
        RocksTables {
            db,
            driver,
            flush: Mutex::default(),
            stalled: StalledBatches::default(),
            pace,
            slowed: AtomicU64::new(0),
        }
    }

    /// Applies a batch that the log has.
    pub fn apply(&self, batch: &[u8], mark: Option<Mark>) -> rocks::Result<Applied> {
        self.db.apply(batch, false, mark.map(applied_mark)).map(|last| Applied { last: Sequence(last) })
    }

    /// Like [`apply`](RocksTables::apply), but without blocking the thread, which has other batches to apply: the flush
    /// that ends a write stall may wait for one of them. A separate thread waits for the end of the stall. If the
    /// future is dropped, the batch is applied or not.
    pub async fn apply_soon(
        self: &Arc<RocksTables>,
        batch: &[u8],
        mark: Option<Mark>,
    ) -> rocks::Result<Applied> {
        if let Some(applied) = self.try_apply(batch, mark)? {
            return Ok(applied);
        }
        let _waiting = StalledBatch::new(&self.stalled.waiting);
        let _turn = self.stalled.turn.acquire().await;
        if let Some(applied) = self.try_apply(batch, mark)? {
            return Ok(applied);
        }
        let (tables, batch) = (Arc::clone(self), batch.to_vec());
        spawn(&*self.driver, "kv-stalled", async move { tables.apply(&batch, mark) }).await
    }

    fn try_apply(&self, batch: &[u8], mark: Option<Mark>) -> rocks::Result<Option<Applied>> {
        // An attempt that fails would use up RocksDB's rate of delayed writes, which the waiting thread needs.
        if self.db.is_stalled() {
            return Ok(None);
        }
        let last = self.db.try_apply(batch, mark.map(applied_mark))?;
        Ok(last.map(|last| Applied { last: Sequence(last) }))
    }

    /// Blocks for as long as a batch of `bytes` is to wait so that RocksDB need not stop writers.
    pub fn wait_for_room(&self, bytes: usize) {
        if let Some(due) = self.has_room_at(bytes) {
            block_on(&*self.driver, sleep_until(&*self.driver, due));
        }
    }

    /// When a batch of `bytes` may be written; `None`: now.
    fn has_room_at(&self, bytes: usize) -> Option<Instant> {
        let pace = self.pace.as_ref()?;
        let asks = {
            let pace = pace.lock();
            if !pace.is_flushing() {
                return None;
            }
            pace.asks_for_memtables()
        };
        // RocksDB is asked without the lock, since its flushes take the lock too.
        let memtables = asks.then(|| memtable_bytes(&self.db));
        let now = self.driver.now();
        let due = {
            let mut pace = pace.lock();
            if let Some(bytes) = memtables {
                pace.memtables_are(bytes);
            }
            pace.admit(now, bytes as u64)
        };
        if due <= now {
            return None;
        }
        self.slowed.fetch_add(1, Ordering::Relaxed);
        Some(due)
    }

    /// Number of batches that waited, so that RocksDB need not stop writers.
    pub fn slowed(&self) -> u64 {
        self.slowed.load(Ordering::Relaxed)
    }

    /// Waits for as long as a batch of `bytes` is to wait so that RocksDB need not stop writers, and while too many
    /// batches wait for a write stall to end.
    pub async fn ready(&self, bytes: usize) {
        if let Some(due) = self.has_room_at(bytes) {
            sleep_until(&*self.driver, due).await;
        }
        while self.stalled.waiting.load(Ordering::Acquire) >= STALLED_BATCHES_MAX {
            drop(self.stalled.turn.acquire().await);
        }
    }

    /// Reports the database's flushes to `parallel_wal` from now on.
    pub fn report_flushes_to(&self, parallel_wal: &Arc<ParallelWal>) {
        self.db.set_flush_events(Arc::new(FlushReports {
            parallel_wal: Arc::downgrade(parallel_wal),
            pace: self.pace.clone(),
            driver: Arc::clone(&self.driver),
        }));
    }

    /// Waits for the end of the background flush; no further one begins.
    pub fn wait_for_flush(&self) {
        let flush = {
            let mut flush = self.flush.lock();
            flush.ended = true;
            flush.task.take()
        };
        if let Some(flush) = flush {
            block_on(&*self.driver, flush);
        }
    }
}

/// Counts a batch that waits for the end of a write stall.
struct StalledBatch<'a>(&'a AtomicUsize);

impl<'a> StalledBatch<'a> {
    fn new(count: &'a AtomicUsize) -> StalledBatch<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        StalledBatch(count)
    }
}

impl Drop for StalledBatch<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for RocksTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tables of {:?}", self.db)
    }
}

fn applied_mark(mark: Mark) -> AppliedMark {
    AppliedMark { ticket: mark.ticket.0, floor: mark.floor.map(|floor| floor.0) }
}

fn to_log_error(error: &rocks::Error) -> LogError {
    let kind = match error.kind() {
        rocks::ErrorKind::NoSpace => LogErrorKind::NoSpace,
        rocks::ErrorKind::Busy => LogErrorKind::Busy,
        rocks::ErrorKind::Corrupt => LogErrorKind::Corrupt,
        _ => LogErrorKind::Failed,
    };
    LogError::new(kind, error.to_string())
}

impl Tables for RocksTables {
    fn replay(&self, batch: &[u8], mark: Option<Mark>) -> Result<(), LogError> {
        self.db.apply(batch, true, mark.map(applied_mark)).map(|_| ()).map_err(|e| to_log_error(&e))
    }

    fn check_writable(&self) -> Result<(), LogError> {
        self.db.check_writable().map_err(|e| to_log_error(&e))
    }

    fn was_refused(&self) {
        self.db.was_refused();
    }

    fn flush(&self) -> Result<(), LogError> {
        self.db.flush_all().map_err(|e| to_log_error(&e))
    }

    fn empty_memtables(&self) -> Result<(), LogError> {
        self.db.empty_memtables().map_err(|e| to_log_error(&e))
    }

    fn flush_soon(&self, over: FlushOver) {
        let mut flush = self.flush.lock();
        if flush.ended {
            return over();
        }
        let db = Arc::clone(&self.db);
        let task = spawn(&*self.driver, "kv-flush", async move {
            if let Err(error) = db.flush_all() {
                tracing::warn!(%error, "a flush to make room in the parallel log failed");
            }
            over();
        });
        // The previous flush has called its `over`, so its task has ended or is about to.
        flush.task = Some(task);
    }

    fn floor(&self) -> Result<Option<Ticket>, LogError> {
        Ok(self.db.marks_floor().map_err(|e| to_log_error(&e))?.map(Ticket))
    }

    fn is_marked(&self, ticket: Ticket) -> Result<bool, LogError> {
        self.db.is_marked(ticket.0).map_err(|e| to_log_error(&e))
    }

    fn set_floor(&self, floor: Ticket) -> Result<(), LogError> {
        self.db.set_marks_floor(floor.0).map_err(|e| to_log_error(&e))
    }

    fn drop_marks(&self) -> Result<(), LogError> {
        self.db.drop_marks().map_err(|e| to_log_error(&e))
    }
}

/// Bytes of all memtables that are not in tables yet.
fn memtable_bytes(db: &Db) -> u64 {
    db.property("rocksdb.cur-size-all-mem-tables").and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// Reports RocksDB's flush events to the parallel WAL, and to the writers' pace.
struct FlushReports {
    parallel_wal: Weak<ParallelWal>,
    pace: Option<Arc<Mutex<WritePace>>>,
    driver: Arc<dyn Driver>,
}

impl FlushEvents for FlushReports {
    fn begins(&self) {
        if let Some(pace) = &self.pace {
            pace.lock().flush_begins(self.driver.now());
        }
        if let Some(parallel_wal) = self.parallel_wal.upgrade()
            && let Err(error) = parallel_wal.flush_begins()
        {
            // The tables need a flush of the same drive: either it fails too, or it makes the log's records durable.
            tracing::error!(%error, "syncing the parallel log before a flush failed");
        }
    }

    fn family_flushed(&self, family: Option<u32>, largest: u64) {
        if let Some(pace) = self.pace.as_ref().filter(|_| family == Some(Family::DEFAULT.0)) {
            pace.lock().flush_ends(self.driver.now());
        }
        if let Some(parallel_wal) = self.parallel_wal.upgrade() {
            parallel_wal.flushed(family.map_or(Family::MARKS, Family), Sequence(largest));
        }
    }
}
