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
    /// The first failed write's error.
    failure: Option<String>,
    closed: bool,
    /// True while a thread starts requests: it also starts those that others make possible.
    starting: bool,
}

impl State {
    fn check_failure(&self) -> Result<()> {
        match &self.failure {
            Some(reason) => Err(Error::Poisoned { reason: reason.clone(), durable: self.plan.durable() }),
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
        let state = Mutex::new(State { plan, failure: None, closed: false, starting: false });
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

    /// Appends bytes, which stay together. Returns where they end. Waits while more than [`Options::buffer`] bytes are pending.
    pub async fn append(&self, bytes: &[u8]) -> Result<u64> {
        loop {
            let version = self.0.changed.version();
            {
                let mut state = self.0.state.lock();
                state.check_open()?;
                let pending = state.plan.pending_bytes();
                if pending == 0 || pending + bytes.len() as u64 <= self.0.buffer {
                    let end = state.plan.append(bytes);
                    drop(state);
                    self.0.start_requests();
                    return Ok(end);
                }
                // Nobody else may be about to sync.
                let end = state.plan.end();
                state.plan.want(end);
            }
            self.0.start_requests();
            self.0.changed.changed_since(version).await;
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
                Ok(()) => state.plan.done(id),
                Err(error) if state.plan.failed(id) => {
                    state.failure.get_or_insert(error.to_string());
                }
                Err(_no_room) => {}
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
