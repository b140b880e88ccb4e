//! Operations that the kernel completes.

use std::fmt;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::nvme::Command;
use crate::ring::Ring;
use crate::threads::Threads;
use crate::{Buf, BufMut};

/// How operations reach the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineKind {
    /// io_uring, one ring for each thread: a thread that waits for its own operation reaps it itself.
    Ring,
    /// System calls on helper threads, where io_uring is not to be had.
    Threads,
}

/// An operation. It owns its buffers, which need no alignment: those that direct I/O would refuse are copied.
pub enum Request {
    /// Reads `into.len()` bytes from byte `at`.
    Read {
        /// The device.
        file: Arc<File>,
        /// The first byte.
        at: u64,
        /// Where they go.
        into: BufMut,
    },
    /// Writes `data`, one part behind the other, from byte `at` on: one write for the kernel.
    Write {
        /// The device.
        file: Arc<File>,
        /// The first byte.
        at: u64,
        /// The bytes.
        data: Vec<Buf>,
        /// Durable when it is acknowledged (`RWF_DSYNC`, which the block layer turns into FUA).
        durable: bool,
    },
    /// Flushes the device's cache (`fdatasync`).
    Sync {
        /// The device.
        file: Arc<File>,
    },
    /// An NVMe command without data, or whose data leaves the host.
    NvmeOut {
        /// The character device, `/dev/ngXnY`.
        file: Arc<File>,
        /// The command; its data length and pointer are filled in here.
        command: Command,
        /// The bytes, in parts; none for a command without data.
        data: Vec<Buf>,
    },
    /// An NVMe command whose data comes back.
    NvmeIn {
        /// The character device, `/dev/ngXnY`.
        file: Arc<File>,
        /// The command; its data length and pointer are filled in here.
        command: Command,
        /// Where the data goes.
        into: BufMut,
    },
    /// A system call that blocks: a zone ioctl.
    Call(Box<dyn FnOnce() -> io::Result<u64> + Send>),
}

/// How an operation ended.
#[derive(Debug)]
pub struct Finished {
    /// Reads and writes: the number of bytes, which may be fewer than asked for. NVMe commands: the 64-bit result (of
    /// an append the address). Calls: what the call gave.
    pub result: io::Result<u64>,
    /// Of an NVMe command: the device's status, 0 where it succeeded. A status other than 0 comes with an `Ok` result
    /// that means nothing.
    pub status: u16,
    /// The buffer of a read, whatever became of it.
    pub buffer: Option<BufMut>,
}

/// What is called when an operation has ended, on whichever thread found out: short, and never blocking. It may
/// submit more.
pub type Finish = Box<dyn FnOnce(Finished) + Send>;

/// Calls back. A panic of the callback is its author's defect: it must not take the thread with it, which has more
/// operations to end.
pub(crate) fn call_back(finish: Finish, finished: Finished) {
    if catch_unwind(AssertUnwindSafe(move || finish(finished))).is_err() {
        tracing::error!("the callback of an operation panicked");
    }
}

/// A way to the kernel. A process needs one of each kind at most: [`Engine::shared`].
pub struct Engine {
    reason: Option<String>,
    way: Way,
}

enum Way {
    Ring(Ring),
    Threads(Arc<Threads>),
}

/// The process's engines: they live as long as it does.
#[derive(Default)]
struct Shared {
    /// On threads, because that was asked for.
    threads: Option<Arc<Engine>>,
    /// On threads, because there is no io_uring.
    fallback: Option<Arc<Engine>>,
    /// Or why there is none.
    ring: Option<Result<Arc<Engine>, String>>,
}

static SHARED: Mutex<Shared> = Mutex::new(Shared { threads: None, fallback: None, ring: None });

impl Engine {
    /// The process's engine: `wanted`, or io_uring where the kernel has it and lets us, threads elsewhere.
    ///
    /// An error where io_uring is wanted and not to be had, or where the system has no thread left.
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

    /// How operations reach the kernel.
    pub fn kind(&self) -> EngineKind {
        match self.way {
            Way::Ring(_) => EngineKind::Ring,
            Way::Threads(_) => EngineKind::Threads,
        }
    }

    /// Why it is not io_uring, for people.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Starts an operation. Never blocks; `finish` is called once, never from within this call.
    ///
    /// Operations may reach the device in any order: whoever needs an order waits for one before submitting the next.
    /// There is no bound on how many are in flight but the one that the callers keep.
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
