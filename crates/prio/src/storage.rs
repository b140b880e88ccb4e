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
    /// Zeros ahead of the log, in bulk class.
    Zeros {
        /// The first byte.
        at: u64,
        /// Number of bytes.
        len: u64,
        /// True if these and all zeros before are to be durable at completion.
        durable: bool,
    },
}

/// Called once with a request's result.
pub type Finish = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Where a log's blocks go.
pub trait Storage: Send + Sync + 'static {
    /// Starts a request. Never blocks; `finish` is called once, never from within this call.
    fn start(&self, request: Request, finish: Finish);
}
