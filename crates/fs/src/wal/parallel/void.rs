//! Requests for void entries: they name tickets whose records must not be replayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use units::sync::Event;

use crate::error::{Error, ErrorKind, Result};

/// A request for a void entry: the tickets that it names.
#[derive(Clone, Debug)]
pub(super) struct VoidJob {
    pub(super) first: u64,
    pub(super) count: u64,
    /// True if the tickets are open: they are completed once the void entry is written.
    pub(super) open: bool,
    /// True if there was no room for the void entry. The requester has got the error.
    pub(super) postponed: bool,
    reply: Arc<VoidReply>,
}

impl VoidJob {
    fn never_written(&self) -> Error {
        let why = format!(
            "the log was closed before the void entry of ticket {} was written: its record may be replayed",
            self.first
        );
        Error::new(ErrorKind::Closed, "voiding a record").because(why)
    }
}

/// The outcome of a request for a void entry.
#[derive(Debug, Default)]
pub(super) struct VoidReply {
    result: Mutex<Option<Result<()>>>,
    changed: Event,
}

impl VoidReply {
    /// Only the first result of a request counts.
    fn set(&self, result: Result<()>) {
        self.result.lock().get_or_insert(result);
        self.changed.notify();
    }

    pub(super) async fn wait(&self) -> Result<()> {
        loop {
            let seen = self.changed.version();
            if let Some(result) = self.result.lock().clone() {
                return result;
            }
            self.changed.changed_since(seen).await;
        }
    }
}

/// Requests for void entries that maintenance has not carried out.
#[derive(Debug)]
pub(super) struct VoidQueue {
    jobs: Mutex<VoidJobs>,
    /// True if a request is postponed: its void entry must be written before anything else.
    postponed: AtomicBool,
    /// Wakes maintenance.
    work: Event,
}

#[derive(Debug, Default)]
struct VoidJobs {
    waiting: Vec<VoidJob>,
    end: Option<End>,
}

/// Why no request for a void entry is carried out any more.
#[derive(Debug)]
enum End {
    Poisoned(Error),
    Stopped,
}

impl VoidQueue {
    pub(super) fn new(work: Event) -> VoidQueue {
        VoidQueue { jobs: Mutex::default(), postponed: AtomicBool::new(false), work }
    }

    /// Requests a void entry for `count` tickets from `first` on. `open`: writing the entry completes the
    /// tickets.
    pub(super) fn request(&self, first: u64, count: u64, open: bool) -> Arc<VoidReply> {
        let reply: Arc<VoidReply> = Arc::default();
        let job = VoidJob { first, count, open, postponed: false, reply: Arc::clone(&reply) };
        let mut jobs = self.jobs.lock();
        match &jobs.end {
            Some(End::Poisoned(error)) => reply.set(Err(error.clone())),
            Some(End::Stopped) => reply.set(Err(job.never_written())),
            None => jobs.waiting.push(job),
        }
        drop(jobs);
        self.work.notify();
        reply
    }

    /// The newest request for a void entry. It stays in the queue until [`finish`](VoidQueue::finish), so
    /// that a failure answers it.
    pub(super) fn newest(&self) -> Option<VoidJob> {
        self.jobs.lock().waiting.last().cloned()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.lock().waiting.is_empty()
    }

    /// Removes a request for a void entry and answers it.
    pub(super) fn finish(&self, job: &VoidJob, result: Result<()>) {
        {
            let mut jobs = self.jobs.lock();
            jobs.waiting.retain(|other| !Arc::ptr_eq(&other.reply, &job.reply));
            if !jobs.waiting.iter().any(|job| job.postponed) {
                self.postponed.store(false, Ordering::Release);
            }
        }
        job.reply.set(result);
    }

    /// Postpones the void entries, because there is no room for them: the requesters get `error`, and the
    /// entries are written as soon as there is room.
    pub(super) fn postpone(&self, error: &Error) {
        for job in &mut self.jobs.lock().waiting {
            // `postponed` is set before the requester gets its answer: what the requester appends next is
            // written after the void entry.
            self.postponed.store(true, Ordering::Release);
            job.postponed = true;
            job.reply.set(Err(error.clone()));
        }
    }

    /// True if a postponed void entry must be written before anything else.
    pub(super) fn has_postponed(&self) -> bool {
        self.postponed.load(Ordering::Acquire)
    }

    /// Answers all requests for void entries with `error`, now and later: the log is poisoned.
    pub(super) fn fail(&self, error: &Error) {
        let mut jobs = self.jobs.lock();
        jobs.end.get_or_insert_with(|| End::Poisoned(error.clone()));
        for job in jobs.waiting.drain(..) {
            job.reply.set(Err(error.clone()));
        }
    }

    /// Answers all requests for void entries, now and later, with `Closed`: maintenance has ended.
    pub(super) fn stop(&self) {
        let mut jobs = self.jobs.lock();
        jobs.end.get_or_insert(End::Stopped);
        for job in jobs.waiting.drain(..) {
            job.reply.set(Err(job.never_written()));
        }
    }
}
