//! Where a log's blocks go: a file, or an emulated drive in tests.

use std::io;

use sys::Buf;

/// A write of whole blocks.
#[derive(Debug)]
pub enum Request {
    /// Blocks of the log, to be durable at completion.
    Entries {
        /// The first byte.
        at: u64,
        /// The blocks.
        data: Buf,
    },
    /// Zeros ahead of the log.
    Zeros {
        /// The first byte.
        at: u64,
        /// Number of bytes.
        len: u64,
        /// True for the last zeros of a stretch of room: the file system's records of the stretch are to be durable at completion. The log's safety does not depend on it.
        durable: bool,
        /// True if the next entries may wait for these zeros: they go in the log's class then, and in bulk class otherwise.
        urgent: bool,
    },
}

/// Called once with a request's result.
pub type Finish = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Where a log's blocks go.
pub trait Storage: Send + Sync + 'static {
    /// Starts a request. Never blocks; `finish` is called once, perhaps within this call.
    fn start(&self, request: Request, finish: Finish);
}
