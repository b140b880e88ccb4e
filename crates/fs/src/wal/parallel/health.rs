//! Whether a parallel log still takes records: the first error that poisoned it, and whether it is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use units::sync::Event;

use crate::error::{Error, ErrorKind, Result};
use crate::shared::Handle;
use crate::wal::parallel::void::VoidQueue;

const APPENDING: &str = "appending to a parallel log";

#[derive(Debug)]
pub(super) struct Health {
    handle: Arc<Handle>,
    /// The error that poisoned the log, and whether there is one.
    error: Mutex<Option<Error>>,
    poisoned: AtomicBool,
    closed: AtomicBool,
    /// Requests for void entries, which are not written once the log is poisoned.
    voids: Arc<VoidQueue>,
    /// Events whose waiters check the log's health again when it changes.
    waiters: Vec<Event>,
}

impl Health {
    pub(super) fn new(handle: Arc<Handle>, voids: Arc<VoidQueue>, waiters: Vec<Event>) -> Health {
        Health {
            handle,
            error: Mutex::default(),
            poisoned: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            voids,
            waiters,
        }
    }

    /// Fails once the log is poisoned.
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_poisoned() {
            return Ok(());
        }
        let why = "an earlier write or flush of the parallel log failed; close it and open it again";
        let error = Error::new(ErrorKind::Poisoned, APPENDING).because(why);
        Err(self.error().map_or(error.clone(), |cause| error.caused_by(cause)))
    }

    /// Fails once the log is poisoned or closed, or the file system is unmounted.
    pub(super) fn check_usable(&self) -> Result<()> {
        self.check()?;
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Closed, APPENDING).because("it is closed"));
        }
        self.handle.shared.check_open()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The error that poisoned the log.
    pub(super) fn error(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// Poisons the log and stops all writes: after `error` the log's content on the device is unknown.
    /// Returns the first such error.
    pub(super) fn poison(&self, error: Error) -> Error {
        tracing::error!(%error, log = self.handle.file.ino, "a parallel log is poisoned");
        let error = self.error.lock().get_or_insert(error).clone();
        self.poisoned.store(true, Ordering::Release);
        self.voids.fail(&error);
        self.waiters.iter().for_each(Event::notify);
        error
    }
}
