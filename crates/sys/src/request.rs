//! Requests to the kernel and their completions.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::nvme::Command;
use crate::{Buf, BufMut, Priority};

/// A request to the kernel. It owns its buffers. Unaligned buffers are copied if direct I/O needs alignment.
pub enum Request {
    /// Reads `into.len()` bytes from byte `at`.
    Read {
        /// The device.
        file: Arc<File>,
        /// The first byte.
        at: u64,
        /// Buffer for the bytes that the request reads.
        into: BufMut,
        /// The read's place in the kernel's queue.
        priority: Priority,
    },
    /// Writes the parts of `data` in order from byte `at` on, as one write.
    Write {
        /// The device.
        file: Arc<File>,
        /// The first byte.
        at: u64,
        /// The bytes.
        data: Vec<Buf>,
        /// True if the data must be durable at completion (`RWF_DSYNC`, which the block layer turns into FUA).
        durable: bool,
        /// The write's place in the kernel's queue.
        priority: Priority,
    },
    /// Flushes the device's cache (`fdatasync`).
    Sync {
        /// The device.
        file: Arc<File>,
    },
    /// An NVMe command without data or with data to the device.
    NvmeOut {
        /// The NVMe character device, `/dev/ngXnY`.
        file: Arc<File>,
        /// The NVMe command; the engine sets data length and pointer.
        command: Command,
        /// The command's data in parts; empty for a command without data.
        data: Vec<Buf>,
    },
    /// An NVMe command with data from the device.
    NvmeIn {
        /// The NVMe character device, `/dev/ngXnY`.
        file: Arc<File>,
        /// The NVMe command; the engine sets data length and pointer.
        command: Command,
        /// Buffer for the data.
        into: BufMut,
    },
    /// A blocking system call, such as a zone ioctl.
    Call(Box<dyn FnOnce() -> io::Result<u64> + Send>),
}

impl Request {
    /// The request's place in the kernel's queue. Only reads and writes have one of their own.
    pub(crate) fn priority(&self) -> Priority {
        match self {
            Request::Read { priority, .. } | Request::Write { priority, .. } => *priority,
            _ => Priority::Unset,
        }
    }
}

/// Completion of a request.
#[derive(Debug)]
pub struct Finished {
    /// The number of bytes of a read or write, possibly fewer than requested; the 64-bit result of an NVMe
    /// command (the address of an append); the return value of a call.
    pub result: io::Result<u64>,
    /// Status of an NVMe command; 0 for success. With a status other than 0 the `Ok` value of `result` is meaningless.
    pub status: u16,
    /// The buffer of a read, also after a failure.
    pub buffer: Option<BufMut>,
}

/// Called when a request has completed, on the thread that processes the completion. Must be short and must not block;
/// may submit requests.
pub type Finish = Box<dyn FnOnce(Finished) + Send>;

/// Calls `finish`. A panic of the callback is caught, because the thread has other requests to complete.
pub(crate) fn call_back(finish: Finish, finished: Finished) {
    if catch_unwind(AssertUnwindSafe(move || finish(finished))).is_err() {
        tracing::error!("the callback of an operation panicked");
    }
}
