//! The writing of a data file: what outlives the writer, since bytes in memory are written behind its back, and after its end.

use std::sync::Arc;

use parking_lot::Mutex;
use units::sync::{Turn, Turnstile};
use zoned::{IoClass, ZonedDevice};

use crate::error::{Error, ErrorKind, Result};
use crate::options::Lifetime;
use crate::zones::job_class::JobClass;

/// How much of a file to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteOut {
    /// The full buffers.
    Buffers,
    /// All bytes appended before the call.
    Everything,
}

/// The writing of one data file.
#[derive(Debug, Default)]
pub(crate) struct FileWrites {
    /// Held while pages are written, while the file is truncated, and while a writer begins or ends: a file has one of these at a time.
    pub turn: Turnstile,
    pub status: Mutex<WriteStatus>,
    waiters: Mutex<Waiters>,
}

/// The callers that wait for the turn of a file's writes, and the job that has it.
#[derive(Debug, Default)]
struct Waiters {
    classes: Vec<IoClass>,
    job: Option<Arc<JobClass>>,
}

/// A caller that waits for the turn of a file's writes, until this is dropped.
struct Waiter<'a> {
    writes: &'a FileWrites,
    class: IoClass,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let classes = &mut self.writes.waiters.lock().classes;
        if let Some(at) = classes.iter().position(|class| *class == self.class) {
            classes.swap_remove(at);
        }
    }
}

/// The state of the writing of one data file.
#[derive(Debug, Default)]
pub(crate) struct WriteStatus {
    /// The expected lifetime of the bytes appended from now on.
    pub lifetime: Lifetime,
    /// The class of writes that nobody waits for, and of those that a writer with this class waits for; `None`: the writer has none.
    pub class: Option<IoClass>,
    /// The expected size of the file in bytes; 0: not known.
    pub expected: u64,
    /// Number of blocks of file data written, and of padding blocks behind them.
    pub blocks: (u64, u64),
    pub failure: Option<WriteFailure>,
}

/// Bytes of a file were accepted and cannot be written: the file ends before the first one of them.
#[derive(Clone, Debug)]
pub(crate) struct WriteFailure {
    pub error: Error,
    /// True once a caller has heard of the failure.
    pub is_told: bool,
}

impl FileWrites {
    /// `lifetime`: of the file's bytes.
    pub(crate) fn new(lifetime: Lifetime) -> FileWrites {
        let status = WriteStatus { lifetime, ..WriteStatus::default() };
        FileWrites { status: Mutex::new(status), ..FileWrites::default() }
    }

    /// Waits for the turn as a caller of `class`. The writes before the caller's turn get that class, if it is higher.
    pub(crate) async fn acquire_as(&self, class: IoClass, device: &dyn ZonedDevice) -> Turn<'_> {
        if let Some(turn) = self.turn.try_acquire() {
            return turn;
        }
        self.waiters.lock().classes.push(class);
        let _waiter = Waiter { writes: self, class };
        self.raise(class, device);
        self.turn.acquire().await
    }

    /// Gives the job that writes the file the class of a caller who waits for it, if that is higher.
    pub(crate) fn raise(&self, class: IoClass, device: &dyn ZonedDevice) {
        let job = self.waiters.lock().job.clone();
        if let Some(job) = job {
            job.raise(device, class);
        }
    }

    /// Begins a job that writes, for the caller who holds the turn: in `class`, or in that of a caller who waits for the turn, if it is higher.
    pub(crate) fn begin_job(&self, class: IoClass) -> Arc<JobClass> {
        let mut waiters = self.waiters.lock();
        let class = waiters.classes.iter().copied().min().map_or(class, |waiter| waiter.min(class));
        let job = Arc::new(JobClass::new(class));
        waiters.job = Some(Arc::clone(&job));
        job
    }

    /// Fails after a failed write, until a writer opens the file again.
    pub(crate) fn check(&self) -> Result<()> {
        match &mut self.status.lock().failure {
            None => Ok(()),
            Some(failure) => {
                failure.is_told = true;
                Err(Error::new(ErrorKind::Poisoned, "writing a file").caused_by(failure.error.clone()))
            }
        }
    }

    /// The class of writes that nobody waits for.
    pub(crate) fn class_in_background(&self) -> IoClass {
        self.status.lock().class.unwrap_or(IoClass::Flush)
    }

    /// The class of writes that the file's writer waits for. A writer without a class is a client of the program.
    pub(crate) fn class_of_waiter(&self) -> IoClass {
        self.status.lock().class.unwrap_or(IoClass::Read)
    }

    /// Notes that bytes of the file cannot be written. Returns the error of the first failure.
    pub(crate) fn fail(&self, error: Error, is_told: bool) -> Error {
        let mut status = self.status.lock();
        status.failure.get_or_insert(WriteFailure { error, is_told }).error.clone()
    }

    /// True if bytes of the file cannot be written.
    pub(crate) fn has_failed(&self) -> bool {
        self.status.lock().failure.is_some()
    }

    /// Notes that a caller has heard of a failed write.
    pub(crate) fn note_told(&self) {
        if let Some(failure) = &mut self.status.lock().failure {
            failure.is_told = true;
        }
    }

    /// The error of a failed write of which no caller has heard. The next call returns `None`.
    pub(crate) fn take_untold(&self) -> Option<Error> {
        let mut status = self.status.lock();
        let failure = status.failure.as_mut().filter(|failure| !failure.is_told)?;
        failure.is_told = true;
        Some(failure.error.clone())
    }

    /// A writer opens the file, which ends before the first lost byte. `lifetime`: that of the file.
    pub(crate) fn begin(&self, lifetime: Lifetime) {
        let mut status = self.status.lock();
        (status.failure, status.lifetime, status.class) = (None, lifetime, None);
    }
}
