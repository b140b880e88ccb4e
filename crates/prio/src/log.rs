//! A log over a storage: appends and syncs of any number of tasks.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use units::sync::Event;

use crate::plan::Plan;
use crate::{Error, Options, Result, Storage};

/// A log over a [`Storage`]. Clones are handles of one log.
///
/// Appends end in memory; [`sync`](Log::sync) makes them durable. A power cut keeps all bytes below the end of a finished sync, and of those above any prefix of each block.
#[derive(Clone)]
pub struct Log(Arc<Shared>);

struct Shared {
    storage: Arc<dyn Storage>,
    /// Bytes that may be appended and not yet written.
    buffer: u64,
    state: Mutex<State>,
    /// Signalled when bytes are durable or taken by a write, and when the log fails.
    changed: Event,
}

struct State {
    plan: Plan,
    /// The first failed write's error. From then on no more bytes count as durable: the caller was told where to open the log again.
    failure: Option<Failure>,
    /// Why there is no more room ahead of the log.
    room_failure: Option<String>,
    closed: bool,
    /// True while a thread starts requests. That thread also starts the requests that other threads' calls make possible meanwhile.
    starting: bool,
}

/// A failed write's error.
#[derive(Debug)]
struct Failure {
    reason: String,
    errno: Option<i32>,
}

impl State {
    /// True if `bytes` fit into a buffer of `buffer` bytes, or nothing is pending.
    fn has_space_for(&self, bytes: &[u8], buffer: u64) -> bool {
        let pending = self.plan.pending_bytes();
        pending == 0 || pending + bytes.len() as u64 <= buffer
    }

    fn check_failure(&self) -> Result<()> {
        match &self.failure {
            Some(Failure { reason, errno }) => {
                let durable = self.plan.durable();
                Err(Error::Poisoned { reason: reason.clone(), errno: *errno, durable })
            }
            None => Ok(()),
        }
    }

    fn check_open(&self) -> Result<()> {
        self.check_failure()?;
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Log {
    /// A log that ends at byte `end` of `storage`; `tail` are the bytes of its last block. Everything from `end` on is zeros, or was never written.
    pub fn new(storage: Arc<dyn Storage>, options: &Options, end: u64, tail: &[u8]) -> Result<Log> {
        options.validate()?;
        let plan = Plan::new(options, end, tail);
        let state =
            Mutex::new(State { plan, failure: None, room_failure: None, closed: false, starting: false });
        let log = Log(Arc::new(Shared { storage, buffer: options.buffer, state, changed: Event::new() }));
        log.0.start_requests();
        Ok(log)
    }

    /// Number of appended bytes.
    pub fn end(&self) -> u64 {
        self.0.state.lock().plan.end()
    }

    /// Number of bytes, from the log's begin, that are durable.
    pub fn durable(&self) -> u64 {
        self.0.state.lock().plan.durable()
    }

    /// Why no room is zeroed ahead of the log any more; `None` while there is room.
    pub fn room_failure(&self) -> Option<String> {
        self.0.state.lock().room_failure.clone()
    }

    /// Appends bytes, which stay together. Returns where they end. Waits while more than [`Options::buffer`] bytes are pending.
    pub async fn append(&self, bytes: &[u8]) -> Result<u64> {
        loop {
            let version = self.0.changed.version();
            {
                let mut state = self.0.state.lock();
                state.check_open()?;
                if state.has_space_for(bytes, self.0.buffer) {
                    let end = state.plan.append(bytes);
                    drop(state);
                    self.0.start_requests();
                    return Ok(end);
                }
                // The bytes before go out now, though no sync waits for them.
                let end = state.plan.end();
                state.plan.want(end);
            }
            self.0.start_requests();
            if !self.0.has_space_for(bytes) {
                self.0.changed.changed_since(version).await;
            }
        }
    }

    /// Makes all bytes below `upto` durable, and waits for that.
    pub async fn sync(&self, upto: u64) -> Result<()> {
        {
            let mut state = self.0.state.lock();
            let end = state.plan.end();
            if upto > end {
                return Err(Error::BehindEnd { upto, end });
            }
            state.plan.want(upto);
        }
        self.0.start_requests();
        loop {
            let version = self.0.changed.version();
            {
                let state = self.0.state.lock();
                if state.plan.durable() >= upto {
                    return Ok(());
                }
                state.check_failure()?;
            }
            self.0.changed.changed_since(version).await;
        }
    }

    /// Makes everything durable and refuses further appends. Returns the log's length in bytes, when nothing is in flight any more.
    pub async fn close(&self) -> Result<u64> {
        let end = {
            let mut state = self.0.state.lock();
            state.check_open()?;
            state.closed = true;
            state.plan.close();
            state.plan.end()
        };
        self.0.start_requests();
        loop {
            let version = self.0.changed.version();
            {
                let state = self.0.state.lock();
                state.check_failure()?;
                if state.plan.durable() >= end && state.plan.is_idle() {
                    return Ok(end);
                }
            }
            self.0.changed.changed_since(version).await;
        }
    }
}

impl Shared {
    fn has_space_for(&self, bytes: &[u8]) -> bool {
        self.state.lock().has_space_for(bytes, self.buffer)
    }

    /// Starts all requests that may start.
    fn start_requests(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.starting, true) {
            return;
        }
        while state.failure.is_none()
            && let Some((id, request)) = state.plan.next()
        {
            drop(state);
            let shared = Arc::clone(self);
            self.storage.start(request, Box::new(move |result| shared.finished(id, result)));
            state = self.state.lock();
        }
        state.starting = false;
    }

    fn finished(self: &Arc<Self>, id: u64, result: io::Result<()>) {
        {
            let mut state = self.state.lock();
            match result {
                Ok(()) if state.failure.is_none() => state.plan.done(id),
                // What ends after a failed write counts no more.
                Ok(()) => {}
                Err(error) if state.plan.failed(id) => {
                    let errno = error.raw_os_error();
                    state.failure.get_or_insert_with(|| Failure { reason: error.to_string(), errno });
                }
                Err(error) => {
                    tracing::warn!(%error, "no more room can be zeroed ahead of the log: its writes go on, and each may cost a commit of the file system");
                    state.room_failure = Some(error.to_string());
                }
            }
        }
        self.start_requests();
        self.changed.notify();
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log of {} bytes, {} durable", self.end(), self.durable())
    }
}
