//! Background jobs of an array, a rebuild and a scrub: progress, end, cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use units::sync::{Event, Turnstile};
use zoned::{Bytes, Driver, Instant, Result};

use crate::background::scrub_report::ScrubReport;
use crate::layout::Slot;

/// The progress of a rebuild or a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The slot that is rebuilt; `None` for a scrub.
    pub slot: Option<Slot>,
    /// Number of logical zones that the job has finished.
    pub zones_done: u32,
    /// Number of logical zones with content, finished by the job or not.
    pub zones: u32,
    /// Bytes that the job has processed: written to the new drive, or read by the scrub. Bytes of an
    /// interrupted run count.
    pub bytes: Bytes,
    /// Bytes that the job has to process in all, as far as known now.
    pub total: Bytes,
    /// The time since the job began, or was resumed after a restart.
    pub elapsed: Duration,
    /// The estimated time to the end of the job; `None` if unknown.
    pub eta: Option<Duration>,
}

impl Progress {
    /// The finished share of the job, from 0 to 1.
    pub fn finished_fraction(&self) -> f64 {
        if self.total.0 == 0 { 1.0 } else { (self.bytes.0 as f64 / self.total.0 as f64).min(1.0) }
    }
}

/// The state of a job.
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
    /// Bytes that an interrupted run of the job had processed.
    pub before: AtomicU64,
    cancelled: AtomicBool,
    new_drive_failed: AtomicBool,
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
            new_drive_failed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            over: Event::new(),
        })
    }

    /// True if the job is to end early.
    pub(crate) fn is_ended_early(&self) -> bool {
        self.is_cancelled() || self.is_stopped()
    }

    /// True if an operator cancelled the job.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Notes that an error of the new drive ended the rebuild.
    pub(crate) fn set_new_drive_failed(&self) {
        self.new_drive_failed.store(true, Ordering::Release);
    }

    /// True if an error of the new drive ended the rebuild.
    pub(crate) fn has_new_drive_failed(&self) -> bool {
        self.new_drive_failed.load(Ordering::Acquire)
    }

    /// True if the array was closed: the next mount resumes the job.
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

/// A handle of a job. The job runs on when the handle is dropped.
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
    fn new(job: Arc<Job>) -> Handle<T> {
        Handle { job, outcome: Arc::default() }
    }

    /// The progress.
    pub fn progress(&self) -> Progress {
        self.job.progress()
    }

    /// True if the job has ended.
    pub fn is_over(&self) -> bool {
        self.job.is_over()
    }

    /// Ends the job early, soon, with an error. A cancelled rebuild leaves the array without the new drive.
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
        // A caller of `wait` finds the job over.
        self.job.ended.store(self.job.driver.now().0.max(1), Ordering::Release);
        *self.outcome.lock() = Some(outcome);
        self.job.over.notify();
    }
}

/// The jobs of an array: at most one of each kind runs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub rebuild: Mutex<Option<Rebuild>>,
    pub scrub: Mutex<Option<Scrub>>,
    /// The move of a part that runs.
    pub moving: Mutex<Option<Arc<Job>>>,
    /// The lock of jobs that move parts, or need each part to keep its place: a rebuild, and a scrub for each zone.
    pub places: Turnstile,
    /// True if a task moves the parts of lost drives while the array is open.
    pub restores: AtomicBool,
    /// True while parts of lost drives move.
    pub restoring: AtomicBool,
    /// Held while lost parts move and drives are vacated: two runs side by side would undo each other's marks.
    pub restore_turn: Turnstile,
    /// True if a task frees physical zones while the array is open.
    reclaims: AtomicBool,
    /// True once the array is being closed: no job begins any more.
    closed: AtomicBool,
}

impl Jobs {
    /// Begins the move of a part, under the lock of the places. False if the array is being closed.
    pub(crate) fn begin_move(&self, job: &Arc<Job>) -> bool {
        let mut moving = self.moving.lock();
        let is_open = !self.closed.load(Ordering::Acquire);
        *moving = Some(Arc::clone(job)).filter(|_| is_open);
        is_open
    }

    /// Ends the move of a part.
    pub(crate) fn end_move(&self) {
        *self.moving.lock() = None;
    }

    /// Begins a rebuild. `None` if one runs already.
    pub(crate) fn begin_rebuild(&self, job: Arc<Job>) -> Option<Rebuild> {
        self.begin(&self.rebuild, job)
    }

    /// Begins a scrub. `None` if one runs already.
    pub(crate) fn begin_scrub(&self, job: Arc<Job>) -> Option<Scrub> {
        self.begin(&self.scrub, job)
    }

    fn begin<T: Clone>(&self, kind: &Mutex<Option<Handle<T>>>, job: Arc<Job>) -> Option<Handle<T>> {
        let mut last = kind.lock();
        if last.as_ref().is_some_and(|job| !job.is_over()) || self.closed.load(Ordering::Acquire) {
            return None;
        }
        let handle = Handle::new(job);
        *last = Some(handle.clone());
        Some(handle)
    }

    /// Stops all jobs of an array that is being closed.
    pub(crate) fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        let stop = |job: &Job| job.stopped.store(true, Ordering::Release);
        self.rebuild.lock().iter().for_each(|rebuild| stop(&rebuild.job));
        self.scrub.lock().iter().for_each(|scrub| stop(&scrub.job));
        self.moving.lock().iter().for_each(|job| stop(job));
    }

    /// Notes that a task frees physical zones while the array is open.
    pub(crate) fn set_reclaims(&self) {
        self.reclaims.store(true, Ordering::Release);
    }

    /// True while a task frees physical zones.
    pub(crate) fn reclaims(&self) -> bool {
        self.reclaims.load(Ordering::Acquire) && !self.is_closed()
    }

    /// True once the array is being closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The progress of a rebuild that runs.
    pub(crate) fn running_rebuild(&self) -> Option<Progress> {
        self.rebuild.lock().as_ref().filter(|job| !job.is_over()).map(Handle::progress)
    }

    /// True if a rebuild of the drive in `slot` runs.
    pub(crate) fn is_rebuilding(&self, slot: Slot) -> bool {
        self.running_rebuild().is_some_and(|rebuild| rebuild.slot == Some(slot))
    }

    /// The progress of a scrub that runs.
    pub(crate) fn scrubbing(&self) -> Option<Progress> {
        self.scrub.lock().as_ref().filter(|job| !job.is_over()).map(Handle::progress)
    }
}
