//! Compactions in the background that turn deletes into free room on the drive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fs::Fs;
use parking_lot::Mutex;
use units::{Instant, Spawned, block_on, spawn};

use crate::error::{Error, Result};
use crate::parallel_wal::{Database, LOG_ZONES};

/// Number of tables that a compaction has as input, about.
pub(crate) const COMPACTION_TABLES: u64 = 12;

/// Size of level 1, counted in tables or in memtables, whichever are larger (`rocks` sets the size).
const LEVEL1_TABLES: u64 = 4;

/// A compaction to gain room waits until the deletes are one part in `COMPACT_SHARE` of the remaining keys.
const COMPACT_SHARE: u64 = 3;

/// Number of deletes that a FLUSHALL counts as: more than any drive has keys.
pub(crate) const DELETES_OF_A_CLEAR: u64 = 1 << 48;

/// Pause after the first failed attempt; it doubles with each further failure, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);

/// Decides when a task that needs room on the drive is tried again.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    failed: Option<FailedAttempt>,
}

/// The last attempt, which failed.
#[derive(Clone, Copy, Debug)]
struct FailedAttempt {
    /// Bytes that were free when the attempt began.
    free: u64,
    at: Instant,
    pause: Duration,
}

impl Retry {
    /// Whether an attempt with `free` bytes free is due: after a failure only if more bytes are free than at the failed
    /// attempt, or after a pause.
    fn is_due(&self, now: Instant, free: u64) -> bool {
        self.failed.is_none_or(|failed| free > failed.free || now >= failed.at.after(failed.pause))
    }

    /// Notes the end of an attempt that began with `free` bytes free.
    fn ended(&mut self, now: Instant, free: u64, well: bool) {
        let pause = self.failed.map_or(FIRST_PAUSE, |failed| (failed.pause * 2).min(LONGEST_PAUSE));
        self.failed = (!well).then_some(FailedAttempt { free, at: now, pause });
    }
}

/// The compactions of a database for room. One runs at a time.
#[derive(Debug)]
pub(crate) struct RoomCompaction {
    database: Arc<Database>,
    fs: Fs,
    /// Number of deletes since the last compaction to gain room.
    deletes: Arc<AtomicU64>,
    /// Value of `deletes` when the drive's room was last read.
    deletes_seen: AtomicU64,
    running: Arc<AtomicBool>,
    /// Decides when a compaction that failed for lack of room is tried again.
    retry: Arc<Mutex<Retry>>,
    task: Mutex<Option<Spawned<()>>>,
    /// Sizes of a memtable, of a table, and of a zone, in bytes.
    write_buffer: u64,
    table: u64,
    zone: u64,
}

impl RoomCompaction {
    /// No compaction yet. `write_buffer`, `table`: bytes of a memtable and of a table.
    pub fn new(
        database: &Arc<Database>,
        fs: &Fs,
        write_buffer: u64,
        table: u64,
        zone: u64,
    ) -> RoomCompaction {
        RoomCompaction {
            database: Arc::clone(database),
            fs: fs.clone(),
            deletes: Arc::default(),
            deletes_seen: AtomicU64::new(0),
            running: Arc::default(),
            retry: Arc::default(),
            task: Mutex::new(None),
            write_buffer,
            table,
            zone,
        }
    }

    /// Counts `deletes` deletes of keys.
    pub fn note_deletes(&self, deletes: u64) {
        self.deletes.fetch_add(deletes, Ordering::Relaxed);
    }

    /// Starts a compaction in the background, to turn deletes into room. The compaction writes live data anew and needs room for
    /// that, so it starts only once enough keys were deleted and the deletes pause.
    pub fn start_if_due(&self) {
        let deletes = self.deletes.load(Ordering::Relaxed);
        let paused = self.deletes_seen.swap(deletes, Ordering::Relaxed) == deletes;
        if deletes == 0 || !paused {
            return;
        }
        let keys = self.database.numeric_property("rocksdb.estimate-num-keys");
        let enough = deletes >= DELETES_OF_A_CLEAR || deletes >= keys / COMPACT_SHARE;
        // A compaction writes the live part of its input before the input is deleted, and the log needs its next zone
        // meanwhile: so take less input when less room is free. The smallest compaction of level 0 takes all of level 0
        // and of level 1.
        let free = self.fs.statfs().free.0.saturating_sub(LOG_ZONES / 2 * self.zone);
        let all = keys.saturating_add(deletes).max(1);
        let step = u64::try_from(u128::from(free) * u128::from(all) / u128::from(keys.max(1)));
        let step = step.unwrap_or(u64::MAX).min(self.table.saturating_mul(COMPACTION_TABLES));
        let level0 =
            self.database.numeric_property("rocksdb.num-files-at-level0").saturating_mul(self.write_buffer);
        let level1 = LEVEL1_TABLES * self.table.max(self.write_buffer);
        let least = if level0 == 0 { 2 * self.table } else { level0.saturating_add(level1) };
        let fits = step >= least;
        // Deletes do not fill a memtable, so that a parallel log would keep its zones without this flush.
        let held = self.database.held_records().is_some_and(|held| held.bytes > 0);
        if !enough || !(fits || held) {
            return;
        }
        let (database, counted) = (Arc::clone(&self.database), Arc::clone(&self.deletes));
        self.in_background(free, move || {
            if !fits {
                return database.flush();
            }
            counted.fetch_sub(deletes, Ordering::Relaxed);
            let done = database.db().compact_within(step).map_err(|e| Error::rocks("compacting", &e));
            if done.is_err() {
                counted.fetch_add(deletes, Ordering::Relaxed);
            }
            done
        });
    }

    /// Restores the default limit of compactions' input, if an earlier attempt to restore it failed for lack of room.
    pub fn restore_limit(&self) {
        if !self.database.db().is_bound() {
            return;
        }
        let database = Arc::clone(&self.database);
        self.in_background(self.fs.statfs().free.0, move || {
            database.db().unbound().map_err(|e| Error::rocks("setting back the bound of compactions", &e))
        });
    }

    /// Runs a task that frees room in the background, unless such a task runs already or failed a short time ago.
    /// `free`: bytes free now.
    fn in_background(&self, free: u64, work: impl FnOnce() -> Result<()> + Send + 'static) {
        if self.running.load(Ordering::Acquire)
            || !self.retry.lock().is_due(self.fs.driver().now(), free)
            || self.running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let (running, retry) = (Arc::clone(&self.running), Arc::clone(&self.retry));
        let driver = Arc::clone(self.fs.driver());
        let task = spawn(&**self.fs.driver(), "kv-compact", async move {
            let done = work();
            retry.lock().ended(driver.now(), free, done.is_ok());
            if let Err(error) = done {
                tracing::warn!(%error, "a background task for room failed");
            }
            running.store(false, Ordering::Release);
        });
        *self.task.lock() = Some(task);
    }

    /// Waits for the end of the background task, if one was started.
    pub fn wait(&self) {
        if let Some(task) = self.task.lock().take() {
            block_on(&**self.fs.driver(), task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_attempt_is_repeated_after_doubling_pauses_or_when_more_is_free() {
        let mut now = Instant::ORIGIN;
        let mut retry = Retry::default();
        assert!(retry.is_due(now, 100));
        for pause in [1, 2, 4, 8, 16, 32, 64, 64] {
            retry.ended(now, 100, false);
            let due = now.after(Duration::from_secs(pause));
            assert!(!retry.is_due(Instant(due.0 - 1), 100) && retry.is_due(due, 100), "{pause}");
            now = due;
        }
        retry.ended(now, 100, false);
        assert!(
            !retry.is_due(now, 100) && !retry.is_due(now, 90) && retry.is_due(now, 101),
            "there is more room"
        );
        retry.ended(now, 101, true);
        assert!(retry.is_due(now, 1));
        retry.ended(now, 100, false);
        assert!(retry.is_due(now.after(FIRST_PAUSE), 100), "a success begins anew");
    }
}
