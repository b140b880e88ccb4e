//! What runs beside the clients, a rebuild or a scrub: its progress, its end, and how to end it early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::Event;
use zoned::{Bytes, Driver, Instant, Result};

use crate::background::scrub::ScrubReport;
use crate::layout::Slot;

/// How far a rebuild or a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The slot that is rebuilt; `None` for a scrub.
    pub slot: Option<Slot>,
    /// Logical zones that are done.
    pub zones_done: u32,
    /// Logical zones in all that hold something.
    pub zones: u32,
    /// Bytes that are done: written to the new drive, or read by the scrub. What was done before a restart counts.
    pub bytes: Bytes,
    /// Bytes in all, as far as is known now.
    pub total: Bytes,
    /// Since it began, or went on after a restart.
    pub elapsed: Duration,
    /// Until its end, at the speed so far; `None` where nothing is known of it yet.
    pub eta: Option<Duration>,
}

impl Progress {
    /// From 0 to 1.
    pub fn fraction(&self) -> f64 {
        if self.total.0 == 0 { 1.0 } else { (self.bytes.0 as f64 / self.total.0 as f64).min(1.0) }
    }
}

/// A job's account of itself.
#[derive(Debug)]
pub(crate) struct Job {
    pub slot: Option<Slot>,
    driver: Arc<dyn Driver>,
    started: Instant,
    ended: AtomicU64,
    pub zones_done: AtomicU32,
    pub zones: AtomicU32,
    pub bytes: AtomicU64,
    pub total: AtomicU64,
    /// Of `bytes`, what was done before this run.
    pub before: AtomicU64,
    cancelled: AtomicBool,
    stopped: AtomicBool,
    over: Event,
}

impl Job {
    pub(crate) fn new(slot: Option<Slot>, driver: &Arc<dyn Driver>) -> Arc<Job> {
        Arc::new(Job {
            slot,
            driver: Arc::clone(driver),
            started: driver.now(),
            ended: AtomicU64::new(0),
            zones_done: AtomicU32::new(0),
            zones: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            total: AtomicU64::new(0),
            before: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            over: Event::new(),
        })
    }

    /// Whether it is to end before it is done.
    pub(crate) fn is_ended_early(&self) -> bool {
        self.cancelled.load(Ordering::Acquire) || self.is_stopped()
    }

    /// Whether nobody uses the array any more: what is not done is done when it is opened again.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire) > 0
    }

    fn progress(&self) -> Progress {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let now = match self.ended.load(Ordering::Acquire) {
            0 => self.driver.now(),
            at => Instant(at),
        };
        let elapsed = now.since(self.started);
        let (bytes, before) = (read(&self.bytes), read(&self.before));
        let total = read(&self.total).max(bytes);
        let done = bytes.saturating_sub(before);
        let eta = (done > 0).then(|| elapsed.mul_f64((total - bytes) as f64 / done as f64));
        Progress {
            slot: self.slot,
            zones_done: self.zones_done.load(Ordering::Relaxed),
            zones: self.zones.load(Ordering::Relaxed),
            bytes: Bytes(bytes),
            total: Bytes(total),
            elapsed,
            eta,
        }
    }
}

/// A job that was started. Dropping it lets the job run on.
#[derive(Debug)]
pub struct Handle<T> {
    pub(crate) job: Arc<Job>,
    outcome: Arc<Mutex<Option<Result<T>>>>,
}

/// A rebuild.
pub type Rebuild = Handle<()>;
/// A scrub.
pub type Scrub = Handle<ScrubReport>;

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        Handle { job: Arc::clone(&self.job), outcome: Arc::clone(&self.outcome) }
    }
}

impl<T: Clone> Handle<T> {
    pub(crate) fn new(job: Arc<Job>) -> Handle<T> {
        Handle { job, outcome: Arc::default() }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.job.progress()
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.job.is_over()
    }

    /// Ends it early, soon: its end is an error then. A rebuild leaves the array without the drive.
    pub fn cancel(&self) {
        self.job.cancelled.store(true, Ordering::Release);
    }

    /// Waits for the end.
    pub async fn wait(&self) -> Result<T> {
        loop {
            let seen = self.job.over.version();
            if let Some(outcome) = &*self.outcome.lock() {
                return match outcome {
                    Ok(value) => Ok(value.clone()),
                    Err(e) => Err(e.duplicate()),
                };
            }
            self.job.over.changed_since(seen).await;
        }
    }

    pub(crate) fn end(&self, outcome: Result<T>) {
        *self.outcome.lock() = Some(outcome);
        self.job.ended.store(self.job.driver.now().0.max(1), Ordering::Release);
        self.job.over.notify();
    }
}

/// The jobs of an array: one of each kind at a time.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub rebuild: Mutex<Option<Rebuild>>,
    pub scrub: Mutex<Option<Scrub>>,
}

impl Jobs {
    /// Nobody uses the array any more.
    pub(crate) fn stop(&self) {
        let jobs = (self.rebuild.lock().as_ref().map(|rebuild| Arc::clone(&rebuild.job)), {
            self.scrub.lock().as_ref().map(|scrub| Arc::clone(&scrub.job))
        });
        for job in [jobs.0, jobs.1].into_iter().flatten() {
            job.stopped.store(true, Ordering::Release);
        }
    }

    /// How far a rebuild that runs is.
    pub(crate) fn rebuilding(&self) -> Option<Progress> {
        self.rebuild.lock().as_ref().filter(|job| !job.is_over()).map(Handle::progress)
    }

    /// How far a scrub that runs is.
    pub(crate) fn scrubbing(&self) -> Option<Progress> {
        self.scrub.lock().as_ref().filter(|job| !job.is_over()).map(Handle::progress)
    }
}
