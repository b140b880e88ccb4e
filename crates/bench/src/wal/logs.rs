//! The ordered logs of a run: the current one, and its predecessor until it is closed and removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fs::{CreateOptions, FileKind, Fs, Result, Writer};
use parking_lot::Mutex;
use units::Bytes;
use units::sync::{Event, Turnstile};

use crate::counted::Counted;

/// A sequence of ordered logs, each replacing the one before.
#[derive(Debug)]
pub(super) struct Logs {
    fs: Fs,
    counted: Arc<Counted>,
    current: Mutex<Arc<Log>>,
    rolling: Turnstile,
    roll: Bytes,
    made: AtomicU64,
}

/// A log, and the number of its appends under way.
#[derive(Debug)]
struct Log {
    path: String,
    writer: Writer,
    /// Bytes that the drive had taken when the log was made.
    begun: u64,
    users: AtomicUsize,
    idle: Event,
}

/// A use of the current log, which stays open while the use lives.
struct LogUse(Arc<Log>);

impl Drop for LogUse {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify();
        }
    }
}

impl Logs {
    /// Makes the first log, with `record` durable in it. A log is replaced once it takes `roll` bytes of the drive, as
    /// `counted` counts them.
    pub(super) async fn open(fs: &Fs, counted: &Arc<Counted>, roll: Bytes, record: &[u8]) -> Result<Logs> {
        let first = create(fs, 0, 0).await?;
        first.writer.append(record).await?;
        first.writer.sync().await?;
        Ok(Logs {
            fs: fs.clone(),
            counted: Arc::clone(counted),
            current: Mutex::new(first),
            rolling: Turnstile::new(),
            roll,
            made: AtomicU64::new(1),
        })
    }

    /// Appends to the current log; makes `data` durable if `sync` is set.
    pub(super) async fn append(&self, data: &[u8], sync: bool) -> Result<()> {
        let log = self.use_current_log();
        log.0.writer.append(data).await?;
        if sync {
            log.0.writer.sync().await?;
        }
        let full = self.drive_bytes_taken(&log.0) >= self.roll;
        let before = Arc::clone(&log.0);
        drop(log);
        if full { self.replace_log(&before).await } else { Ok(()) }
    }

    /// Makes all data appended to the logs durable.
    pub(super) async fn sync(&self) -> Result<()> {
        self.use_current_log().0.writer.sync().await
    }

    /// Closes the current log.
    pub(super) async fn close(&self) -> Result<()> {
        self.use_current_log().0.writer.close().await
    }

    /// Number of logs made so far.
    pub(super) fn logs_made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Bytes of the drive that a log takes: those of its records or, if more, as entries end with padding, those that the
    /// drive has taken since the log was made. The latter may include the end of the previous log.
    fn drive_bytes_taken(&self, log: &Log) -> Bytes {
        log.writer.size().max(Bytes(self.counted.counts().bytes.saturating_sub(log.begun)))
    }

    fn use_current_log(&self) -> LogUse {
        let current = self.current.lock();
        // The use is counted under the lock: the task that replaces the log waits for its end.
        current.users.fetch_add(1, Ordering::AcqRel);
        LogUse(Arc::clone(&current))
    }

    /// Replaces the log `before`, unless another task has done so, and removes it.
    async fn replace_log(&self, before: &Arc<Log>) -> Result<()> {
        {
            let _turn = self.rolling.acquire().await;
            if !Arc::ptr_eq(&self.current.lock(), before) {
                return Ok(());
            }
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let next = create(&self.fs, number, self.counted.counts().bytes).await?;
            *self.current.lock() = next;
        }
        loop {
            let seen = before.idle.version();
            if before.users.load(Ordering::Acquire) == 0 {
                break;
            }
            before.idle.changed_since(seen).await;
        }
        before.writer.close().await?;
        self.fs.unlink(&before.path).await
    }
}

async fn create(fs: &Fs, number: u64, begun: u64) -> Result<Arc<Log>> {
    let path = format!("/{number:06}.log");
    let options = CreateOptions { kind: FileKind::Log, ..CreateOptions::default() };
    let writer = fs.create(&path, &options).await?;
    Ok(Arc::new(Log { path, writer, begun, users: AtomicUsize::new(0), idle: Event::new() }))
}
