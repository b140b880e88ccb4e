//! The I/O engine: sends requests to the kernel.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::request::{Finish, Request};
use crate::ring::Ring;
use crate::threads::Threads;

/// How an engine's operations reach the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// io_uring with one ring for each thread. A thread that waits for its own operation processes the completion
    /// itself.
    Ring,
    /// Blocking system calls on helper threads, if io_uring is not available.
    Threads,
}

/// Sends requests to the kernel. A process has at most one engine of each kind: [`Engine::shared`].
pub struct Engine {
    reason: Option<String>,
    way: Way,
}

enum Way {
    Ring(Ring),
    Threads(Arc<Threads>),
}

/// The engines of this process, which live until the process ends.
#[derive(Default)]
struct Shared {
    /// Engine on helper threads, chosen by the caller.
    threads: Option<Arc<Engine>>,
    /// Engine on helper threads, because io_uring is not available.
    fallback: Option<Arc<Engine>>,
    /// Engine on io_uring, or the reason why there is none.
    ring: Option<Result<Arc<Engine>, String>>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { threads: None, fallback: None, ring: None });

impl Engine {
    /// The process's engine of kind `wanted`; by default io_uring if the kernel permits it, else helper threads.
    ///
    /// Fails if io_uring is wanted but not available, or if no thread can be started.
    pub fn shared(wanted: Option<EngineKind>) -> io::Result<Arc<Engine>> {
        let mut shared = SHARED.lock();
        match wanted {
            Some(EngineKind::Threads) => {
                on_threads(&mut shared.threads, || "helper threads were asked for".into())
            }
            Some(EngineKind::Ring) => match shared.ring()? {
                Ok(engine) => Ok(engine),
                Err(reason) => Err(io::Error::new(io::ErrorKind::Unsupported, reason)),
            },
            None => match shared.ring()? {
                Ok(engine) => Ok(engine),
                Err(reason) => on_threads(&mut shared.fallback, || reason),
            },
        }
    }

    /// How this engine's operations reach the kernel.
    pub fn kind(&self) -> EngineKind {
        match self.way {
            Way::Ring(_) => EngineKind::Ring,
            Way::Threads(_) => EngineKind::Threads,
        }
    }

    /// The reason why the engine does not use io_uring, for messages.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Starts a request. Never blocks; `finish` is called once, never from within this call.
    ///
    /// Requests may reach the device in any order; a caller that needs an order waits for one request before
    /// submitting the next. Callers bound the number of requests in flight.
    pub fn submit(&self, request: Request, finish: Finish) {
        match &self.way {
            Way::Ring(ring) => ring.submit(request, finish),
            Way::Threads(threads) => threads.submit(request, finish),
        }
    }
}

fn on_threads(slot: &mut Option<Arc<Engine>>, reason: impl FnOnce() -> String) -> io::Result<Arc<Engine>> {
    if let Some(engine) = slot {
        return Ok(Arc::clone(engine));
    }
    let engine = Engine { reason: Some(reason()), way: Way::Threads(Threads::shared()?) };
    Ok(Arc::clone(slot.insert(Arc::new(engine))))
}

impl Shared {
    fn ring(&mut self) -> io::Result<Result<Arc<Engine>, String>> {
        if let Some(ring) = &self.ring {
            return Ok(ring.clone());
        }
        let threads = Threads::shared()?;
        let ring = Ring::start(threads).map(|ring| Arc::new(Engine { reason: None, way: Way::Ring(ring) }));
        Ok(self.ring.insert(ring.map_err(|error| error.to_string())).clone())
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine of {:?}", self.kind())
    }
}
