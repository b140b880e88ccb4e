//! The traits between a zone's queue and the kernel: [`Wire`] encodes operations, [`Kernel`] executes requests.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use sys::{Engine, Finish, Finished, Request};

use crate::kernel::Failure;
use crate::{Action, Buf, BufMut, Done, Lba, ZoneId, ZoneInfo};

/// An operation for the kernel that has passed all checks.
#[derive(Debug)]
pub(crate) enum KernelOp {
    Read { at: Lba, into: BufMut },
    Write { at: Lba, data: Vec<Buf>, durable: bool },
    Append { zone: ZoneId, data: Buf, durable: bool },
    Zone { zone: ZoneId, action: Action },
    Flush,
    Report { zones: Range<u32> },
}

/// The form of a successful reply to a kernel request.
#[derive(Debug)]
pub(crate) enum ExpectedReply {
    /// The reply is success without a value.
    Success,
    /// The reply is the number of written bytes, expected to be the given one.
    Written(usize),
    /// The reply is the number of read bytes, expected to be the given one.
    Read(usize),
    /// The reply is the address of an append.
    Address,
    /// The reply is a report, which the request's call stores in the list.
    Report(Arc<Mutex<Vec<ZoneInfo>>>),
}

/// A backend: encodes operations as kernel requests and decodes replies. Only [`Wire::is_gone`] does I/O.
pub(crate) trait Wire: Send + Sync + 'static {
    /// Encodes an operation as a kernel request.
    fn request(&self, ask: KernelOp) -> (Request, ExpectedReply);

    /// Decodes the kernel's reply to a request.
    fn interpret(&self, expect: ExpectedReply, finished: Finished) -> Result<Done, Failure>;

    /// True if the device has been removed. Called after a failure, because the kernel answers EIO for a removed device.
    fn is_gone(&self) -> bool;
}

/// Executes requests: the kernel, or a fake kernel in tests.
pub(crate) trait Kernel: Send + Sync + 'static {
    /// Starts a request. `finish` is called once with its result, never from within this call.
    fn submit(&self, request: Request, finish: Finish);
}

impl Kernel for Engine {
    fn submit(&self, request: Request, finish: Finish) {
        Engine::submit(self, request, finish);
    }
}

impl ExpectedReply {
    /// The kernel request for a zone report. `ask` may block; a helper thread runs it.
    pub(crate) fn report(
        ask: impl FnOnce() -> io::Result<Vec<ZoneInfo>> + Send + 'static,
    ) -> (Request, ExpectedReply) {
        let place = Arc::new(Mutex::new(Vec::new()));
        let expect = ExpectedReply::Report(Arc::clone(&place));
        let call = move || {
            *place.lock() = ask()?;
            Ok(0)
        };
        (Request::Call(Box::new(call)), expect)
    }
}
