//! Operations that the kernel completes.

use std::fs::File;
use std::io;
use std::sync::Arc;

use crate::nvme::Command;
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

/// A way to the kernel. A process needs one of each kind at most: [`Engine::shared`].
pub struct Engine {
    kind: EngineKind,
    reason: Option<String>,
}

impl Engine {
    /// The process's engine: `wanted`, or io_uring where the kernel has it and lets us, threads elsewhere.
    pub fn shared(_wanted: Option<EngineKind>) -> io::Result<Arc<Engine>> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// How operations reach the kernel.
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Why it is not io_uring, for people.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Starts an operation. Never blocks; `finish` is called once, never from within this call.
    pub fn submit(&self, request: Request, finish: Finish) {
        drop((request, finish));
    }
}
